// Package compress decides the stored form of each sample in the log of a compressed cache. Each sample is compressed
// separately, as a block of lz4. It is stored as it is if compression saves no space, or if the sample is too large.
//
// A Form turns a sample's bytes into its stored bytes (Pack) and back (Unpack). It keeps the stored lengths, and it
// limits their sum to the size of the log: a sample that does not fit is refused and stays a miss. A sample is
// compressed once, when it is read from the source. After that its stored bytes are moved as they are. A Trial
// compresses some of the samples to estimate the space for all of them. A cache without compression has no Form. All
// methods of a Form may be called concurrently; a Trial belongs to one goroutine.
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
	ErrRoom    = errors.New("the log has no room for the sample: the data compresses less than the samples of the trial did; run lcache ingest")
	ErrLength  = errors.New("the sample's stored length changed; run lcache ingest")
	errCorrupt = errors.New("stored bytes are damaged")
)

// usual is the largest sample that is compressed in parallel with others. Larger samples are compressed one at a
// time.
const usual = 1 << 20

// largest is the largest sample that is compressed. The format's own limit is a little under 2 GiB.
const largest = 1 << 30

// Form has the stored lengths of a dataset's samples, and the buffers for compression.
type Form struct {
	sizes   []uint32
	lengths *sample.Lengths
	align   uint32
	room    uint64
	most    uint32        // larger samples are stored as they are
	used    atomic.Uint64 // padded bytes of all samples with a known length
	refused atomic.Int64
	packers chan *packer // one for each CPU: more would only take memory
	large   chan *packer // for samples larger than usual: only one, because its buffer is as large as they are
}

type packer struct {
	c   lz4.Compressor
	buf []byte
}

// New makes the Form of a dataset. In the log, which has room bytes for them, samples are padded to align bytes.
// Samples with a known length are counted at once. Samples larger than most bytes are stored uncompressed, unless
// they were compressed before. A later Form of the dataset may have another value of most.
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

// MayPack reports whether a sample's stored bytes differ, or can come to differ, from its own bytes. length is its
// stored length, 0 if unknown. most is as in New.
func MayPack(size, length, most uint32) bool { return size <= most || length != 0 && length != size }

// IsHuge reports whether sample i is stored as it is because of its size.
func (f *Form) IsHuge(i sample.Index) bool {
	return f.sizes[i] > f.most && f.lengths.Get(i) == f.sizes[i]
}

// LargestPacked returns the size of the largest sample that is or can be compressed.
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

// Length returns the stored length of sample i in bytes. It returns 0 if the length is unknown; then the log does not
// have the sample.
func (f *Form) Length(i sample.Index) int { return int(f.lengths.Get(i)) }

// Packed reports whether the stored bytes of sample i differ from its own bytes.
func (f *Form) Packed(i sample.Index) bool { return f.lengths.Get(i) != f.sizes[i] }

// Refuses reports whether the log has no room for sample i, by the lengths known now.
func (f *Form) Refuses(i sample.Index) bool { return f.lengths.Get(i) == 0 && f.refused.Load() > 0 }

// Used returns the padded bytes of all samples with a known length.
func (f *Form) Used() uint64 { return f.used.Load() }

// Refused returns the number of samples for which the log had no room.
func (f *Form) Refused() int64 { return f.refused.Load() }

// pack compresses plain into the packer's buffer. It returns false if that does not save at least one unit of the
// alignment. The result depends only on plain and align, because a sample is compressed again if its block was lost,
// and must get the same length.
func (p *packer) pack(plain []byte, align uint32) (packed []byte, ok bool) {
	n := padded(uint32(len(plain)), align) // a saving is at least one unit
	if n <= uint64(align) || len(plain) > largest {
		return nil, false
	}
	limit := min(int(n-uint64(align)), len(plain)-1)
	if cap(p.buf) < limit {
		p.buf = make([]byte, limit)
	}
	tellRace(p.buf[:limit], plain)
	k, err := p.c.CompressBlock(plain, p.buf[:limit])
	if err != nil || k == 0 { // the compressor found no result short enough
		return nil, false
	}
	return p.buf[:k], true
}

// Pack calls put with the stored bytes of sample i and returns put's error. put may use the bytes only until it
// returns. plain is the whole sample, not empty. The first call records the stored length. Pack returns ErrRoom if
// the log has no room, and ErrLength if the length differs from the recorded one, because the bytes or the compressor
// changed; put is not called then. A sample that was stored as it is stays so. Two calls for the same sample must not
// run at the same time.
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
	default:
		select {
		case p = <-packers:
		case <-ctx.Done():
			return fmt.Errorf("wait to compress sample %d: %w", i, context.Cause(ctx))
		}
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

// learn records the length of a sample's stored bytes. It returns an error if the log has no room for them.
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

// Forget drops the recorded length of sample i, so that other bytes of it can be stored. No log may have the sample.
func (f *Form) Forget(i sample.Index) {
	f.used.Add(-padded(f.lengths.Get(i), f.align))
	f.lengths.Forget(i)
}

// Unpack turns the stored bytes of sample i into its own bytes, in dst, which has the sample's size. It writes only
// to dst, whatever the stored bytes are. An error means that they are damaged. Without an error they may still be
// damaged: the checksum decides.
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
