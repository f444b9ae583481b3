package sample

import "sync/atomic"

// The inodes file is a learnt file with the column inode u64[n] and no checks. A damaged or outdated entry is either another inode than the
// file has, which costs a read, or 0, which means unknown.
var inodesFile = learntFile{magic: "lcacheno", name: "inodes", entry: 8}

// Inodes stores the file that each sample's bytes were read from: its inode, or a hash of the inodes of its parts. A file with the same size
// and time and another inode may have other bytes, and is compared with the sample's checksum once. If inode and checksum are both known,
// the inode belongs to the file with that checksum. So a caller that replaces a checksum first makes its removal durable ([Sums.Forget],
// [Sums.Sync]), and then sets the inode.
//
// Inodes are valid on one machine, so they are not in the manifest. Losing them costs only the comparison of files that were replaced
// meanwhile. The device is not stored: many devices get another number at each boot or mount, and every file would be read again.
//
// Get and Set may be called concurrently. If a page can't be read into memory, its entries are unknown, and Broken returns an error.
type Inodes struct {
	learntMap
	inodes []uint64
}

// Values of an entry that are not inodes.
const (
	NoInode      uint64 = 0         // unknown
	suspectInode        = 1<<64 - 1 // no file has it
)

// InodesBytes returns the length of the file of inodes of n samples.
func InodesBytes(n int) uint64 { return uint64(inodesFile.size(n)) }

// OpenInodes maps the inodes of the manifest with this fingerprint and n samples. It creates the file if there is none. It has the errors of [OpenSums].
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

// Get returns the inode of sample i; NoInode: unknown. A suspect sample has an inode that no file has.
func (o *Inodes) Get(i Index) (inode uint64) {
	if !o.guard(func() { inode = atomic.LoadUint64(&o.inodes[i]) }) {
		return NoInode
	}
	return inode
}

// Set records that the bytes of sample i come from the file with this inode. It reaches the disk some time later, or with Sync.
func (o *Inodes) Set(i Index, inode uint64) {
	o.guard(func() {
		if atomic.LoadUint64(&o.inodes[i]) != inode { // an unchanged page is not written back
			atomic.StoreUint64(&o.inodes[i], inode)
		}
	})
}

// Suspect records that the file of sample i has other bytes, so that the next listing reads it whatever its inode is.
func (o *Inodes) Suspect(i Index) { o.Set(i, suspectInode) }

// CopyTo copies the known inodes to other, with a mapping from [Remap].
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
