package chunker

import (
	"slices"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// NewLineOf lays out one epoch again whose rest did not follow from its order: starts, kept and rest are those of the line that NewLineAfter made of the same order. It returns nil if they can't be. n is how
// many samples the dataset has.
func NewLineOf(c *Chunks, ranks []int, n int, starts []uint64, kept func(sample.Index) bool, rest []sample.Index) (*Line, error) {
	if len(starts) < 2 || starts[0] != 0 || !slices.IsSorted(starts) || starts[len(starts)-1] < uint64(len(rest)) || starts[len(starts)-1] > uint64(n) {
		return nil, nil
	}
	used, err := usedPositions(c, ranks)
	if err != nil {
		return nil, err
	}
	defer offheap.Free(used)
	l := &Line{Used: int(starts[len(starts)-1]) - len(rest), Starts: slices.Clone(starts)}
	if l.Segment, err = offheap.Make[uint32](n); err != nil {
		return nil, err
	}
	for i := range l.Segment {
		l.Segment[i] = None
	}
	if l.Order, err = offheap.Make[sample.Index](l.Used + len(rest)); err != nil {
		l.Free()
		return nil, err
	}
	if !l.putRest(kept, rest) || !l.putUsed(c, used, kept) {
		l.Free()
		return nil, nil
	}
	return l, nil
}

// putRest puts the rest where it was, and reports whether it can have been there.
func (l *Line) putRest(kept func(sample.Index) bool, rest []sample.Index) bool {
	k := 0
	for j, index := range rest {
		at := uint64(l.Used + j)
		for l.Starts[k+1] <= at {
			k++
		}
		if int(index) >= len(l.Segment) || !kept(index) || l.Segment[index] != None || !l.IsRest(k) {
			return false
		}
		l.Segment[index], l.Order[at] = uint32(k), index
	}
	return true
}

// putUsed puts what the epoch delivers from the line, and reports whether that is as much as it was. The rest is there already.
func (l *Line) putUsed(c *Chunks, used []uint64, kept func(sample.Index) bool) bool {
	k, at := 0, 0
	for p, index := range c.Global {
		if used[p/64]&(1<<(p%64)) == 0 || int(index) >= len(l.Segment) || !kept(index) {
			continue
		}
		if has := l.Segment[index]; has != None {
			l.Repeats = l.Repeats || !l.IsRest(int(has))
			continue
		}
		if at == l.Used {
			return false
		}
		for l.Starts[k+1] <= uint64(at) {
			k++
		}
		l.Segment[index], l.Order[at] = uint32(k), index
		at++
	}
	return at == l.Used
}
