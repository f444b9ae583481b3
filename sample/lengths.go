package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"lcache/internal/disk/offheap"
)

// The compressed lengths are a learnt file with the columns length u32[n] and check u32[n]:
// check = the low 32 bits of xxh3-64(length ‖ index as u32), 1 if they are 0.
var lengthsFile = learntFile{magic: "lcachest", name: "stored lengths", entry: 8}

// Lengths stores the bytes that each sample takes in the log of a cache that compresses, once they are known: its size if it is stored
// uncompressed. Like Sums they are learnt, and each entry is verified: an entry that a power cut left old, zero or torn is unknown after the
// next open. The sample is then not found in the log, which costs a read of the source.
//
// The offsets of all samples after one in its block depend on its length. So a length never changes while a log may have its sample; callers
// of Forget know that none does. Set is called once for a sample, before it is in the log. Otherwise Get and Set may be called concurrently.
//
// The lengths are held in memory, so the log can always use them. If a page of the file can't be written, because the disk fails or the file
// was truncated, its entries are lost for the next open, and Broken returns an error.
type Lengths struct {
	learntMap
	lengths []uint32 // outside Go's heap
	onDisk  []uint32
	checks  []uint32
}

// OpenLengths maps the compressed lengths of the manifest with this fingerprint and these sizes. It creates the file if there is none. It has
// the errors of [OpenSums]. It drops entries that fail their check, or are longer than their sample.
func OpenLengths(path string, fp Fingerprint, sizes []uint32) (*Lengths, error) {
	m, err := lengthsFile.open(path, fp, len(sizes), false)
	return newLengths(m, sizes, err)
}

// ReadLengths is OpenLengths for callers that must not change the file: changed entries stay in memory, and a missing file is the error
// fs.ErrNotExist.
func ReadLengths(path string, fp Fingerprint, sizes []uint32) (*Lengths, error) {
	m, err := lengthsFile.open(path, fp, len(sizes), true)
	return newLengths(m, sizes, err)
}

// BlankLengths returns compressed lengths in memory only, all unknown.
func BlankLengths(sizes []uint32) (*Lengths, error) {
	m, err := lengthsFile.blank(len(sizes))
	return newLengths(m, sizes, err)
}

func newLengths(m learntMap, sizes []uint32, err error) (*Lengths, error) {
	if err != nil {
		return nil, err
	}
	n := len(sizes)
	b := m.mapped[learntData:]
	l := &Lengths{learntMap: m, onDisk: column[uint32](b[:4*n]), checks: column[uint32](b[4*n:])}
	if l.lengths, err = offheap.Make[uint32](n); err != nil {
		return nil, errors.Join(fmt.Errorf("stored lengths of %d samples: %w", n, err), l.close())
	}
	l.guard(func() {
		for i, length := range l.onDisk {
			switch {
			case length == 0 && l.checks[i] == 0: // most of a new file: don't touch its pages
			case length == 0 || length > sizes[i] || l.checks[i] != lengthCheck(length, Index(i)):
				l.onDisk[i], l.checks[i] = 0, 0
			default:
				l.lengths[i] = length
			}
		}
	})
	return l, nil
}

func lengthCheck(length uint32, i Index) uint32 {
	var b [8]byte
	binary.LittleEndian.PutUint32(b[:], length)
	binary.LittleEndian.PutUint32(b[4:], i)
	return max(1, uint32(xxh3.Hash(b[:])))
}

// Get returns the compressed length of sample i, or 0 if it is unknown.
func (l *Lengths) Get(i Index) uint32 { return atomic.LoadUint32(&l.lengths[i]) }

// Set sets the compressed length of sample i, from 1 to its size. It reaches the disk some time later, or with Sync.
func (l *Lengths) Set(i Index, length uint32) {
	atomic.StoreUint32(&l.lengths[i], length)
	l.guard(func() {
		atomic.StoreUint32(&l.onDisk[i], length)
		atomic.StoreUint32(&l.checks[i], lengthCheck(length, i))
	})
}

// Forget makes the compressed length of sample i unknown. No log may have the sample.
func (l *Lengths) Forget(i Index) {
	l.guard(func() {
		atomic.StoreUint32(&l.checks[i], 0)
		atomic.StoreUint32(&l.onDisk[i], 0)
	})
	atomic.StoreUint32(&l.lengths[i], 0)
}

// All returns the lengths of all samples by index. It changes as they become known.
func (l *Lengths) All() []uint32 { return l.lengths }

// Close syncs and unmaps. The slice from All must not be used afterwards.
func (l *Lengths) Close() error {
	err := l.close()
	offheap.Free(l.lengths)
	l.lengths, l.onDisk, l.checks = nil, nil, nil
	return err
}
