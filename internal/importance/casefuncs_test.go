package importance_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/draw"
	"lcache/internal/importance/numeric"
	"lcache/internal/importance/score"
	"lcache/internal/testenv"
	"lcache/sample"
)

func caseSplitMix(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Seed          seed
		Epoch, Stream uint64
	}](t, raw)
	s := numeric.NewStream(uint64(in.Seed), in.Epoch, in.Stream)
	var out []string
	for range 4 {
		out = append(out, fmt.Sprintf("%016x", s.Next()))
	}
	return out
}

func caseUniform(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Seed          seed
		Epoch, Stream uint64
	}](t, raw)
	s := numeric.NewStream(uint64(in.Seed), in.Epoch, in.Stream)
	return []float64{s.Uniform(), s.Uniform(), s.Uniform()}
}

func caseShuffle(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		N             int
		Seed          seed
		Epoch, Stream uint64
	}](t, raw)
	a := make([]uint32, in.N)
	for i := range a {
		a[i] = uint32(i)
	}
	numeric.NewStream(uint64(in.Seed), in.Epoch, in.Stream).Shuffle(a)
	return a
}

func caseCrossEntropy(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Logits [][]number
		Labels []int
	}](t, raw)
	var out []float64
	for k, z := range in.Logits {
		out = append(out, score.CrossEntropy(floats(z), in.Labels[k]))
	}
	return out
}

func caseRankScores(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Losses []number
		Batch  int
		B0     float64
	}](t, raw)
	return score.RankScores(floats(in.Losses), in.Batch, in.B0)
}

func caseRankScorer(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		N, Batch int
		B0       *float64
		Steps    [][2]json.RawMessage
	}](t, raw)
	base := 10.0
	if in.B0 != nil {
		base = *in.B0
	}
	s := testenv.OK[*score.Rank](t)(score.NewRank(in.N, in.Batch, base))
	defer s.Close()
	for b, step := range in.Steps {
		var index []int64
		var losses []number
		for k, into := range []any{&index, &losses} {
			if err := json.Unmarshal(step[k], into); err != nil {
				t.Fatal(err)
			}
		}
		o := score.Observation{Kind: score.Losses, Batch: uint32(b)}
		for k, i := range index {
			o.Index, o.Loss = append(o.Index, uint32(i)), append(o.Loss, float32(losses[k]))
		}
		s.Observe(o)
	}
	return s.Values(nil)
}

func caseWarmUp(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		N         int
		SSize     int `json:"s_size"`
		Overlap   float64
		MaxWarmUp int `json:"max_warmup"`
		Losses    [][]number
	}](t, raw)
	w := testenv.OK[*score.WarmUp](t)(score.NewWarmUp(in.N, score.LossOptions{Unstable: in.SSize, Overlap: in.Overlap, MaxEpochs: in.MaxWarmUp}))
	defer w.Close()
	var ended any
	for e, losses := range in.Losses {
		if w.EndEpoch(floats(losses)) {
			ended = e
			break
		}
	}
	return map[string]any{"S": append([]uint32{}, w.S()...), "ended_after_epoch": ended, "overlaps": append([]float64{}, w.Overlaps()...)}
}

func caseIIS(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Values      []number
		Beta, Floor float64
	}](t, raw)
	out := make([]float64, len(in.Values))
	draw.IIS(in.Beta, in.Floor)(floats(in.Values), nil, out)
	return out
}

func caseWeighted(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Values        []number
		Draws, Smooth float64
	}](t, raw)
	out := make([]float64, len(in.Values))
	if in.Draws != float64(len(out)) {
		t.Fatalf("%v draws of %d samples: there are as many draws as samples", in.Draws, len(out))
	}
	draw.Weighted(in.Smooth, 1)(floats(in.Values), nil, out)
	return out
}

func caseRepeat(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Targets    []number
		Cached     []uint32
		Rep, Draws float64
	}](t, raw)
	hot := testenv.OK[*sample.Set](t)(sample.NewSet(len(in.Targets)))
	defer hot.Close()
	for _, i := range in.Cached {
		hot.Add(i)
	}
	out := floats(in.Targets)
	draw.Repeat(out, hot, in.Rep, in.Draws)
	return out
}

func caseOrder(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Targets []number
		Seed    seed
		Epoch   int
		Draw    draw.Draw
	}](t, raw)
	order := testenv.OK[[]uint32](t)(draw.Order(floats(in.Targets), uint64(in.Seed), in.Epoch, in.Draw))
	defer offheap.Free(order)
	return append([]uint32{}, order...)
}

func caseSplit(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Low         []number `json:"low_targets"`
		High        []uint32
		NHigh       int      `json:"n_high"`
		HighTargets []number `json:"high_targets"`
		Seed        seed
		Epoch       int
		Draw        *draw.Draw
	}](t, raw)
	by := draw.Systematic
	if in.Draw != nil {
		by = *in.Draw
	}
	order := testenv.OK[[]uint32](t)(draw.LowPart(floats(in.Low), in.NHigh, uint64(in.Seed), in.Epoch, by))
	defer offheap.Free(order)
	if err := draw.FillHigh(order, in.High, floats(in.HighTargets), uint64(in.Seed), in.Epoch, by); err != nil {
		t.Fatal(err)
	}
	return append([]uint32{}, order...)
}
