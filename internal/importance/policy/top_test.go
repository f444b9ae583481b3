package policy_test

import (
	"slices"
	"testing"

	"lcache/internal/importance/policy"
	"lcache/internal/testenv"
	"lcache/sample"
)

func TestTop(t *testing.T) {
	sizes := []int64{5, 1, 4, 2, 3}
	values := []float64{1, 9, 9, 0, 5}
	for capacity, want := range map[int64][]uint32{0: nil, 1: {1}, 4: {1}, 5: {1, 2}, 8: {1, 2, 4}, 13: {0, 1, 2, 4}, 100: {0, 1, 2, 3, 4}} {
		set := testenv.OK[*sample.Set](t)(policy.Top(values, capacity, func(i sample.Index) int64 { return sizes[i] }))
		var got []uint32
		for i := range set.All {
			got = append(got, i)
		}
		set.Close()
		if !slices.Equal(got, want) {
			t.Errorf("of %d bytes: %v, want %v", capacity, got, want)
		}
	}
}
