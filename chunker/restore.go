package chunker

import (
	"slices"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// RestoreEpochLayout rebuilds an epoch layout whose unused segments did not follow from its order alone. starts, kept and unused are from the
// EpochLayout that NewEpochLayoutWith made of the same order. n is the number of samples in the dataset. It returns nil if the arguments do not match.
func RestoreEpochLayout(c *Chunks, ranks []int, n int, starts []uint64, kept func(sample.Index) bool, unused []sample.Index) (*EpochLayout, error) {
	if len(starts) < 2 || starts[0] != 0 || !slices.IsSorted(starts) || starts[len(starts)-1] < uint64(len(unused)) || starts[len(starts)-1] > uint64(n) {
		return nil, nil
	}
	used, err := usedPositions(c, ranks)
	if err != nil {
		return nil, err
	}
	defer offheap.Free(used)
	l := &EpochLayout{Used: int(starts[len(starts)-1]) - len(unused), Starts: slices.Clone(starts)}
	if l.Segment, err = offheap.Make[uint32](n); err != nil {
		return nil, err
	}
	for i := range l.Segment {
		l.Segment[i] = None
	}
	if l.Order, err = offheap.Make[sample.Index](l.Used + len(unused)); err != nil {
		l.Free()
		return nil, err
	}
	if !l.putUnused(kept, unused) || !l.putUsed(c, used, kept) {
		l.Free()
		return nil, nil
	}
	return l, nil
}

// putUnused places the unused samples in their old segments, and reports whether that is possible.
func (l *EpochLayout) putUnused(kept func(sample.Index) bool, unused []sample.Index) bool {
	k := 0
	for j, index := range unused {
		at := uint64(l.Used + j)
		for l.Starts[k+1] <= at {
			k++
		}
		if int(index) >= len(l.Segment) || !kept(index) || l.Segment[index] != None || !l.IsUnused(k) {
			return false
		}
		l.Segment[index], l.Order[at] = uint32(k), index
	}
	return true
}

// putUsed lays out the samples that the epoch delivers from the log, and reports whether their number is as before. The unused samples are in place already.
func (l *EpochLayout) putUsed(c *Chunks, used []uint64, kept func(sample.Index) bool) bool {
	k, at := 0, 0
	for p, index := range c.Global {
		if used[p/64]&(1<<(p%64)) == 0 || int(index) >= len(l.Segment) || !kept(index) {
			continue
		}
		if has := l.Segment[index]; has != None {
			l.Repeats = l.Repeats || !l.IsUnused(int(has))
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
