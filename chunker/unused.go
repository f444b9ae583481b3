package chunker

import (
	"slices"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// carried is the value of Segment for a sample of a carried segment, while the layout is built.
const carried = None - 1

// An Unused defines the unused segments of a layout. With the zero Unused the layout has all delivered samples, then the others by index.
type Unused struct {
	Apart   func(sample.Index) bool    // reports whether a delivered sample is loaded by the prefetcher instead, and so is in an unused segment; nil: none
	Order   []sample.Index             // of the unused samples. Unused samples that are not in it follow by index
	Before  *EpochLayout               // the layout that has the samples now, for Carry
	Carry   []int                      // segments of Before that stay as they are
	Members func(k int) []sample.Index // returns the samples in segment k of Before
}

// NewEpochLayoutWith lays out one epoch as NewEpochLayout does, with other unused segments.
func NewEpochLayoutWith(c *Chunks, ranks []int, cut Cut, unused Unused) (*EpochLayout, error) {
	used, err := usedPositions(c, ranks)
	if err != nil {
		return nil, err
	}
	defer offheap.Free(used)
	y := builder{cut: cut, unused: unused}
	if err := y.begin(); err != nil {
		return nil, err
	}
	if err := y.putAll(c, used); err != nil {
		y.layout.Free()
		return nil, err
	}
	return y.layout, nil
}

// putAll lays out the used positions of the global order, then the unused samples, and at last the carried segments.
func (y *builder) putAll(c *Chunks, used []uint64) error {
	l := y.layout
	carry := 0
	for _, k := range y.unused.Carry {
		for _, index := range y.unused.Members(k) {
			l.Segment[index] = carried
			carry++
		}
	}
	for p, index := range c.Global {
		switch {
		case used[p/64]&(1<<(p%64)) == 0 || l.Segment[index] == carried:
		case y.lacks(index):
			if y.unused.Apart != nil && y.unused.Apart(index) {
				continue
			}
			if err := y.put(index); err != nil {
				return err
			}
		case y.cut.Keep(index):
			l.Repeats = true
		}
	}
	if l.Used = len(l.Order); l.Used < y.kept-carry && l.Used > 0 {
		y.newSegment()
	}
	for _, index := range y.unused.Order {
		if y.lacks(index) {
			if err := y.put(index); err != nil {
				return err
			}
		}
	}
	for i := 0; i < len(y.cut.Sizes) && len(l.Order) < y.kept-carry; i++ {
		if y.lacks(sample.Index(i)) {
			if err := y.put(sample.Index(i)); err != nil {
				return err
			}
		}
	}
	y.putCarried()
	l.Starts = append(l.Starts, uint64(len(l.Order)))
	return nil
}

// putCarried appends the carried segments.
func (y *builder) putCarried() {
	l := y.layout
	if len(y.unused.Carry) > 0 {
		l.Before = y.unused.Before
	}
	for _, k := range y.unused.Carry {
		if l.Starts[len(l.Starts)-1] < uint64(len(l.Order)) {
			y.newSegment()
		}
		to := len(l.Starts) - 1
		l.Carried = append(l.Carried, Carried{k, to})
		l.Order = append(l.Order, y.unused.Members(k)...)
		for _, index := range y.unused.Members(k) {
			l.Segment[index] = uint32(to)
		}
	}
	l.Carried = slices.Clip(l.Carried)
}
