package policy_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/policy"
	"lcache/sample"
)

// TestMostUsed: all samples once, most used first, to 1/4096 of the most uses. Equal ones are in order of index. NaN
// comes last.
func TestMostUsed(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	for _, n := range []int{0, 1, 5, 3000} {
		uses := make([]float32, n)
		for i := range uses {
			uses[i] = []float32{0, 1, float32(r.Float64()), float32(r.ExpFloat64())}[r.IntN(4)]
		}
		by, err := policy.MostUsed(uses)
		if err != nil {
			t.Fatal(err)
		}
		most := float32(0)
		if n > 0 {
			most = slices.Max(uses)
		}
		seen := map[sample.Index]bool{}
		for k, i := range by {
			seen[i] = true
			if k == 0 {
				continue
			}
			if before := by[k-1]; uses[before] < uses[i]-most/4000 || uses[before] == uses[i] && before > i {
				t.Fatalf("%d of %v comes before %d of %v", before, uses[before], i, uses[i])
			}
		}
		if len(seen) != n || len(by) != n {
			t.Errorf("%d indices, %d distinct, of %d", len(by), len(seen), n)
		}
		offheap.Free(by)
	}
	by, err := policy.MostUsed([]float32{float32(math.NaN()), 0, 2})
	if err != nil || cmp.Compare(by[0], 2) != 0 {
		t.Errorf("%v %v", by, err)
	}
	offheap.Free(by)
}
