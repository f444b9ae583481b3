package policy

import (
	"math"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/numeric"
	"lcache/sample"
)

// topBits is the number of leading bits of a value (sign, exponent and some of the fraction) by which Top first counts bytes.
const topBits = 18

// Top returns the samples of greatest value whose sizes add up to at most capacity bytes: the H-list (ImPACT §III-C). Of equal values the smaller index
// comes first. The list ends at the first sample that does not fit.
//
// Top sorts only the samples that share their leading bits with that first sample.
func Top(values []float64, capacity int64, size func(sample.Index) int64) (*sample.Set, error) {
	set, err := sample.NewSet(len(values))
	if err != nil {
		return nil, err
	}
	bytes, err := offheap.Make[int64](1 << topBits)
	if err != nil {
		set.Close()
		return nil, err
	}
	defer offheap.Free(bytes)
	for i, v := range values {
		bytes[math.Float64bits(v)>>(64-topBits)] += size(sample.Index(i))
	}
	border := len(bytes) - 1
	for ; border >= 0 && bytes[border] <= capacity; border-- {
		capacity -= bytes[border]
	}
	shared := 0
	for i, v := range values {
		switch bucket := int(math.Float64bits(v) >> (64 - topBits)); {
		case bucket > border:
			set.Add(sample.Index(i))
		case bucket == border:
			shared++
		}
	}
	if shared == 0 {
		return set, nil
	}
	by, err := offheap.MakeDense[uint32](shared)
	if err != nil {
		set.Close()
		return nil, err
	}
	defer offheap.Free(by)
	by = by[:0]
	for i, v := range values {
		if int(math.Float64bits(v)>>(64-topBits)) == border {
			by = append(by, uint32(i))
		}
	}
	numeric.GreatestOf(values, by)
	for _, i := range by {
		if capacity -= size(i); capacity < 0 {
			break
		}
		set.Add(i)
	}
	return set, nil
}
