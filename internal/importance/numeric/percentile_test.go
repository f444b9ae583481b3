package numeric

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/internal/testenv"
	"lcache/sample"
)

// kindsOfValues are distributions for sorts and draws.
func kindsOfValues(n int, r *rand.Rand) map[string][]float64 {
	out := map[string][]float64{}
	add := func(name string, f func(i int) float64) {
		v := make([]float64, n)
		for i := range v {
			v[i] = f(i)
		}
		out[name] = v
	}
	add("log-normal", func(int) float64 { return math.Exp(0.8 * r.NormFloat64()) })
	add("zero", func(int) float64 { return 0 })
	add("few", func(int) float64 { return float64(r.IntN(5)) })
	add("one huge", func(i int) float64 { return []float64{r.Float64() * 1e-300, 1e300}[min(1, i%n/max(1, n-1))] })
	add("close together", func(int) float64 { return 1 + float64(r.IntN(1000))*0x1p-52 })
	add("ascending", func(i int) float64 { return float64(i) })
	return out
}

// descending returns all indices, in descending order of value.
func descending(values []float64) []sample.Index {
	by := make([]uint32, len(values))
	Greatest(values, by)
	return by
}

func TestAscending(t *testing.T) {
	testenv.WithoutRace(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 49, 1000, 3*someIndices + 7, 1 << 16} {
		for name, values := range kindsOfValues(n, r) {
			want := make([]uint32, n)
			for i := range want {
				want[i] = uint32(i)
			}
			sort.SliceStable(want, func(a, b int) bool { return values[want[a]] < values[want[b]] })
			got := Ascending(values)
			if !slices.Equal(got, want) {
				t.Errorf("%d values, %s: not in ascending order of (value, index)", n, name)
			}
			offheap.Free(got)
			sort.SliceStable(want, func(a, b int) bool { return want[a] < want[b] })
			sort.SliceStable(want, func(a, b int) bool { return values[want[a]] > values[want[b]] })
			if by := descending(values); !slices.Equal(by, want) {
				t.Errorf("%d values, %s: not in descending order, equal ones by index", n, name)
			}
		}
	}
}
