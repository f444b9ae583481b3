package chunker

import (
	"slices"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// carried is the segment of a sample that is to be carried, while the line is laid out.
const carried = None - 1

// A Rest says what a line does with samples that an epoch does not deliver from it. The zero Rest lays out all that are delivered, and then the others by index.
type Rest struct {
	Apart  func(sample.Index) bool    // reports whether a sample that is delivered is brought by itself, and so belongs to the rest; nil: none
	Order  []sample.Index             // of the rest. Samples of the rest that it lacks follow by index
	Before *Line                      // the line that the samples lie in now, for Carry
	Carry  []int                      // segments of Before that stay as they are
	Lies   func(k int) []sample.Index // the samples of segment k of Before
}

// NewLineAfter lays out one epoch as NewLine does, with another rest.
func NewLineAfter(c *Chunks, ranks []int, cut Cut, rest Rest) (*Line, error) {
	used, err := usedPositions(c, ranks)
	if err != nil {
		return nil, err
	}
	defer offheap.Free(used)
	y := layout{cut: cut, rest: rest}
	if err := y.begin(); err != nil {
		return nil, err
	}
	if err := y.putAll(c, used); err != nil {
		y.line.Free()
		return nil, err
	}
	return y.line, nil
}

// putAll lays out the used positions of the global order, then the rest of the kept samples, and last what is carried.
func (y *layout) putAll(c *Chunks, used []uint64) error {
	l := y.line
	carry := 0
	for _, k := range y.rest.Carry {
		for _, index := range y.rest.Lies(k) {
			l.Segment[index] = carried
			carry++
		}
	}
	for p, index := range c.Global {
		switch {
		case used[p/64]&(1<<(p%64)) == 0 || l.Segment[index] == carried:
		case y.lacks(index):
			if y.rest.Apart != nil && y.rest.Apart(index) {
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
	for _, index := range y.rest.Order {
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

// putCarried appends the segments that are carried.
func (y *layout) putCarried() {
	l := y.line
	if len(y.rest.Carry) > 0 {
		l.Before = y.rest.Before
	}
	for _, k := range y.rest.Carry {
		if l.Starts[len(l.Starts)-1] < uint64(len(l.Order)) {
			y.newSegment()
		}
		to := len(l.Starts) - 1
		l.Carried = append(l.Carried, Carried{k, to})
		l.Order = append(l.Order, y.rest.Lies(k)...)
		for _, index := range y.rest.Lies(k) {
			l.Segment[index] = uint32(to)
		}
	}
	l.Carried = slices.Clip(l.Carried)
}
