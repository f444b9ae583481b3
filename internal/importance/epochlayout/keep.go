package epochlayout

import (
	"math"

	"lcache/chunker"
	"lcache/internal/disk/offheap"
	"lcache/internal/importance/policy"
	"lcache/sample"
)

// room limits the chosen samples to the budget: total bytes, number, and largest size.
type room struct {
	bytes   int64
	samples int
	largest uint64
}

// roomForChosen returns the room for chosen samples. It returns false if the budget admits all samples. It also
// returns false for compressed samples, because their sizes in the log are not known ahead.
func (l *Log) roomForChosen() (r room, is bool) {
	if l.Compressed {
		return r, false
	}
	for i, size := range l.Sizes {
		switch {
		case l.Admits(sample.Index(i)):
			p := chunker.Padded(size, l.Align)
			r.bytes, r.samples, r.largest = r.bytes+int64(p), r.samples+1, max(r.largest, p)
		case size > 0:
			is = true
		}
	}
	return r, is
}

// keeps returns the samples that the log of an epoch keeps, or nil for the samples that the budget admits. The caller
// closes the set.
//
// If the budget is smaller than the dataset, a log usually keeps the samples that the budget admits by hash. A drawn
// epoch is known better: how often it delivers each sample, and how often each is expected later. So its log keeps
// the most-used samples, from the old log or from the source (policy.Keeping). The scan frees space by leaving out
// samples that the next log does not keep. Then samples from the source are written there
// (docs/adr/0029-drawn-lines.md).
func (l *Log) keeps(e *Epoch) (*sample.Set, error) {
	r, is := l.roomForChosen()
	if !is {
		return nil, nil
	}
	uses, err := offheap.Make[uint8](len(l.Sizes))
	if err != nil {
		return nil, err
	}
	defer offheap.Free(uses)
	comes, err := sample.NewSet(len(l.Sizes))
	if err != nil {
		return nil, err
	}
	defer comes.Close()
	for _, index := range e.Order {
		if int(index) < len(uses) && uses[index] < math.MaxUint8 { // otherwise an open position
			uses[index]++
		}
	}
	for _, index := range e.Earlier() {
		if int(index) < len(uses) && !e.Held(index) {
			comes.Add(index)
		}
	}
	return policy.Keeping{MostUsed: e.MostUsed, Uses: uses, Room: r.bytes, Most: r.samples, Arrives: comes.Has, High: e.High.Has, InLog: l.Has,
		Size: func(i sample.Index) int64 {
			if p := chunker.Padded(l.Sizes[i], l.Align); p <= r.largest {
				return int64(p)
			}
			return 0
		}}.Choose()
}
