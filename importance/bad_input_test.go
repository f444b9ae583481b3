package importance

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

var nan, inf = float32(math.NaN()), float32(math.Inf(1))

// scorers makes one of each that takes losses.
func scorers(t *testing.T, n int) map[string]Scorer {
	t.Helper()
	out := map[string]Scorer{}
	for _, name := range []string{"impact", "shade"} {
		m := ok[Method](t)(Lookup(name))
		s := ok[Scorer](t)(m.Scorer(n, m.Defaults, nil))
		t.Cleanup(s.Close)
		out[name] = s
	}
	return out
}

// TestBadObservations: what is wrong is refused and counted, the rest counts, and nothing grows.
func TestBadObservations(t *testing.T) {
	big := make([]sample.Index, MaxSamples+1)
	for _, c := range []struct {
		name string
		o    Observation
		want Report
	}{
		{"all right", Observation{Kind: Losses, Index: []uint32{0, 1}, Loss: []float32{1, 2}}, Report{Observed: 2}},
		{"NaN and infinite", Observation{Kind: Losses, Index: []uint32{0, 1, 2}, Loss: []float32{nan, 2, -inf}}, Report{Observed: 1, NotFinite: 2}},
		{"all of a batch", Observation{Kind: Losses, Index: []uint32{0, 1}, Loss: []float32{nan, inf}}, Report{NotFinite: 2}},
		{"beyond the dataset", Observation{Kind: Losses, Index: []uint32{4, sample.None, 3}, Loss: []float32{1, 1, 1}}, Report{Observed: 1, Unknown: 2}},
		{"lengths differ", Observation{Kind: Losses, Index: []uint32{0, 1}, Loss: []float32{1}}, Report{Shape: 1}},
		{"nothing", Observation{Kind: Losses}, Report{Shape: 1}},
		{"too much", Observation{Kind: Losses, Index: big, Loss: make([]float32, len(big))}, Report{Shape: 1}},
		{"counts", Observation{Kind: Counts, Index: []uint32{0}, Same: []uint16{1}, Other: []uint16{1}}, Report{Shape: 1}},
		{"no kind", Observation{Index: []uint32{0}, Loss: []float32{1}}, Report{Shape: 1}},
		{"another look", Observation{Kind: Reevaluated, Index: []uint32{0}, Loss: []float32{1}}, Report{Observed: 1}},
		{"too old", Observation{Kind: Losses, Epoch: 3, Index: []uint32{0, 1}, Loss: []float32{1, 1}}, Report{Stale: 2}},
		{"the epoch before", Observation{Kind: Losses, Epoch: 4, Index: []uint32{0, 1}, Loss: []float32{1, 1}}, Report{Observed: 2}},
		{"the future", Observation{Kind: Losses, Epoch: 6, Index: []uint32{0, 1}, Loss: []float32{1, 1}}, Report{Stale: 2}},
	} {
		for name, s := range scorers(t, 4) {
			if slices.Contains([]string{"too old", "the epoch before", "the future"}, c.name) {
				s.EndEpoch(Progress{Epoch: 4})
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

// TestBadCounts is the same of neighbours.
func TestBadCounts(t *testing.T) {
	var got []sample.Index
	best := sample.None
	s := ok[*Graph](t)(NewGraph(4, 500, nil, func(node sample.Index, near []sample.Index) { best, got = node, near }))
	defer s.Close()
	o := Observation{Kind: Counts, Index: []uint32{0, 9}, Same: []uint16{3, 1}, Other: []uint16{0, 0}, Node: 1, Neighbours: []uint32{2, 7, 3}}
	if r := s.Observe(o); r != (Report{Observed: 1, Unknown: 2}) {
		t.Errorf("%+v", r)
	}
	if best != 1 || !slices.Equal(got, []sample.Index{2, 3}) || len(o.Neighbours) != 3 || o.Neighbours[1] != 7 {
		t.Errorf("the best node is %d with %v, and the observation has %v", best, got, o.Neighbours)
	}
	best = sample.None
	if r := s.Observe(Observation{Kind: Counts, Index: []uint32{0}, Same: []uint16{3}, Other: []uint16{0}, Node: 17}); r != (Report{Observed: 1, Unknown: 1}) || best != sample.None {
		t.Errorf("a node beyond the dataset: %+v, best %d", r, best)
	}
	for _, o := range []Observation{
		{Kind: Losses, Index: []uint32{0}, Loss: []float32{1}},
		{Kind: Counts, Index: []uint32{0}, Same: []uint16{3}},
		{Kind: Counts, Index: []uint32{0}, Same: []uint16{3}, Other: []uint16{3}, Neighbours: make([]uint32, MaxNeighbours+1)},
	} {
		if r := s.Observe(o); r != (Report{Shape: 1}) {
			t.Errorf("%+v is taken: %+v", o, r)
		}
	}
}

// TestTwiceInABatch: loss keeps the last, rank the greater score, graph the last counts.
func TestTwiceInABatch(t *testing.T) {
	value := func(s interface {
		Scorer
		Value(sample.Index) (float64, bool)
	}, o Observation) float64 {
		defer s.Close()
		s.Observe(o)
		v, seen := s.Value(1)
		if !seen {
			t.Error("sample 1 was not seen")
		}
		return v
	}
	o := Observation{Kind: Losses, Index: []uint32{1, 2, 1}, Loss: []float32{5, 3, 2}}
	if v := value(ok[*Loss](t)(NewLoss(3, LossOptions{})), o); v != 2 {
		t.Errorf("loss: %v, want the last, 2", v)
	}
	if v := value(ok[*Rank](t)(NewRank(3, 3, 10)), o); v != math.Log(12) {
		t.Errorf("rank: %v, want the greater score, ln 12", v)
	}
	o = Observation{Kind: Counts, Index: []uint32{1, 2, 1}, Same: []uint16{9, 1, 0}, Other: []uint16{0, 0, 500}, Node: sample.None}
	if v := value(ok[*Graph](t)(NewGraph(3, 500, nil, nil)), o); v != math.Log(3) {
		t.Errorf("graph: %v, want that of the last counts, ln 3", v)
	}
}

// TestRankScorerIsRankScores: both ways to the scores agree, with ties, negative losses, and batches of any size.
func TestRankScorerIsRankScores(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	for trial := range 300 {
		n := 1 + r.IntN(20)
		s := ok[*Rank](t)(NewRank(n, 8, 10))
		o := Observation{Kind: Losses}
		var exact []float64
		for i := range n {
			loss := float32(r.IntN(9)-1) / 4
			o.Index, o.Loss, exact = append(o.Index, uint32(i)), append(o.Loss, loss), append(exact, max(0, float64(loss)))
		}
		s.Observe(o)
		if got, want := s.Values(nil), RankScores(exact, 8, 10); !slices.Equal(got, want) {
			t.Errorf("trial %d: losses %v have scores %v, want %v", trial, o.Loss, got, want)
		}
		s.Close()
	}
}

// TestLateObservation: a batch of the epoch before does not put an older value over a newer one.
func TestLateObservation(t *testing.T) {
	s := ok[*Loss](t)(NewLoss(2, LossOptions{}))
	defer s.Close()
	s.Observe(Observation{Kind: Losses, Epoch: 0, Index: []uint32{0, 1}, Loss: []float32{1, 1}})
	s.EndEpoch(Progress{Epoch: 0})
	s.Observe(Observation{Kind: Losses, Epoch: 1, Index: []uint32{0}, Loss: []float32{2}})
	s.Observe(Observation{Kind: Losses, Epoch: 0, Index: []uint32{0, 1}, Loss: []float32{7, 7}})
	if v := s.Values(nil); v[0] != 2 || v[1] != 7 {
		t.Errorf("values %v, want [2 7]", v)
	}
}

// TestNegativeLoss: it is 0, also below an irreducible loss.
func TestNegativeLoss(t *testing.T) {
	s := ok[*Loss](t)(NewLoss(3, LossOptions{Irreducible: []float32{1, 1, 1}}))
	defer s.Close()
	s.Observe(Observation{Kind: Losses, Index: []uint32{0, 1, 2}, Loss: []float32{-4, 0.5, 3}})
	if v := s.Values(nil); v[0] != 0 || v[1] != 0 || v[2] != 2 {
		t.Errorf("values %v, want [0 0 2]", v)
	}
	for _, bad := range [][]float32{{1, 2}, {1, nan, 2}} {
		if _, err := NewLoss(3, LossOptions{Irreducible: bad}); err == nil {
			t.Errorf("irreducible losses %v of 3 samples are taken", bad)
		}
	}
}

// TestSilence: an epoch without observations changes nothing; after two the method is idle and epochs are plain, until reports return.
func TestSilence(t *testing.T) {
	for name, s := range scorers(t, 100) {
		b := Boundary{Scorer: s, Samples: 100, Seed: 1, Draw: Systematic}
		speak := func(e int) { observe(s, 100, e) }
		state := []State{}
		for e := range 7 {
			if e < 2 || e > 4 {
				speak(e)
			}
			s.EndEpoch(Progress{Epoch: e})
			a := s.Activity()
			state = append(state, a.State)
			if plainNow := b.Plain(e + 1); plainNow != (a.State == Idle) {
				t.Errorf("%s, after epoch %d: %+v, and the next epoch is plain: %v", name, e, a, plainNow)
			}
		}
		if want := []State{Active, Active, Active, Idle, Idle, Active, Active}; !slices.Equal(state, want) {
			t.Errorf("%s: %v, want %v", name, state, want)
		}
	}
}

// TestFewObservations: values of samples that nobody reports stay, and the share is known.
func TestFewObservations(t *testing.T) {
	for name, s := range scorers(t, 10) {
		observe(s, 10, 0)
		s.EndEpoch(Progress{Epoch: 0})
		before := s.Values(nil)
		s.Observe(Observation{Kind: Losses, Epoch: 1, Index: []uint32{3, 3}, Loss: []float32{50, 60}})
		s.EndEpoch(Progress{Epoch: 1})
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

// TestNothingKnown: with equal values, zeros, or one sample, nobody is preferred.
func TestNothingKnown(t *testing.T) {
	for _, m := range Methods {
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
		order := ok[[]uint32](t)(Order(dst, 1, 2, Systematic))
		if !slices.Equal(order, []uint32{0}) {
			t.Errorf("%s: the order of one sample is %v", m.Name, order)
		}
		offheap.Free(order)
	}
}

// TestSmallCache: a cache that is smaller than a sample keeps nothing, and an index beyond the dataset is nobody's.
func TestSmallCache(t *testing.T) {
	labels := make([]int32, 10)
	for _, m := range Methods {
		for _, name := range Policies {
			for _, capacity := range []int64{0, 5, -1} {
				p := ok[Policy](t)(m.NewPolicy(name, len(labels), capacity, m.Defaults))
				p.Begin(0, make([]float64, 10), []uint32{1, 2, 3})
				for _, bytes := range []int64{6, 1 << 33, -1} {
					if keep, drop := p.Offer(1, bytes); keep || len(drop) > 0 {
						t.Errorf("%s, %s of %d bytes keeps a sample of %d, and drops %v", m.Name, name, capacity, bytes, drop)
					}
				}
				for _, i := range []sample.Index{10, sample.None} {
					p.Observe(i, 1)
					if _, k := p.Get(i, Always); k != Miss || p.Has(i) {
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

// TestBadParameters: each is refused with its name and what it may be.
func TestBadParameters(t *testing.T) {
	for _, m := range Methods {
		if err := m.Check(m.Defaults); err != nil {
			t.Errorf("the defaults of %s: %v", m.Name, err)
		}
	}
	for _, c := range []struct {
		method string
		change func(*Params)
	}{
		{"impact", func(p *Params) { p.Beta = 0 }},
		{"impact", func(p *Params) { p.Beta = math.NaN() }},
		{"impact", func(p *Params) { p.Floor = 1.5 }},
		{"impact", func(p *Params) { p.MaxWarmUp = 0 }},
		{"shade", func(p *Params) { p.Rep = 0.5 }},
		{"shade", func(p *Params) { p.B0 = math.Inf(1) }},
		{"shade", func(p *Params) { p.Batch = 0 }},
		{"spider", func(p *Params) { p.RatioEnd = 0.95 }},
		{"spider", func(p *Params) { p.K = 0 }},
		{"spider", func(p *Params) { p.Gamma = 0 }},
	} {
		m := ok[Method](t)(Lookup(c.method))
		p := m.Defaults
		c.change(&p)
		if err := m.Check(p); err == nil {
			t.Errorf("%s takes %+v", c.method, p)
		}
	}
	if _, err := Lookup("shad"); err == nil || err.Error() != `importance: no method "shad": there are impact, shade, spider; did you mean shade?` {
		t.Errorf("a method that there is not: %v", err)
	}
	m := ok[Method](t)(Lookup("shade"))
	if _, err := m.NewPolicy("nextuse", 3, 1, m.Defaults); err == nil {
		t.Error("a policy that there is not was made")
	}
	for _, n := range []int{0, -1} {
		if _, err := m.Scorer(n, m.Defaults, nil); err == nil {
			t.Errorf("a scorer of %d samples was made", n)
		}
	}
}
