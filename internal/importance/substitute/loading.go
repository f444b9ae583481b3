package substitute

import (
	"lcache/internal/importance/numeric"
	"lcache/internal/importance/policy"
	"lcache/sample"
)

// Loading is the L-cache of an epoch that is planned ahead. It loads units in a random order; the samples of a unit
// are stored together on the disk. It loads the next unit when the loaded, unserved samples take no more room than
// all units but one may take. So no loaded sample is evicted unserved before the end of the order.
type Loading struct {
	*LCache
	units [][]sample.Index // in the order of loading
	size  func(sample.Index) int64
	next  int   // the next unit
	few   int64 // the next unit is loaded when the loaded samples have at most this many bytes

	loads int
	most  int64
}

// LoadingOptions configure how units are loaded.
type LoadingOptions struct {
	Samples int // number of samples in the dataset
	Size    func(sample.Index) int64
	High    func(sample.Index) bool // reports H-samples, which are never loaded; nil: there are none
	Depth   int                     // number of units in memory
	Seed    uint64
	Epoch   int
	First   bool // use units and substitutes in the given order, for golden cases
}

// NewLoading returns the L-cache of an epoch. units are the samples that are stored together, each sample once. NewLoading reorders them.
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

// Get loads units as long as there is room, and then serves from the loaded samples.
func (l *Loading) Get(id sample.Index, may policy.May) (sample.Index, policy.Kind) {
	for l.next < len(l.units) && l.used <= l.few {
		before := l.used
		l.Load(l.units[l.next], l.size)
		l.next++
		if l.used > before { // otherwise all of its samples were already served
			l.loads++
		}
		l.most = max(l.most, l.used)
	}
	return l.LCache.Get(id, may)
}

// Loads returns the number of units loaded.
func (l *Loading) Loads() int { return l.loads }

// Most returns the maximum number of bytes loaded at once.
func (l *Loading) Most() int64 { return l.most }
