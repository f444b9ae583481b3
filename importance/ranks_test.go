package importance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/sample"
)

// TestRanksInAnyOrder: the values of several ranks are the same whichever rank is heard first, in this epoch and of the one before: the newest batch counts.
func TestRanksInAnyOrder(t *testing.T) {
	const n, ranks, batches = 40, 5, 30
	for _, method := range Methods {
		t.Run(method.Name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			byRank := make([][]Observation, ranks)
			for rank := range byRank {
				for k := range 2 * batches {
					o := Observation{Kind: Losses, Rank: uint16(rank), Epoch: uint32(3 + k/batches), Batch: uint32(k % batches), Node: sample.None}
					if method.Name == "spider" {
						o.Kind = Counts
					}
					for range 8 {
						o.Index, o.Loss = append(o.Index, r.Uint32N(n)), append(o.Loss, r.Float32())
						o.Same, o.Other = append(o.Same, uint16(r.IntN(500))), append(o.Other, uint16(r.IntN(500)))
					}
					byRank[rank] = append(byRank[rank], o)
				}
			}
			var want []float64
			for try := range 50 {
				p := method.Defaults
				p.Unstable = 0
				s := ok[Scorer](t)(method.Scorer(n, p, nil))
				if err := s.Share(ranks); err != nil {
					t.Fatal(err)
				}
				s.EndEpoch(Progress{Epoch: 3}) // epoch 4 is trained, and some are late with 3
				at := make([]int, ranks)
				for left := ranks; left > 0; {
					rank := r.IntN(ranks)
					if at[rank] == len(byRank[rank]) {
						continue
					}
					if at[rank]++; at[rank] == len(byRank[rank]) {
						left--
					}
					s.Observe(byRank[rank][at[rank]-1])
				}
				got := s.Values(nil)
				s.Close()
				if want == nil {
					want = got
				}
				if !slices.Equal(got, want) {
					t.Fatalf("try %d: values differ:\n%v\n%v", try, got, want)
				}
			}
		})
	}
}

// TestNewestWins: an older batch changes nothing, whichever rank it is of; a new process of a rank, which counts from 0, is heard again; what was looked at again
// is newer than all that was trained.
func TestNewestWins(t *testing.T) {
	s := ok[*Loss](t)(NewLoss(1, LossOptions{}))
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
		{Losses, 0, 0, 9, false, false}, // of equal batches the greater rank's
		{Losses, 0, 1, 5, false, true},
		{Losses, 1, 0, 10, false, false},
		{Losses, 1, 1, 4, false, false},
		{Losses, 1, 1, 5, false, true},
		{Reevaluated, 0, 1, 0, false, true},
		{Losses, 1, 1, 6, false, false},
		{Losses, 0, 1, 0, true, true},
		{Losses, 1, 1, 1<<turnBatch + 7, false, true},
		{Losses, 1, 1, 1<<turnBatch + 6, false, true}, // beyond so many, batches are not told apart: the one heard last counts
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

// TestSortOfABatch: keys are sorted by loss, and equal losses stay in the batch's order.
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
