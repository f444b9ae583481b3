package policy

import (
	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// usesBuckets is into how many classes MostUsed sorts.
const usesBuckets = 1 << 12

// MostUsed returns all indices by expected uses, most first, to a four-thousandth of the greatest number of uses; within that in ascending order. The caller frees them by offheap.Free.
func MostUsed(uses []float32) ([]sample.Index, error) {
	greatest := float32(0)
	for _, u := range uses {
		if u > greatest { // not NaN
			greatest = u
		}
	}
	class := func(u float32) int {
		if !(u > 0) {
			return usesBuckets - 1
		}
		return usesBuckets - 1 - int(u/greatest*(usesBuckets-1))
	}
	var ends [usesBuckets + 1]int
	for _, u := range uses {
		ends[class(u)+1]++
	}
	for k := range usesBuckets {
		ends[k+1] += ends[k]
	}
	by, err := offheap.MakeDense[sample.Index](len(uses))
	if err != nil {
		return nil, err
	}
	for i, u := range uses {
		k := class(u)
		by[ends[k]] = sample.Index(i)
		ends[k]++
	}
	return by, nil
}
