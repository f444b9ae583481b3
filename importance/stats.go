package importance

import (
	"fmt"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// Stats are the counters of one job's importance. They grow only.
type Stats struct {
	HighHits      uint64
	LowHits       uint64
	NodeHits      uint64 // of homophily's nodes themselves
	Substituted   uint64
	LogHits       uint64
	SourceMisses  uint64
	Observations  uint64
	Refused       Report
	MaxSubstitute int // most uses of one sample as a substitute in an epoch
}

// Requested is everything that was asked for.
func (s *Stats) Requested() uint64 {
	return s.HighHits + s.LowHits + s.NodeHits + s.Substituted + s.LogHits + s.SourceMisses
}

// Count adds a report.
func (s *Stats) Count(r Report) {
	s.Observations += uint64(r.Observed)
	s.Refused = s.Refused.Add(Report{Unknown: r.Unknown, NotFinite: r.NotFinite, Stale: r.Stale, Shape: r.Shape})
}

// Shape is what an order does to the samples of a dataset.
type Shape struct {
	Length   int
	Distinct float64 // share of all samples that are in it
	Unseen   float64 // share that are not
	MaxUses  int     // of one sample
}

// ShapeOf counts the samples of an order over a dataset of n.
func ShapeOf(order []sample.Index, n int) (Shape, error) {
	uses, err := offheap.Make[uint32](n)
	if err != nil {
		return Shape{}, err
	}
	defer offheap.Free(uses)
	s, distinct := Shape{Length: len(order)}, 0
	for _, i := range order {
		if int(i) >= n {
			return Shape{}, fmt.Errorf("an order has sample %d, and there are %d", i, n)
		}
		if uses[i]++; uses[i] == 1 {
			distinct++
		}
		s.MaxUses = max(s.MaxUses, int(uses[i]))
	}
	if n > 0 {
		s.Distinct = float64(distinct) / float64(n)
		s.Unseen = 1 - s.Distinct
	}
	return s, nil
}
