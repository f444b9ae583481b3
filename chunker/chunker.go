// Package chunker is the geometry of an epoch: the samples of each mini-batch, the order of all samples in the log (the epoch layout), and
// the cuts between segments.
//
// Chunks maps (rank, batch) to indices, with a global order and a Split. An EpochLayout is the layout of one epoch's Logfile: every sample that
// this node keeps, once, in delivery order, then the samples that the epoch does not use (drop_last). Size computes block, segment,
// slots, memory and disk space from the dataset and the limits (the formulas are in sizing.go). Admit chooses the fixed set of samples
// that a small budget keeps. Nothing here does I/O. Values do not change after they are built, and may be read concurrently.
package chunker

import (
	"fmt"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// A Split maps a batch of a rank to positions of a global order. Recipes have one, and so have orders that clients push.
type Split interface {
	Batches(rank int) int
	Positions(rank, batch int, dst []uint64) []uint64
}

// Chunks are all chunks of one epoch, in the order in which the ranks request them.
type Chunks struct {
	Global []sample.Index
	Split  Split
	Open   []uint64 // a bit for each position that is not laid out, because its sample may become known only when the epoch begins: the prefetcher loads it; nil: none
}

// Batches returns the number of chunks of a rank.
func (c *Chunks) Batches(rank int) int { return c.Split.Batches(rank) }

// Chunk appends the indices of one chunk to dst[:0]. ok is false after the end of the rank's epoch.
func (c *Chunks) Chunk(rank, batch int, dst []sample.Index) (chunk []sample.Index, ok bool) {
	if batch < 0 || batch >= c.Split.Batches(rank) {
		return nil, false
	}
	var buf [512]uint64
	dst = dst[:0]
	for _, p := range c.Split.Positions(rank, batch, buf[:0]) {
		dst = append(dst, c.Global[p])
	}
	return dst, true
}

// None is the segment of a sample that is not in the layout.
const None = ^uint32(0)

// An EpochLayout places every sample that a Logfile holds in one epoch. Order and Segment are outside the Go heap until Free.
type EpochLayout struct {
	Order   []sample.Index // the kept samples in delivery order, then the unused samples
	Used    int            // positions [0, Used) are delivered in this epoch; the others are in unused segments
	Starts  []uint64       // segment k is positions [Starts[k], Starts[k+1])
	Segment []uint32       // by index: its segment, or None
	Repeats bool           // samples occur more than once in this epoch: each is at the position of its first use
	Carried []Carried      // the last segments of the layout; nil: none
	Before  *EpochLayout   // with Carried: the layout that has those samples now. It may be freed
	Chosen  bool           // its samples were chosen for this epoch: lost ones that the epoch does not deliver are not read from the source again
	OfOrder bool           // it follows from the epoch's order alone, so a restart can rebuild it
}

// A Carried segment has exactly the samples of a segment of the previous layout, so they need not be moved.
type Carried struct{ From, To int }

// CarriedTo returns the segment that has the samples of segment k of the previous layout.
func (l *EpochLayout) CarriedTo(k int) (to int, ok bool) {
	for _, c := range l.Carried {
		if c.From == k {
			return c.To, true
		}
	}
	return -1, false
}

// Segments returns the number of segments.
func (l *EpochLayout) Segments() int { return len(l.Starts) - 1 }

// IsUnused reports whether segment k is unused: the epoch does not deliver its samples.
func (l *EpochLayout) IsUnused(k int) bool { return l.Starts[k] >= uint64(l.Used) }

// Delivers returns the segment from which a sample is delivered. ok is false if there is none.
func (l *EpochLayout) Delivers(index sample.Index) (segment int, ok bool) {
	k := l.Segment[index]
	if k == None || l.IsUnused(int(k)) {
		return -1, false
	}
	return int(k), true
}

// Members returns the samples of segment k, in layout order.
func (l *EpochLayout) Members(k int) []sample.Index { return l.Order[l.Starts[k]:l.Starts[k+1]] }

// Free frees the layout's memory. It must be the last call.
func (l *EpochLayout) Free() {
	offheap.Free(l.Order)
	offheap.Free(l.Segment)
	l.Order, l.Segment, l.Before = nil, nil, nil
}

// Cut has the parameters of a layout: samples are padded to Align bytes, and a segment holds at most Capacity bytes.
type Cut struct {
	Sizes    []uint32
	Align    int
	Capacity uint64
	Keep     func(sample.Index) bool // reports whether this node stores a sample: it is admitted and not empty
	Chosen   bool                    // Keep is for this epoch only
}

// Padded returns the bytes that a sample takes in a segment.
func Padded(size uint32, align int) uint64 {
	a := uint64(align)
	return (uint64(size) + a - 1) / a * a
}

// NewEpochLayout lays out one epoch for the local ranks. Every kept sample occurs once, at its first use. Kept samples that no local rank uses
// follow in unused segments: they stay in the log and are never loaded for delivery.
func NewEpochLayout(c *Chunks, ranks []int, cut Cut) (*EpochLayout, error) {
	layout, err := NewEpochLayoutWith(c, ranks, cut, Unused{})
	if err == nil {
		layout.OfOrder = true
	}
	return layout, err
}

// builder makes an EpochLayout.
type builder struct {
	cut    Cut
	unused Unused
	layout *EpochLayout
	kept   int    // number of samples
	fill   uint64 // bytes of the last segment
}

// begin makes an empty layout with memory for all kept samples.
func (y *builder) begin() error {
	segment, err := offheap.Make[uint32](len(y.cut.Sizes))
	if err != nil {
		return err
	}
	for i := range segment {
		segment[i] = None
		if y.cut.Keep(sample.Index(i)) {
			y.kept++
		}
	}
	order, err := offheap.Make[sample.Index](y.kept)
	if err != nil {
		offheap.Free(segment)
		return err
	}
	y.layout = &EpochLayout{Order: order[:0], Segment: segment, Starts: []uint64{0}, Chosen: y.cut.Chosen}
	return nil
}

// lacks reports whether a kept sample is neither laid out nor in a carried segment.
func (y *builder) lacks(index sample.Index) bool {
	return y.layout.Segment[index] == None && y.cut.Keep(index)
}

// put appends a sample. It begins a new segment if the last one has no room.
func (y *builder) put(index sample.Index) error {
	size := Padded(y.cut.Sizes[index], y.cut.Align)
	if size > y.cut.Capacity {
		return fmt.Errorf("sample %d of %d bytes does not fit a segment of %d bytes: give more --memory", index, y.cut.Sizes[index], y.cut.Capacity)
	}
	if y.fill+size > y.cut.Capacity {
		y.newSegment()
	}
	y.fill += size
	y.layout.Segment[index] = uint32(len(y.layout.Starts) - 1)
	y.layout.Order = append(y.layout.Order, index)
	return nil
}

func (y *builder) newSegment() {
	y.layout.Starts = append(y.layout.Starts, uint64(len(y.layout.Order)))
	y.fill = 0
}

// usedPositions marks the positions of the global order that local ranks use.
func usedPositions(c *Chunks, ranks []int) ([]uint64, error) {
	used, err := offheap.Make[uint64]((len(c.Global) + 63) / 64)
	if err != nil {
		return nil, err
	}
	var buf []uint64
	for _, r := range ranks {
		for b, n := 0, c.Split.Batches(r); b < n; b++ {
			buf = c.Split.Positions(r, b, buf[:0])
			for _, p := range buf {
				used[p/64] |= 1 << (p % 64)
			}
		}
	}
	for k := range min(len(used), len(c.Open)) {
		used[k] &^= c.Open[k]
	}
	return used, nil
}
