package policy

import (
	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// usesBuckets is the number of classes into which MostUsed sorts.
const usesBuckets = 1 << 12

// MostUsed returns all indices in descending order of expected uses, rounded to 1/4096 of the maximum. Equal ones are
// in ascending order of index. The caller frees them with offheap.Free.
func MostUsed(uses []float32) ([]sample.Index, error) {
	greatest := float32(0)
	for _, u := range uses {
		if u > greatest { // false for NaN
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
