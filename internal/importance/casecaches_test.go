package importance_test

import (
	"encoding/json"
	"strconv"
	"testing"

	"lcache/internal/importance/importancetest"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/score"
	"lcache/internal/importance/substitute"
	"lcache/internal/testenv"
	"lcache/sample"
)

// access performs one access of a cache case: Get, then Offer on a miss. Samples have size 1.
func access(p policy.Policy, id sample.Index) map[string]any {
	_, k := p.Get(id, nil)
	keep, drop := false, []sample.Index(nil)
	if k == policy.Miss {
		keep, drop = p.Offer(id, 1)
	}
	return map[string]any{"hit": k == policy.Hit, "evicted": one(drop), "admitted": keep}
}

// one returns the single dropped sample, or nil.
func one(drop []sample.Index) any {
	if len(drop) == 0 {
		return nil
	}
	return drop[0]
}

// caseSamples is greater than the indices in cases without a number of samples.
const caseSamples = 100_000

func caseHCache(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Capacity int64
		Ops      []op
	}](t, raw)
	p := testenv.OK[*policy.HCache](t)(policy.NewHCache(caseSamples, in.Capacity))
	defer p.Close()
	results := []any{}
	for _, o := range in.Ops {
		switch o.name {
		case "values":
			values := make([]float64, caseSamples)
			for key, v := range arg[map[string]number](t, o, 0) {
				i, err := strconv.Atoi(key)
				if err != nil {
					t.Fatal(err)
				}
				values[i] = float64(v)
			}
			p.Begin(0, values, nil)
			results = append(results, nil)
		case "build":
			n := arg[*int](t, o, 0)
			if n == nil {
				n = new(int)
				*n = -1
			}
			results = append(results, p.Build(*n))
		case "access":
			results = append(results, access(p, arg[uint32](t, o, 0)))
		default:
			t.Fatalf("no operation %s", o.name)
		}
	}
	return map[string]any{"results": results, "contents": importancetest.Contents(p, caseSamples)}
}

func caseLCache(t *testing.T, raw json.RawMessage) any {
	return playLCache(t, raw, func(c *substitute.LCache, id sample.Index, may bool) (sample.Index, policy.Kind) {
		return c.Get(id, importancetest.Allow(may))
	})
}

// caseRules runs a case of the L-cache through the rules, as the server does, in batches of one sample.
func caseRules(t *testing.T, raw json.RawMessage) any {
	return playLCache(t, raw, func(c *substitute.LCache, id sample.Index, may bool) (sample.Index, policy.Kind) {
		rule := ""
		if may {
			rule = substitute.Low
		}
		s := substitute.NewRules(rule, c, nil).Batch([]sample.Index{id}, true)
		return s.Index[0], s.Kind[0]
	})
}

func playLCache(t *testing.T, raw json.RawMessage, get func(c *substitute.LCache, id sample.Index, may bool) (sample.Index, policy.Kind)) any {
	in := input[struct {
		Capacity int64
		Ops      []op
	}](t, raw)
	c := testenv.OK[*substitute.LCache](t)(substitute.NewLCache(caseSamples, in.Capacity))
	defer c.Close()
	results := []any{}
	for _, o := range in.Ops {
		switch o.name {
		case "load":
			c.Load(arg[[]uint32](t, o, 0), importancetest.Unit)
			results = append(results, nil)
		case "epoch":
			c.Begin()
			results = append(results, nil)
		case "access":
			results = append(results, servedBy(get(c, arg[uint32](t, o, 0), arg[bool](t, o, 1))))
		default:
			t.Fatalf("no operation %s", o.name)
		}
	}
	return map[string]any{"results": results, "left": append([]uint32{}, c.Left()...), "to_repack": append([]uint32{}, c.Asked()...)}
}

func servedBy(served sample.Index, k policy.Kind) map[string]any {
	if k == policy.Miss {
		return map[string]any{"served": nil, "kind": k.String()}
	}
	return map[string]any{"served": served, "kind": k.String()}
}

func caseHBytes(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Total, Package int64
		H              int64 `json:"h_accesses"`
		L              int64 `json:"l_accesses"`
	}](t, raw)
	return policy.HBytes(in.Total, in.H, in.L, in.Package)
}

func caseAPP(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Capacity int64
		Strict   bool
		Ops      []op
	}](t, raw)
	p := testenv.OK[*policy.APP](t)(policy.NewAPP(caseSamples, in.Capacity, in.Strict))
	defer p.Close()
	results := []any{}
	for _, o := range in.Ops {
		switch o.name {
		case "access":
			results = append(results, access(p, arg[uint32](t, o, 0)))
		case "observe":
			p.Observe(arg[uint32](t, o, 0), float64(arg[number](t, o, 1)))
			results = append(results, nil)
		case "prefetch":
			p.Prefetch(arg[[]uint32](t, o, 0), importancetest.Unit)
			results = append(results, nil)
		default:
			t.Fatalf("no operation %s", o.name)
		}
	}
	return map[string]any{"results": results, "contents": importancetest.Contents(p, caseSamples)}
}

func caseGraphScore(t *testing.T, raw json.RawMessage) any {
	in := input[struct{ Same, Other, K int }](t, raw)
	return score.GraphScore(in.Same, in.Other, in.K)
}

func caseGraphScorer(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		N             int
		Labels        []int32
		Lambda, Alpha float64
		K             int
		Batches       [][2]json.RawMessage
	}](t, raw)
	var best []any
	s := testenv.OK[*score.Graph](t)(score.NewGraph(in.N, in.K, nil, nil))
	defer s.Close()
	bank := score.NewBank(in.Labels, in.Lambda, in.Alpha, in.K)
	for b, batch := range in.Batches {
		var index []uint32
		var embeddings [][]float64
		for k, into := range []any{&index, &embeddings} {
			if err := json.Unmarshal(batch[k], into); err != nil {
				t.Fatal(err)
			}
		}
		o := bank.Batch(index, embeddings)
		o.Batch = uint32(b)
		if r := s.Observe(o); r.Observed != len(index) {
			t.Errorf("batch %d: %+v, want %d observed", b, r, len(index))
		}
		if o.Node == sample.None {
			best = append(best, []any{nil, []uint32{}})
		} else {
			best = append(best, []any{o.Node, o.Neighbours})
		}
	}
	values := []any{}
	for i := range in.N {
		if v, seen := s.Value(uint32(i)); seen {
			values = append(values, v)
		} else {
			values = append(values, nil)
		}
	}
	return map[string]any{"values": values, "best": best}
}

func caseSpider(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Capacity int64
		Ratio    float64
		Labels   []int32
		MaxUses  *int `json:"max_uses"`
		Ops      []op
	}](t, raw)
	uses := 0
	if in.MaxUses != nil {
		uses = *in.MaxUses
	}
	p := importancetest.Paired(t, "paper", in.Labels, in.Capacity, in.Ratio, uses)
	defer p.Close()
	results := []any{}
	for _, o := range in.Ops {
		switch o.name {
		case "observe":
			p.Observe(arg[uint32](t, o, 0), float64(arg[number](t, o, 1)))
			results = append(results, nil)
		case "access":
			id := arg[uint32](t, o, 0)
			served, k := p.Get(id, importancetest.Allow(arg[bool](t, o, 1)))
			result := servedBy(served, k)
			result["evicted"] = nil
			if k == policy.Miss {
				_, drop := p.Offer(id, 1)
				result["evicted"] = one(drop)
			}
			results = append(results, result)
		case "put":
			_, drop := p.Put(arg[uint32](t, o, 0), arg[[]uint32](t, o, 1), 1)
			results = append(results, map[string]any{"evicted": append([]uint32{}, drop...)})
		case "ratio":
			results = append(results, map[string]any{"evicted": append([]uint32{}, p.SetRatio(arg[float64](t, o, 0))...)})
		case "epoch":
			p.Begin(0, nil, nil)
			results = append(results, nil)
		default:
			t.Fatalf("no operation %s", o.name)
		}
	}
	return map[string]any{"results": results, "importance": importancetest.Contents(p.Policy(), len(in.Labels)), "homophily": append([]uint32{}, p.Nodes().List()...)}
}

func caseElastic(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Epochs            int
		Start, End, Gamma float64
		M                 int
		Sigma             []number
		Accuracy          []*float64
	}](t, raw)
	e := score.NewElastic(in.Start, in.End, in.Gamma, in.M)
	out := []float64{}
	for k, sigma := range in.Sigma {
		out = append(out, e.EndEpoch(float64(sigma), in.Accuracy[k], in.Epochs))
	}
	return out
}

func caseClairvoyant(t *testing.T, raw json.RawMessage) any {
	in := input[struct {
		Capacity int64
		Orders   [][]uint32
		Gap      []number
	}](t, raw)
	p := testenv.OK[*policy.NextUse](t)(policy.NewNextUse(len(in.Gap), in.Capacity))
	defer p.Close()
	hits := []int{}
	for _, order := range in.Orders {
		p.BeginGaps(floats(in.Gap), order)
		n := 0
		for _, id := range order {
			if access(p, id)["hit"].(bool) {
				n++
			}
		}
		hits = append(hits, n)
	}
	return map[string]any{"hits": hits, "contents": importancetest.Contents(p, len(in.Gap))}
}
