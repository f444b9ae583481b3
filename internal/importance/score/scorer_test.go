package score

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/internal/testenv"
	"lcache/sample"
)

// TestBadCounts is TestBadObservations for neighbours.
func TestBadCounts(t *testing.T) {
	var got []sample.Index
	best := sample.None
	s := testenv.OK[*Graph](t)(NewGraph(4, 500, nil, func(node sample.Index, near []sample.Index) { best, got = node, near }))
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

// TestTwiceInABatch: Loss keeps the last loss, Rank the greater score, Graph the last counts.
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
	if v := value(testenv.OK[*Loss](t)(NewLoss(3, LossOptions{})), o); v != 2 {
		t.Errorf("loss: %v, want the last, 2", v)
	}
	if v := value(testenv.OK[*Rank](t)(NewRank(3, 3, 10)), o); v != math.Log(12) {
		t.Errorf("rank: %v, want the greater score, ln 12", v)
	}
	o = Observation{Kind: Counts, Index: []uint32{1, 2, 1}, Same: []uint16{9, 1, 0}, Other: []uint16{0, 0, 500}, Node: sample.None}
	if v := value(testenv.OK[*Graph](t)(NewGraph(3, 500, nil, nil)), o); v != math.Log(3) {
		t.Errorf("graph: %v, want that of the last counts, ln 3", v)
	}
}

// TestRankScorerIsRankScores: both computations of the scores agree, with ties, negative losses, and batches of any
// size.
func TestRankScorerIsRankScores(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 3))
	for trial := range 300 {
		n := 1 + r.IntN(20)
		s := testenv.OK[*Rank](t)(NewRank(n, 8, 10))
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

// TestLateObservation: a batch of the epoch before does not replace a newer value.
func TestLateObservation(t *testing.T) {
	s := testenv.OK[*Loss](t)(NewLoss(2, LossOptions{}))
	defer s.Close()
	s.Observe(Observation{Kind: Losses, Epoch: 0, Index: []uint32{0, 1}, Loss: []float32{1, 1}})
	s.EndEpoch(Progress{Epoch: 0})
	s.Observe(Observation{Kind: Losses, Epoch: 1, Index: []uint32{0}, Loss: []float32{2}})
	s.Observe(Observation{Kind: Losses, Epoch: 0, Index: []uint32{0, 1}, Loss: []float32{7, 7}})
	if v := s.Values(nil); v[0] != 2 || v[1] != 7 {
		t.Errorf("values %v, want [2 7]", v)
	}
}

// TestNegativeLoss: a negative loss counts as 0, even below an irreducible loss.
func TestNegativeLoss(t *testing.T) {
	s := testenv.OK[*Loss](t)(NewLoss(3, LossOptions{Irreducible: []float32{1, 1, 1}}))
	defer s.Close()
	s.Observe(Observation{Kind: Losses, Index: []uint32{0, 1, 2}, Loss: []float32{-4, 0.5, 3}})
	if v := s.Values(nil); v[0] != 0 || v[1] != 0 || v[2] != 2 {
		t.Errorf("values %v, want [0 0 2]", v)
	}
	for _, bad := range [][]float32{{1, 2}, {1, float32(math.NaN()), 2}} {
		if _, err := NewLoss(3, LossOptions{Irreducible: bad}); err == nil {
			t.Errorf("irreducible losses %v of 3 samples are taken", bad)
		}
	}
}

// TestNewestWins: an older batch changes nothing, whichever rank it is from. A new process of a rank counts from 0,
// and its batches are accepted again. A re-evaluation is newer than all training batches.
func TestNewestWins(t *testing.T) {
	s := testenv.OK[*Loss](t)(NewLoss(1, LossOptions{}))
	defer s.Close()
	if err := s.Share(2); err != nil {
		t.Fatal(err)
	}
	s.EndEpoch(Progress{Epoch: 0})
	for k, step := range []struct {
		kind         uint8
		rank         uint16
		epoch, batch uint32
		restarts     bool
		want         bool
	}{
		{Losses, 1, 0, 9, false, true},
		{Losses, 0, 0, 8, false, false},
		{Losses, 0, 0, 9, false, false}, // of equal batches, the greater rank wins
		{Losses, 0, 1, 5, false, true},
		{Losses, 1, 0, 10, false, false},
		{Losses, 1, 1, 4, false, false},
		{Losses, 1, 1, 5, false, true},
		{Reevaluated, 0, 1, 0, false, true},
		{Losses, 1, 1, 6, false, false},
		{Losses, 0, 1, 0, true, true},
		{Losses, 1, 1, 1<<turnBatch + 7, false, true},
		{Losses, 1, 1, 1<<turnBatch + 6, false, true}, // batches beyond this number are not distinguished: the last one to arrive counts
	} {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			if step.restarts {
				s.Restarted(step.rank)
			}
			before := s.Values(nil)[0]
			s.Observe(Observation{Kind: step.kind, Rank: step.rank, Epoch: step.epoch, Batch: step.batch, Index: []sample.Index{0}, Loss: []float32{float32(k + 1)}})
			if changed := s.Values(nil)[0] != before; changed != step.want {
				t.Errorf("it counts: %v, want %v", changed, step.want)
			}
		})
	}
}

// TestSortOfABatch: keys are sorted by loss, and equal losses keep the order of the batch.
func TestSortOfABatch(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	s := &Rank{}
	for n := range 600 {
		s.keys = s.keys[:0]
		for k := range n {
			s.keys = append(s.keys, uint64(r.Uint32()>>r.IntN(32))<<32|uint64(k))
		}
		want := slices.Sorted(slices.Values(s.keys))
		if s.sort(); !slices.Equal(s.keys, want) {
			t.Fatalf("%d keys are not sorted: %x", n, s.keys)
		}
	}
}
