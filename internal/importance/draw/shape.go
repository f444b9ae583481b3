package draw

import (
	"fmt"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// Shape describes which samples of a dataset an order uses.
type Shape struct {
	Length   int
	Distinct float64 // share of all samples that the order uses
	Unseen   float64 // share of all samples that it does not use
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
			return Shape{}, fmt.Errorf("an order has index %d in a dataset of %d samples", i, n)
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
