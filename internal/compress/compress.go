// Package compress is how samples lie in the log of a cache that compresses: each by itself, as a block of lz4, or as it is where
// that saves no space, or where it is larger than all samples that are compressed.
//
// A Form turns a sample's bytes into its stored ones (Pack) and back (Unpack), keeps the stored lengths, and sees to it that all of
// them together fit the log: a sample that does not fit is refused, and stays a miss. Packing happens once, when a
// sample is read from the source; from then on its stored bytes are moved as they are. A Trial says, from some of the samples, how much
// space all of them will take. A cache without compression has no Form. All methods of a Form may be called concurrently; a
// Trial belongs to one goroutine.
package compress

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/pierrec/lz4/v4"

	"lcache/internal/host"
	"lcache/sample"
)

// Reasons why a sample is not stored.
var (
	ErrRoom    = errors.New("the log has no room for it: the data compresses less than the samples that were tried")
	ErrLength  = errors.New("its stored length is not the one that the log counts with; run lcache ingest")
	errCorrupt = errors.New("stored bytes are damaged")
)

// usual is the size over which samples are packed one at a time.
const usual = 1 << 20

// largest is the largest sample that is compressed: the format's own limit is a little under 2 GiB.
const largest = 1 << 30

// A Form: see the package's comment.
type Form struct {
	sizes   []uint32
	lengths *sample.Lengths
	align   uint32
	room    uint64
	most    uint32        // larger samples are stored as they are
	used    atomic.Uint64 // padded bytes of all samples whose length is known
	refused atomic.Int64
	packers chan *packer // as many as there are CPUs: more would only take more memory
	large   chan *packer // for samples over a block's usual size: one, because its buffer is as large as they are
}

type packer struct {
	c   lz4.Compressor
	buf []byte
}

// New makes the Form of a dataset. Samples are padded to align bytes in the log, which has room for this many bytes of them. Samples whose
// lengths are known already count. Samples over most bytes are stored as they are; those that were compressed before stay so. most may differ from one Form of a dataset
// to the next.
func New(sizes []uint32, lengths *sample.Lengths, align int, room uint64, most uint32) *Form {
	f := &Form{sizes: sizes, lengths: lengths, align: uint32(align), room: room, most: most, packers: make(chan *packer, min(8, host.Cores)),
		large: make(chan *packer, 1)}
	f.large <- &packer{}
	for range cap(f.packers) {
		f.packers <- &packer{}
	}
	for _, n := range lengths.All() {
		f.used.Add(padded(n, f.align))
	}
	return f
}

// MayPack reports whether a sample's stored bytes are, or can become, other than its own. length is its stored length, 0 if that is not known, and
// most as in New.
func MayPack(size, length, most uint32) bool { return size <= most || length != 0 && length != size }

// IsHuge reports whether the log has sample i as it is, because of its size.
func (f *Form) IsHuge(i sample.Index) bool {
	return f.sizes[i] > f.most && f.lengths.Get(i) == f.sizes[i]
}

// LargestPacked is the size of the largest sample that is compressed now or can be later.
func (f *Form) LargestPacked() (n uint32) {
	for i, size := range f.sizes {
		if size > n && MayPack(size, f.lengths.Get(sample.Index(i)), f.most) {
			n = size
		}
	}
	return n
}

func padded(n, align uint32) uint64 {
	a := uint64(align)
	return (uint64(n) + a - 1) &^ (a - 1)
}

// Length is how many bytes of the log sample i takes, 0 if that is not known: then the log does not hold it.
func (f *Form) Length(i sample.Index) int { return int(f.lengths.Get(i)) }

// Packed reports whether the stored bytes of sample i are other than its own.
func (f *Form) Packed(i sample.Index) bool { return f.lengths.Get(i) != f.sizes[i] }

// Refuses reports whether the log, by the lengths known now, has no room for sample i.
func (f *Form) Refuses(i sample.Index) bool { return f.lengths.Get(i) == 0 && f.refused.Load() > 0 }

// Used is how many bytes, padded, the samples with a known length take.
func (f *Form) Used() uint64 { return f.used.Load() }

// Refused counts the samples for which the log had no room.
func (f *Form) Refused() int64 { return f.refused.Load() }

// pack compresses plain into the packer's buffer, if that saves at least one unit of the alignment. What it gives is a function
// of plain and align alone: it is compressed again after its block was lost.
func (p *packer) pack(plain []byte, align uint32) (packed []byte, ok bool) {
	n := padded(uint32(len(plain)), align) // packed bytes must be at least a unit shorter
	if n <= uint64(align) || len(plain) > largest {
		return nil, false
	}
	limit := min(int(n-uint64(align)), len(plain)-1)
	if cap(p.buf) < limit {
		p.buf = make([]byte, limit)
	}
	tellRace(p.buf[:limit], plain)
	k, err := p.c.CompressBlock(plain, p.buf[:limit])
	if err != nil || k == 0 { // it does not fit: that is how too little a saving shows
		return nil, false
	}
	return p.buf[:k], true
}

// Pack gives put the stored bytes of sample i, which are lent to it until it returns, and gives back its error. plain is all of the
// sample's bytes, and not empty. The first time its length is counted, so put is not called if the log has no room (ErrRoom), and
// not if a length is known and another one comes out (ErrLength: other bytes, or another compressor). A sample that was stored as it is stays so. One sample must not be packed
// twice at the same time.
func (f *Form) Pack(ctx context.Context, i sample.Index, plain []byte, put func(stored []byte) error) error {
	known := f.lengths.Get(i)
	if int(known) == len(plain) {
		return put(plain)
	}
	if known == 0 && len(plain) > int(f.most) {
		if err := f.learn(i, plain); err != nil {
			return err
		}
		return put(plain)
	}
	packers := f.packers
	if len(plain) > usual {
		packers = f.large
	}
	var p *packer
	select {
	case p = <-packers:
	case <-ctx.Done():
		return fmt.Errorf("wait to compress sample %d: %w", i, context.Cause(ctx))
	}
	defer func() { packers <- p }()
	data, ok := p.pack(plain, f.align)
	if !ok {
		data = plain
	}
	if known == 0 {
		if err := f.learn(i, data); err != nil {
			return err
		}
	} else if int(known) != len(data) {
		return fmt.Errorf("%w: %d bytes instead of %d", ErrLength, len(data), known)
	}
	return put(data)
}

// learn makes the length of a sample's stored bytes known, if the log has room for them.
func (f *Form) learn(i sample.Index, data []byte) error {
	if !f.take(uint32(len(data))) {
		f.refused.Add(1)
		return ErrRoom
	}
	f.lengths.Set(i, uint32(len(data)))
	return nil
}

func (f *Form) take(n uint32) bool {
	p := padded(n, f.align)
	if f.used.Add(p) > f.room {
		f.used.Add(-p)
		return false
	}
	return true
}

// Forget makes the length of sample i unknown, so that other bytes of it can be stored. No log may hold the sample.
func (f *Form) Forget(i sample.Index) {
	f.used.Add(-padded(f.lengths.Get(i), f.align))
	f.lengths.Forget(i)
}

// Unpack turns the stored bytes of sample i into its own, in dst, which has their size. Only dst is written, whatever the
// stored bytes are. An error says that they are damaged; without one they may be, and the sum decides.
func (f *Form) Unpack(i sample.Index, data, dst []byte) error {
	if len(data) != f.Length(i) || len(dst) != int(f.sizes[i]) {
		return fmt.Errorf("unpack sample %d from %d bytes to %d: want %d and %d", i, len(data), len(dst), f.Length(i), f.sizes[i])
	}
	if len(data) == len(dst) {
		copy(dst, data)
		return nil
	}
	return unpack(data, dst)
}

func unpack(data, dst []byte) error {
	tellRace(dst, data)
	n, err := lz4.UncompressBlock(data, dst[:len(dst):len(dst)])
	if err != nil {
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if n != len(dst) {
		return fmt.Errorf("%w: they hold %d bytes, want %d", errCorrupt, n, len(dst))
	}
	return nil
}
