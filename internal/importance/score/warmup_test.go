package score_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/importancetest"
	"lcache/internal/importance/losses"
	"lcache/internal/importance/score"
	"lcache/internal/testenv"
	"lcache/sample"
)

// BenchmarkWarmUp measures the end of an epoch during ImPACT's warm-up.
func BenchmarkWarmUp(b *testing.B) {
	w, err := score.NewWarmUp(importancetest.ImageNet, score.LossOptions{Unstable: importancetest.ImageNet / 20, Overlap: 2, MaxEpochs: math.MaxInt})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	r := rand.New(rand.NewPCG(1, 2))
	values, err := offheap.Make[float64](importancetest.ImageNet)
	if err != nil {
		b.Fatal(err)
	}
	defer offheap.Free(values)
	for i := range values {
		values[i] = float64(float32(math.Exp(0.8 * r.NormFloat64())))
	}
	w.EndEpoch(values)
	cpu := importancetest.CPUTime(b)
	for b.Loop() {
		w.EndEpoch(values)
	}
	b.ReportMetric((importancetest.CPUTime(b)-cpu).Seconds()/float64(b.N), "cpu-s/op")
}

// TestWarmUp: the warm-up ends by its rule, S has the unstable samples, and epochs without observations do not count.
func TestWarmUp(t *testing.T) {
	const n, seeds = 2000, 3
	for seed := range uint64(seeds) {
		g := losses.New(n, seed+1)
		s := testenv.OK[*score.Loss](t)(score.NewLoss(n, score.LossOptions{Unstable: n / 20, Overlap: 0.8, MaxEpochs: 10}))
		observed, e := 0, 0
		for ; s.Activity().State != score.Active && e < 30; e++ {
			if e != 2 { // one epoch without observations
				index := make([]sample.Index, n)
				for i := range index {
					index[i] = uint32(i)
				}
				s.Observe(score.Observation{Kind: score.Losses, Epoch: uint32(e), Index: index, Loss: g.Epoch(e)})
				observed++
			}
			s.EndEpoch(score.Progress{Epoch: e})
		}
		unstable := 0
		for _, i := range s.Unstable() {
			if g.Far(int(i)) {
				unstable++
			}
		}
		if len(s.Unstable()) != n/20 || !slices.IsSorted(s.Unstable()) || unstable < n/20*95/100 {
			t.Errorf("seed %d: S has %d samples, and %d of them wander", seed, len(s.Unstable()), unstable)
		}
		if s.WarmUpEpochs() != observed || observed < 4 || observed > 10 {
			t.Errorf("seed %d: the warm-up took %d epochs, %d were observed", seed, s.WarmUpEpochs(), observed)
		}
		s.Close()
	}
	for _, fixed := range []int{1, 3} {
		s := testenv.OK[*score.Loss](t)(score.NewLoss(10, score.LossOptions{Unstable: 2, Overlap: 0.8, MaxEpochs: 10, Fixed: fixed}))
		for e := range fixed {
			if s.Activity().State != score.Warmup {
				t.Errorf("a warm-up of %d epochs has ended after %d", fixed, e)
			}
			importancetest.Observe(s, 10, e)
			s.EndEpoch(score.Progress{Epoch: e})
		}
		if s.Activity().State != score.Active {
			t.Errorf("a warm-up of %d epochs has not ended", fixed)
		}
		s.Close()
	}
}
