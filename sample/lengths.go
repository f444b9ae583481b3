package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"lcache/internal/disk/offheap"
)

// The stored lengths are a learnt file, its columns length u32[n] and check u32[n]:
// check = the low 32 bits of xxh3-64(length ‖ index as u32), 1 if they are 0.
var lengthsFile = learntFile{magic: "lcachest", name: "stored lengths", entry: 8}

// Lengths holds how many bytes each sample takes in the log of a cache that compresses, once that is known: its size if it is stored as
// it is. They are learnt as the sums are, and prove themselves as those do: an entry that a power cut left old, zero or torn
// is unknown after the next open. Then nothing that the log holds of its sample is found, which costs a read of the source.
//
// The offsets of all samples behind one in its block follow from its length. So a length never changes while a log may hold its
// sample; callers of Forget know that none does. Set of one sample happens once, before the sample is in the log; other than
// that Get and Set are safe to call concurrently.
//
// They are held in memory, where all that the log does finds them: a page of the file that can't be written, because the disk fails or the
// file was cut short, loses its entries for the next open; Broken says so.
type Lengths struct {
	learntMap
	lengths []uint32 // outside Go's heap
	onDisk  []uint32
	checks  []uint32
}

// OpenLengths maps the stored lengths of the manifest with this fingerprint, whose samples have these sizes; it creates the file if there
// is none. Errors are as those of [OpenSums]. Entries that don't prove themselves, or are longer than their sample, are
// forgotten.
func OpenLengths(path string, fp Fingerprint, sizes []uint32) (*Lengths, error) {
	m, err := lengthsFile.open(path, fp, len(sizes), false)
	return newLengths(m, sizes, err)
}

// ReadLengths is OpenLengths for callers that must not change the file: entries that are set or forgotten stay in memory, and a file that is not there is
// fs.ErrNotExist.
func ReadLengths(path string, fp Fingerprint, sizes []uint32) (*Lengths, error) {
	m, err := lengthsFile.open(path, fp, len(sizes), true)
	return newLengths(m, sizes, err)
}

// BlankLengths are stored lengths in memory alone, none of them known.
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
			case length == 0 && l.checks[i] == 0: // most of a new file: leave its pages alone
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

// Get is the stored length of sample i, 0 if it is not known.
func (l *Lengths) Get(i Index) uint32 { return atomic.LoadUint32(&l.lengths[i]) }

// Set makes the stored length of sample i known: 1 … its size. It reaches the disk some time later, or with Sync.
func (l *Lengths) Set(i Index, length uint32) {
	atomic.StoreUint32(&l.lengths[i], length)
	l.guard(func() {
		atomic.StoreUint32(&l.onDisk[i], length)
		atomic.StoreUint32(&l.checks[i], lengthCheck(length, i))
	})
}

// Forget makes the stored length of sample i unknown. No log may hold the sample.
func (l *Lengths) Forget(i Index) {
	l.guard(func() {
		atomic.StoreUint32(&l.checks[i], 0)
		atomic.StoreUint32(&l.onDisk[i], 0)
	})
	atomic.StoreUint32(&l.lengths[i], 0)
}

// All is the lengths of all samples by index, as they become known.
func (l *Lengths) All() []uint32 { return l.lengths }

// Close syncs and unmaps. The slice that All returned is gone.
func (l *Lengths) Close() error {
	err := l.close()
	offheap.Free(l.lengths)
	l.lengths, l.onDisk, l.checks = nil, nil, nil
	return err
}
