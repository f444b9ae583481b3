package importance_test

import (
	"math"
	"slices"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance"
	"lcache/internal/importance/draw"
	"lcache/internal/importance/importancetest"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/score"
	"lcache/internal/testenv"
	"lcache/sample"
)

var nan, inf = float32(math.NaN()), float32(math.Inf(1))

// scorers returns one of each scorer that accepts losses.
func scorers(t *testing.T, n int) map[string]score.Scorer {
	t.Helper()
	out := map[string]score.Scorer{}
	for _, name := range []string{"impact", "shade"} {
		m := testenv.OK[importance.Method](t)(importance.Lookup(name))
		s := testenv.OK[score.Scorer](t)(m.Scorer(n, m.Defaults, nil))
		t.Cleanup(s.Close)
		out[name] = s
	}
	return out
}

// TestBadObservations: invalid parts are refused and counted, the rest counts, and no memory grows.
func TestBadObservations(t *testing.T) {
	big := make([]sample.Index, score.MaxSamples+1)
	for _, c := range []struct {
		name string
		o    score.Observation
		want score.Report
	}{
		{"all right", score.Observation{Kind: score.Losses, Index: []uint32{0, 1}, Loss: []float32{1, 2}}, score.Report{Observed: 2}},
		{"NaN and infinite", score.Observation{Kind: score.Losses, Index: []uint32{0, 1, 2}, Loss: []float32{nan, 2, -inf}}, score.Report{Observed: 1, NotFinite: 2}},
		{"all of a batch", score.Observation{Kind: score.Losses, Index: []uint32{0, 1}, Loss: []float32{nan, inf}}, score.Report{NotFinite: 2}},
		{"beyond the dataset", score.Observation{Kind: score.Losses, Index: []uint32{4, sample.None, 3}, Loss: []float32{1, 1, 1}}, score.Report{Observed: 1, Unknown: 2}},
		{"lengths differ", score.Observation{Kind: score.Losses, Index: []uint32{0, 1}, Loss: []float32{1}}, score.Report{Shape: 1}},
		{"nothing", score.Observation{Kind: score.Losses}, score.Report{Shape: 1}},
		{"too much", score.Observation{Kind: score.Losses, Index: big, Loss: make([]float32, len(big))}, score.Report{Shape: 1}},
		{"counts", score.Observation{Kind: score.Counts, Index: []uint32{0}, Same: []uint16{1}, Other: []uint16{1}}, score.Report{Shape: 1}},
		{"no kind", score.Observation{Index: []uint32{0}, Loss: []float32{1}}, score.Report{Shape: 1}},
		{"another look", score.Observation{Kind: score.Reevaluated, Index: []uint32{0}, Loss: []float32{1}}, score.Report{Observed: 1}},
		{"too old", score.Observation{Kind: score.Losses, Epoch: 3, Index: []uint32{0, 1}, Loss: []float32{1, 1}}, score.Report{Stale: 2}},
		{"the epoch before", score.Observation{Kind: score.Losses, Epoch: 4, Index: []uint32{0, 1}, Loss: []float32{1, 1}}, score.Report{Observed: 2}},
		{"the future", score.Observation{Kind: score.Losses, Epoch: 6, Index: []uint32{0, 1}, Loss: []float32{1, 1}}, score.Report{Stale: 2}},
	} {
		for name, s := range scorers(t, 4) {
			if slices.Contains([]string{"too old", "the epoch before", "the future"}, c.name) {
				s.EndEpoch(score.Progress{Epoch: 4})
			}
			if got := s.Observe(c.o); got != c.want {
				t.Errorf("%s, %s: %+v, want %+v", name, c.name, got, c.want)
			}
			for i, v := range s.Values(nil) {
				if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
					t.Errorf("%s, %s: the value of sample %d is %v", name, c.name, i, v)
				}
			}
		}
	}
}

// TestSilence: an epoch without observations changes nothing. After two, the method is idle and epochs are plain,
// until reports return.
func TestSilence(t *testing.T) {
	for name, s := range scorers(t, 100) {
		b := draw.Boundary{Scorer: s, Samples: 100, Seed: 1, Draw: draw.Systematic}
		speak := func(e int) { importancetest.Observe(s, 100, e) }
		state := []score.State{}
		for e := range 7 {
			if e < 2 || e > 4 {
				speak(e)
			}
			s.EndEpoch(score.Progress{Epoch: e})
			a := s.Activity()
			state = append(state, a.State)
			if plainNow := b.Plain(e + 1); plainNow != (a.State == score.Idle) {
				t.Errorf("%s, after epoch %d: %+v, and the next epoch is plain: %v", name, e, a, plainNow)
			}
		}
		if want := []score.State{score.Active, score.Active, score.Active, score.Idle, score.Idle, score.Active, score.Active}; !slices.Equal(state, want) {
			t.Errorf("%s: %v, want %v", name, state, want)
		}
	}
}

// TestFewObservations: values of samples without observations stay, and the observed share is known.
func TestFewObservations(t *testing.T) {
	for name, s := range scorers(t, 10) {
		importancetest.Observe(s, 10, 0)
		s.EndEpoch(score.Progress{Epoch: 0})
		before := s.Values(nil)
		s.Observe(score.Observation{Kind: score.Losses, Epoch: 1, Index: []uint32{3, 3}, Loss: []float32{50, 60}})
		s.EndEpoch(score.Progress{Epoch: 1})
		after := s.Values(nil)
		for i := range before {
			if i != 3 && before[i] != after[i] {
				t.Errorf("%s: sample %d was not reported, and its value went from %v to %v", name, i, before[i], after[i])
			}
		}
		if a := s.Activity(); a.ObservedShare != 0.1 || a.LastObserved != 1 {
			t.Errorf("%s: %+v, want a tenth, of epoch 1", name, a)
		}
	}
}

// TestNothingKnown: with equal values, zeros, or one sample, no sample is preferred.
func TestNothingKnown(t *testing.T) {
	for _, m := range importance.Methods {
		for _, v := range []float64{0, 3} {
			values := []float64{v, v, v, v, v, v, v, v}
			dst := make([]float64, len(values))
			m.Targets(m.Defaults)(values, nil, dst)
			for i := range dst {
				if dst[i] != dst[0] || !(dst[i] > 0) {
					t.Errorf("%s: all values are %v, and the targets %v", m.Name, v, dst)
					break
				}
			}
		}
		dst := []float64{0}
		m.Targets(m.Defaults)([]float64{0.7}, nil, dst)
		order := testenv.OK[[]uint32](t)(draw.Order(dst, 1, 2, draw.Systematic))
		if !slices.Equal(order, []uint32{0}) {
			t.Errorf("%s: the order of one sample is %v", m.Name, order)
		}
		offheap.Free(order)
	}
}

// TestSmallCache: a cache that is smaller than a sample keeps none, and an index beyond the dataset is never kept.
func TestSmallCache(t *testing.T) {
	labels := make([]int32, 10)
	for _, m := range importance.Methods {
		for _, name := range importance.Policies {
			for _, capacity := range []int64{0, 5, -1} {
				p := testenv.OK[policy.Policy](t)(m.NewPolicy(name, len(labels), capacity, m.Defaults))
				p.Begin(0, make([]float64, 10), []uint32{1, 2, 3})
				for _, bytes := range []int64{6, 1 << 33, -1} {
					if keep, drop := p.Offer(1, bytes); keep || len(drop) > 0 {
						t.Errorf("%s, %s of %d bytes keeps a sample of %d, and drops %v", m.Name, name, capacity, bytes, drop)
					}
				}
				for _, i := range []sample.Index{10, sample.None} {
					p.Observe(i, 1)
					if _, k := p.Get(i, policy.Always); k != policy.Miss || p.Has(i) {
						t.Errorf("%s, %s: sample %d of 10 is a %v", m.Name, name, i, k)
					}
					if keep, _ := p.Offer(i, 1); keep {
						t.Errorf("%s, %s: sample %d of 10 is kept", m.Name, name, i)
					}
				}
				p.Close()
			}
		}
	}
}

// TestBadParameters: each invalid parameter is refused, with its name and valid range.
func TestBadParameters(t *testing.T) {
	for _, m := range importance.Methods {
		if err := m.Check(m.Defaults); err != nil {
			t.Errorf("the defaults of %s: %v", m.Name, err)
		}
	}
	for _, c := range []struct {
		method string
		change func(*importance.Params)
	}{
		{"impact", func(p *importance.Params) { p.Beta = 0 }},
		{"impact", func(p *importance.Params) { p.Beta = math.NaN() }},
		{"impact", func(p *importance.Params) { p.Floor = 1.5 }},
		{"impact", func(p *importance.Params) { p.MaxWarmUp = 0 }},
		{"shade", func(p *importance.Params) { p.Rep = 0.5 }},
		{"shade", func(p *importance.Params) { p.B0 = math.Inf(1) }},
		{"shade", func(p *importance.Params) { p.Batch = 0 }},
		{"spider", func(p *importance.Params) { p.RatioEnd = 0.95 }},
		{"spider", func(p *importance.Params) { p.K = 0 }},
		{"spider", func(p *importance.Params) { p.Gamma = 0 }},
	} {
		m := testenv.OK[importance.Method](t)(importance.Lookup(c.method))
		p := m.Defaults
		c.change(&p)
		if err := m.Check(p); err == nil {
			t.Errorf("%s takes %+v", c.method, p)
		}
	}
	if _, err := importance.Lookup("shad"); err == nil || err.Error() != `importance: no method "shad": there are impact, shade, spider; did you mean shade?` {
		t.Errorf("an unknown method: %v", err)
	}
	m := testenv.OK[importance.Method](t)(importance.Lookup("shade"))
	if _, err := m.NewPolicy("nextuse", 3, 1, m.Defaults); err == nil {
		t.Error("an unknown policy was made")
	}
	for _, n := range []int{0, -1} {
		if _, err := m.Scorer(n, m.Defaults, nil); err == nil {
			t.Errorf("a scorer of %d samples was made", n)
		}
	}
}

// TestRepeatedBoundary: a boundary depends only on the values. Repeated, it draws the same order; for another epoch,
// another order.
func TestRepeatedBoundary(t *testing.T) {
	for name, s := range scorers(t, 500) {
		m := testenv.OK[importance.Method](t)(importance.Lookup(name))
		importancetest.Observe(s, 500, 0)
		s.EndEpoch(score.Progress{Epoch: 0})
		b := draw.Boundary{Scorer: s, Samples: 500, Seed: 11, Draw: draw.Systematic}
		drawn := func(e int) []uint32 {
			order := testenv.OK[[]uint32](t)(b.Order(e, m.Targets(m.Defaults), nil))
			defer offheap.Free(order)
			return slices.Clone(order)
		}
		if !slices.Equal(drawn(1), drawn(1)) || slices.Equal(drawn(1), drawn(2)) {
			t.Errorf("%s: the order of an epoch is not a function of the values and the epoch", name)
		}
		if plain := drawn(0); len(plain) != 500 || unseen(t, plain) {
			t.Errorf("%s: epoch 0 is not a permutation", name)
		}
		b.Lag = 1
		if plain := drawn(1); unseen(t, plain) {
			t.Errorf("%s: with lag 1, epoch 1 is not a permutation", name)
		}
	}
}

// unseen reports whether an order over 500 samples leaves out any.
func unseen(t *testing.T, order []sample.Index) bool {
	t.Helper()
	return testenv.OK[draw.Shape](t)(draw.ShapeOf(order, 500)).Unseen > 0
}
