package importance_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/internal/importance"
	"lcache/internal/importance/score"
	"lcache/internal/testenv"
	"lcache/sample"
)

// TestRanksInAnyOrder: the values of several ranks do not depend on the order of arrival, in this epoch and the one
// before: the newest batch counts.
func TestRanksInAnyOrder(t *testing.T) {
	const n, ranks, batches = 40, 5, 30
	for _, method := range importance.Methods {
		t.Run(method.Name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			byRank := make([][]score.Observation, ranks)
			for rank := range byRank {
				for k := range 2 * batches {
					o := score.Observation{Kind: score.Losses, Rank: uint16(rank), Epoch: uint32(3 + k/batches), Batch: uint32(k % batches), Node: sample.None}
					if method.Name == "spider" {
						o.Kind = score.Counts
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
				s := testenv.OK[score.Scorer](t)(method.Scorer(n, p, nil))
				if err := s.Share(ranks); err != nil {
					t.Fatal(err)
				}
				s.EndEpoch(score.Progress{Epoch: 3}) // epoch 4 is trained, and some reports about 3 are late
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
