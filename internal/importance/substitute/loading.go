package substitute

import (
	"lcache/internal/importance/numeric"
	"lcache/internal/importance/policy"
	"lcache/sample"
)

// Loading is the L-cache of an epoch that is planned ahead. It loads units, of which each lies together on the disk, in a random order: the next one when the samples
// that are loaded and not yet served take as much as all units but one may. So nothing that was loaded leaves unserved while an order goes on.
type Loading struct {
	*LCache
	units [][]sample.Index // in the order of loading
	size  func(sample.Index) int64
	next  int   // of units
	few   int64 // bytes at which the next unit is loaded

	loads int
	most  int64
}

// LoadingOptions say how units are loaded.
type LoadingOptions struct {
	Samples int // of the dataset
	Size    func(sample.Index) int64
	High    func(sample.Index) bool // H-samples, which are never loaded; nil: there are none
	Depth   int                     // units in memory
	Seed    uint64
	Epoch   int
	First   bool // take units, and substitutes, in the order in which they are given, for golden cases
}

// NewLoading returns the L-cache of an epoch. units are the samples that lie together, each sample once; they are reordered.
func NewLoading(units [][]sample.Index, o LoadingOptions) (*Loading, error) {
	l := &Loading{units: units, size: o.Size}
	largest := int64(0)
	for k, members := range units {
		low, bytes := members[:0], int64(0)
		for _, id := range members {
			if o.High == nil || !o.High(id) {
				low, bytes = append(low, id), bytes+o.Size(id)
			}
		}
		units[k], largest = low, max(largest, bytes)
	}
	depth := int64(max(o.Depth, 1))
	var err error
	if l.LCache, err = NewLCache(o.Samples, depth*largest); err != nil {
		return nil, err
	}
	l.few = (depth - 1) * largest
	if !o.First {
		turns := numeric.NewStream(o.Seed, uint64(o.Epoch), numeric.ForUnits)
		for i := len(units) - 1; i >= 1; i-- {
			j := turns.Below(uint64(i) + 1)
			units[i], units[j] = units[j], units[i]
		}
		picks := numeric.NewStream(o.Seed, uint64(o.Epoch), numeric.ForPick)
		l.pick = func(n int) int { return int(picks.Below(uint64(n))) }
	}
	return l, nil
}

// Get loads units as far as there is room, and serves by what is loaded.
func (l *Loading) Get(id sample.Index, may policy.May) (sample.Index, policy.Kind) {
	for l.next < len(l.units) && l.used <= l.few {
		before := l.used
		l.Load(l.units[l.next], l.size)
		l.next++
		if l.used > before { // else all of it was served before
			l.loads++
		}
		l.most = max(l.most, l.used)
	}
	return l.LCache.Get(id, may)
}

// Loads is how many units were loaded.
func (l *Loading) Loads() int { return l.loads }

// Most is how many bytes were loaded at once, at most.
func (l *Loading) Most() int64 { return l.most }
