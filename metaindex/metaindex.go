// Package metaindex lists an epoch's chunks and locates each sample: the two levels of LCache's MetaIndex (§III-C).
//
// The upper level is about single samples: Locations holds, in one atomic word each, the Logfile, segment and offset of every sample. The
// lower level is the list of an epoch's chunks in order, as CMs {CID, Offset, Size, Cached, Content}. The paper links CMs in a list and
// hashes file names. Here both levels are arrays outside the Go heap, indexed by chunk and by sample, so 14 million samples take a few
// hundred MB instead of 10 GB. Names are looked up in the manifest.
//
// Locations may be read and written concurrently. A List is immutable.
package metaindex

import (
	"sync/atomic"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// A Loc is the location of a sample: the log (2 bits: the two Logfiles, and packages), segment (20 bits), and offset in the segment's byte
// string / align (42 bits, plus one so that the zero Loc is nowhere). It is final when a sample is appended: blocks move, the string does not.
type Loc uint64

const (
	offsetBits  = 42
	segmentBits = 20
	offsetMask  = 1<<offsetBits - 1
	numShift    = offsetBits + segmentBits

	// MaxSegments is the maximum number of segments of a Logfile, and of packages.
	MaxSegments = 1 << segmentBits
)

// Locations are the locations of all samples of a dataset.
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

// Free frees the memory.
func (l *Locations) Free() { offheap.Free(l.loc); l.loc = nil }

// Bytes is the size of the table.
func (l *Locations) Bytes() int64 { return int64(len(l.loc)) * 8 }

// At makes the Loc of an offset in a segment of Logfile A (0) or B (1), or in a package (2).
func (l *Locations) At(num, segment int, off uint64) Loc {
	return Loc(uint64(num)<<numShift | uint64(segment)<<offsetBits | (off/l.align + 1))
}

// Split is the inverse of At. ok is false for nowhere.
func (l *Locations) Split(loc Loc) (num, segment int, off uint64, ok bool) {
	if loc == 0 {
		return 0, 0, 0, false
	}
	return int(loc >> numShift), int(loc >> offsetBits & (MaxSegments - 1)), (uint64(loc)&offsetMask - 1) * l.align, true
}

// Get returns the location of a sample.
func (l *Locations) Get(i sample.Index) Loc { return Loc(atomic.LoadUint64(&l.loc[i])) }

// Set publishes a sample's location. The old block may be freed only after that.
func (l *Locations) Set(i sample.Index, loc Loc) { atomic.StoreUint64(&l.loc[i], uint64(loc)) }

// Clear removes a sample's location, if it is still the one that the caller saw.
func (l *Locations) Clear(i sample.Index, saw Loc) bool {
	return saw != 0 && atomic.CompareAndSwapUint64(&l.loc[i], uint64(saw), 0)
}

// Move replaces a sample's location, if it is still the one that the caller saw. 0 is the location of a sample that is not in the log.
func (l *Locations) Move(i sample.Index, saw, to Loc) bool {
	return atomic.CompareAndSwapUint64(&l.loc[i], uint64(saw), uint64(to))
}

// In reports whether a sample is in Logfile A (0) or B (1), or in a package (2).
func (l *Locations) In(i sample.Index, num int) bool {
	loc := l.Get(i)
	return loc != 0 && int(loc>>numShift) == num
}

// A CM is a chunk's metadata (LCache §III-C).
type CM struct {
	CID     uint64         // the chunk's number in its rank's epoch
	Offset  uint64         // of the chunk in the bytes that the rank gets in the epoch
	Size    uint64         // bytes of all its samples
	Cached  bool           // every sample is in a Logfile or empty
	Content []sample.Index // in the order in which they are delivered
}

// Chunks returns the samples of a rank's chunk. ok is false after the last one.
type Chunks func(batch int) (content []sample.Index, ok bool)

// A List is the CMs of one rank's epoch, in order. It does not keep the order itself: its methods get the Chunks that it was made from.
type List struct {
	batches int
	stride  int      // chunks between entries of offset
	offset  []uint64 // of each stride-th chunk
	bytes   uint64
	largest uint64
	sizes   []uint32
	loc     *Locations
}

// mostOffsets bounds the offsets that a List keeps. The others are computed from the one before.
const mostOffsets = 1 << 16

// NewList visits a rank's chunks once. sizes is by index. With loc nil no chunk counts as cached.
func NewList(batches int, chunks Chunks, sizes []uint32, loc *Locations) *List {
	l := &List{batches: batches, stride: 1 + batches/mostOffsets, sizes: sizes, loc: loc}
	l.offset = make([]uint64, 0, batches/l.stride+1)
	for batch := range batches {
		if batch%l.stride == 0 {
			l.offset = append(l.offset, l.bytes)
		}
		size := l.size(chunks, batch)
		l.bytes += size
		l.largest = max(l.largest, size)
	}
	return l
}

func (l *List) size(chunks Chunks, batch int) (n uint64) {
	content, _ := chunks(batch)
	for _, index := range content {
		n += uint64(l.sizes[index])
	}
	return n
}

// Len returns the number of chunks.
func (l *List) Len() int { return l.batches }

// CM returns the metadata of a chunk. Cached is the current state.
func (l *List) CM(chunks Chunks, cid int) CM {
	content, _ := chunks(cid)
	cm := CM{CID: uint64(cid), Offset: l.Offset(chunks, cid), Cached: l.loc != nil, Content: content}
	for _, index := range content {
		cm.Size += uint64(l.sizes[index])
		cm.Cached = cm.Cached && (l.sizes[index] == 0 || l.loc.Get(index) != 0)
	}
	return cm
}

// Offset returns the bytes of all chunks before a chunk.
func (l *List) Offset(chunks Chunks, cid int) uint64 {
	if cid >= l.batches {
		return l.bytes
	}
	off := l.offset[cid/l.stride]
	for batch := cid / l.stride * l.stride; batch < cid; batch++ {
		off += l.size(chunks, batch)
	}
	return off
}

// Bytes returns the bytes that the rank gets in the epoch.
func (l *List) Bytes() uint64 { return l.bytes }

// Largest returns the size of the largest chunk. A client must be allowed to hold at least that.
func (l *List) Largest() uint64 { return l.largest }
