// Package metaindex lists an epoch's chunks and locates each sample: the two levels of LCache's MetaIndex (§III-C).
//
// The upper level answers for one sample: Locations holds, in one atomic word each, the Logfile, segment and offset of every
// sample. The lower level is the list of an epoch's chunks in order, as CMs {CID, Offset, Size, Cached, Content}. The paper links
// CMs in a list and hashes file names; here both levels are arrays outside the Go heap, indexed by chunk and by sample, which is
// why 14 million samples cost a few hundred MB instead of 10 GB. Names are looked up in the manifest.
//
// Locations may be read and written concurrently. A List is immutable.
package metaindex

import (
	"sync/atomic"

	"lcache/chunker"
	"lcache/offheap"
	"lcache/sample"
)

// A Loc is where a sample's bytes begin: half (1 bit), segment (20 bits), offset in the segment's byte string / align
// (43 bits, plus one so that the zero Loc is nowhere). It is final when a sample is appended; blocks move, the string does not.
type Loc uint64

const (
	offsetBits  = 43
	segmentBits = 20
	offsetMask  = 1<<offsetBits - 1

	// MaxSegments is how many segments a Logfile may have.
	MaxSegments = 1 << segmentBits
)

// Locations are the places of all samples of a dataset.
type Locations struct {
	loc   []uint64
	align uint64
}

// NewLocations makes n empty entries, 8 bytes each, outside the Go heap.
func NewLocations(n, align int) (*Locations, error) {
	loc, err := offheap.Make[uint64](n)
	if err != nil {
		return nil, err
	}
	return &Locations{loc: loc, align: uint64(align)}, nil
}

// Free gives the memory back.
func (l *Locations) Free() { offheap.Free(l.loc); l.loc = nil }

// Bytes is the size of the table.
func (l *Locations) Bytes() int64 { return int64(len(l.loc)) * 8 }

// At makes the Loc of an offset in a segment of the Logfile in a half, 0 or 1.
func (l *Locations) At(half, segment int, off uint64) Loc {
	return Loc(uint64(half)<<63 | uint64(segment)<<offsetBits | (off/l.align + 1))
}

// Split is the inverse of At; ok is false for nowhere.
func (l *Locations) Split(loc Loc) (half, segment int, off uint64, ok bool) {
	if loc == 0 {
		return 0, 0, 0, false
	}
	return int(loc >> 63), int(loc >> offsetBits & (MaxSegments - 1)), (uint64(loc)&offsetMask - 1) * l.align, true
}

// Get is where a sample is now.
func (l *Locations) Get(i sample.Index) Loc { return Loc(atomic.LoadUint64(&l.loc[i])) }

// Set publishes a sample's place. The old block may be freed only afterwards.
func (l *Locations) Set(i sample.Index, loc Loc) { atomic.StoreUint64(&l.loc[i], uint64(loc)) }

// Clear removes a sample's place, if it is still the one that the caller saw.
func (l *Locations) Clear(i sample.Index, saw Loc) bool {
	return saw != 0 && atomic.CompareAndSwapUint64(&l.loc[i], uint64(saw), 0)
}

// In reports whether a sample's place is in the Logfile of a half.
func (l *Locations) In(i sample.Index, half int) bool {
	loc := l.Get(i)
	return loc != 0 && int(loc>>63) == half
}

// A CM is a chunk's metadata (LCache §III-C).
type CM struct {
	CID     uint64         // step × ranks + rank's place among the ranks
	Offset  uint64         // of the chunk in the epoch's bytes, in CID order
	Size    uint64         // bytes of all its samples
	Cached  bool           // every sample is in a Logfile or empty
	Content []sample.Index // in the order in which they are delivered
}

// A List is the CMs of one epoch, in order of CID.
type List struct {
	chunks *chunker.Chunks
	ranks  []int
	steps  int
	offset []uint64 // by CID, one more at the end
	sizes  []uint32
	loc    *Locations
}

// NewList walks one epoch's chunks for the ranks attached here.
func NewList(c *chunker.Chunks, ranks []int, sizes []uint32, loc *Locations) (*List, error) {
	steps := 0
	for _, r := range ranks {
		steps = max(steps, c.Batches(r))
	}
	offset, err := offheap.Make[uint64](steps*len(ranks) + 1)
	if err != nil {
		return nil, err
	}
	l := &List{chunks: c, ranks: ranks, steps: steps, offset: offset, sizes: sizes, loc: loc}
	var buf []sample.Index
	for cid := 0; cid < steps*len(ranks); cid++ {
		offset[cid+1] = offset[cid]
		buf, _ = c.Chunk(ranks[cid%len(ranks)], cid/len(ranks), buf)
		for _, index := range buf {
			offset[cid+1] += uint64(sizes[index])
		}
		buf = buf[:0]
	}
	return l, nil
}

// Free gives the memory back.
func (l *List) Free() { offheap.Free(l.offset); l.offset = nil }

// Len is the number of chunks, over all ranks.
func (l *List) Len() int { return l.steps * len(l.ranks) }

// CM is the chunk with a CID. Content is appended to dst[:0].
func (l *List) CM(cid int, dst []sample.Index) CM {
	rank, batch := l.ranks[cid%len(l.ranks)], cid/len(l.ranks)
	content, _ := l.chunks.Chunk(rank, batch, dst)
	cm := CM{CID: uint64(cid), Offset: l.offset[cid], Size: l.offset[cid+1] - l.offset[cid], Cached: true, Content: content}
	for _, index := range content {
		if l.sizes[index] > 0 && l.loc.Get(index) == 0 {
			cm.Cached = false
			break
		}
	}
	return cm
}

// Bytes returns how many bytes the epoch delivers here.
func (l *List) Bytes() uint64 { return l.offset[l.Len()] }

// Largest returns the size of the largest chunk. A client must be allowed to hold at least that.
func (l *List) Largest() (largest uint64) {
	for cid := 0; cid < l.Len(); cid++ {
		largest = max(largest, l.offset[cid+1]-l.offset[cid])
	}
	return largest
}
