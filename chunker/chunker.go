// Package chunker is the geometry of an epoch: which samples a mini-batch asks for, in which order all samples lie in the log,
// and where that line is cut into segments.
//
// Chunks answers (rank, batch) → indices, from a global order and the split that deals it out. A Line is the layout of one
// epoch's Logfile: every sample that this node keeps, once, in delivery order, then those that the epoch does not use
// (drop_last). Size computes block, segment, slots, memory and space from the dataset and the limits (the formulas are in
// sizing.go), and Admit draws the fixed set that a small budget keeps. Nothing here does I/O; values are immutable once built
// and may be read concurrently.
package chunker

import (
	"fmt"

	"lcache/offheap"
	"lcache/sample"
)

// A Split says which positions of a global order a batch of a rank is made of. The replayed recipes have one, and orders that
// clients push have another.
type Split interface {
	Batches(rank int) int
	Positions(rank, batch int, dst []uint64) []uint64
}

// Chunks are all chunks of one epoch: what the ranks ask for, in order.
type Chunks struct {
	Global []sample.Index
	Split  Split
}

// Batches is how many chunks a rank gets.
func (c *Chunks) Batches(rank int) int { return c.Split.Batches(rank) }

// Chunk appends the indices of one chunk to dst[:0]; ok is false past the end of the rank's epoch.
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

// None is the segment of a sample that a line does not hold.
const None = ^uint32(0)

// A Line is the layout of one epoch. Order and Segment lie outside the Go heap until Free.
type Line struct {
	Order   []sample.Index // the kept samples in delivery order, then the rest
	Used    int            // positions [0, Used) are delivered in this epoch, the others belong to rest segments
	Starts  []uint64       // segment k is positions [Starts[k], Starts[k+1])
	Segment []uint32       // by index: its segment, or None
}

// Segments is K.
func (l *Line) Segments() int { return len(l.Starts) - 1 }

// Members are the samples of segment k, in line order.
func (l *Line) Members(k int) []sample.Index { return l.Order[l.Starts[k]:l.Starts[k+1]] }

// Free gives the memory back; the line must not be used any more.
func (l *Line) Free() {
	offheap.Free(l.Order)
	offheap.Free(l.Segment)
	l.Order, l.Segment = nil, nil
}

// Cut says how a line is cut: samples are padded to Align bytes, a segment holds at most Capacity bytes.
type Cut struct {
	Sizes    []uint32
	Align    int
	Capacity uint64
	Keep     func(sample.Index) bool // what this node stores: admitted, and not empty
}

// Padded is the space that a sample takes in a segment.
func Padded(size uint32, align int) uint64 {
	a := uint64(align)
	return (uint64(size) + a - 1) / a * a
}

// NewLine lays out one epoch for the ranks attached here. Every kept sample appears once, at its first use; the ones that no
// local rank uses follow, in segments of their own, so that they stay kept and are never loaded for delivery.
func NewLine(c *Chunks, ranks []int, cut Cut) (*Line, error) {
	used, err := usedPositions(c, ranks)
	if err != nil {
		return nil, err
	}
	defer offheap.Free(used)
	n := len(cut.Sizes)
	segment, err := offheap.Make[uint32](n)
	if err != nil {
		return nil, err
	}
	kept := 0
	for i := range segment {
		segment[i] = None
		if cut.Keep(sample.Index(i)) {
			kept++
		}
	}
	order, err := offheap.Make[sample.Index](kept)
	if err != nil {
		offheap.Free(segment)
		return nil, err
	}
	l := &Line{Order: order[:0], Segment: segment, Starts: []uint64{0}}
	var fill uint64
	put := func(index sample.Index) error {
		size := Padded(cut.Sizes[index], cut.Align)
		if size > cut.Capacity {
			return fmt.Errorf("sample %d of %d bytes does not fit a segment of %d bytes: give more --memory", index, cut.Sizes[index], cut.Capacity)
		}
		if fill+size > cut.Capacity {
			l.Starts = append(l.Starts, uint64(len(l.Order)))
			fill = 0
		}
		fill += size
		segment[index] = uint32(len(l.Starts) - 1)
		l.Order = append(l.Order, index)
		return nil
	}
	for p, index := range c.Global {
		if used[p/64]&(1<<(p%64)) != 0 && segment[index] == None && cut.Keep(index) {
			if err := put(index); err != nil {
				l.Free()
				return nil, err
			}
		}
	}
	l.Used = len(l.Order)
	if l.Used < kept && l.Used > 0 {
		l.Starts = append(l.Starts, uint64(l.Used))
		fill = 0
	}
	for i := 0; i < n && len(l.Order) < kept; i++ {
		if index := sample.Index(i); segment[i] == None && cut.Keep(index) {
			if err := put(index); err != nil {
				l.Free()
				return nil, err
			}
		}
	}
	l.Starts = append(l.Starts, uint64(len(l.Order)))
	return l, nil
}

// usedPositions marks the positions of the global order that some local rank delivers.
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
	return used, nil
}
