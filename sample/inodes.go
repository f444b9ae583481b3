package sample

import "sync/atomic"

// The inodes file is a learnt file with the column inode u64[n] and no checks. An entry that is damaged, or of another moment, is another inode than
// the file has, or 0: the first costs a read, the second makes the inode unknown.
var inodesFile = learntFile{magic: "lcacheno", name: "inodes", entry: 8}

// Inodes holds which file each sample's bytes were read from: its inode, or a hash of the inodes of its parts. A file of the same size and time under another
// inode may have other bytes, and is compared with the sample's sum once. The inode is of the file whose bytes have the sum, wherever both are known.
// So a caller that replaces the sum of other bytes makes its removal durable ([Sums.Forget], [Sums.Sync]) before it sets the inode.
//
// Inodes are of one machine, so they are not in the manifest, and losing them costs nothing but the comparison of files that were replaced meanwhile.
// The device is left out: many devices get another number when the machine is started again, or at each mount, and every file would be read again.
//
// Get and Set may be called concurrently. A page that can't be brought into memory makes its entries unknown; Broken says so.
type Inodes struct {
	learntMap
	inodes []uint64
}

// Values of an entry that are no inodes.
const (
	NoInode      uint64 = 0         // not known
	suspectInode        = 1<<64 - 1 // no file has it
)

// InodesBytes returns the length of the file of inodes of n samples.
func InodesBytes(n int) uint64 { return uint64(inodesFile.size(n)) }

// OpenInodes maps the inodes of the manifest with this fingerprint and n samples; it creates the file if there is none. Errors are as those of [OpenSums].
func OpenInodes(path string, fp Fingerprint, n int) (*Inodes, error) {
	m, err := inodesFile.open(path, fp, n, false)
	return newInodes(m, err)
}

func newInodes(m learntMap, err error) (*Inodes, error) {
	if err != nil {
		return nil, err
	}
	return &Inodes{learntMap: m, inodes: column[uint64](m.mapped[learntData:])}, nil
}

// Get returns the inode of sample i; NoInode: not known. A suspect sample has one that no file has.
func (o *Inodes) Get(i Index) (inode uint64) {
	if !o.guard(func() { inode = atomic.LoadUint64(&o.inodes[i]) }) {
		return NoInode
	}
	return inode
}

// Set notes that the bytes of sample i are those of a file with this inode. It reaches the disk some time later, or with Sync.
func (o *Inodes) Set(i Index, inode uint64) {
	o.guard(func() {
		if atomic.LoadUint64(&o.inodes[i]) != inode { // a page that is only read is not written back
			atomic.StoreUint64(&o.inodes[i], inode)
		}
	})
}

// Suspect notes that the file of sample i was found to have other bytes, so that the next listing reads it whatever its inode is.
func (o *Inodes) Suspect(i Index) { o.Set(i, suspectInode) }

// CopyTo sets in other the inodes that are known here, by a mapping from [Remap].
func (o *Inodes) CopyTo(other *Inodes, mapping []Index) {
	for i, j := range mapping {
		if j == None {
			continue
		}
		if inode := o.Get(Index(i)); inode != NoInode {
			other.Set(j, inode)
		}
	}
}

// Len is the number of samples.
func (o *Inodes) Len() int { return len(o.inodes) }

// Close syncs and unmaps.
func (o *Inodes) Close() error {
	err := o.close()
	o.inodes = nil
	return err
}
