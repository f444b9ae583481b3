package importance

import (
	"fmt"
	"math"
	"strings"

	"lcache/internal/importance/draw"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/score"
	"lcache/internal/importance/substitute"
	"lcache/internal/usage"
	"lcache/sample"
)

// Method is the system of one paper: its scorer, targets and memory policy.
type Method struct {
	Name string
	// Substitute is what may be served in place of a sample, if the user allows it: Low, Class, or "" for nothing.
	Substitute string
	// Defaults are the paper's values, or lcache's if the paper has none.
	Defaults Params
	// Scorer returns a scorer. It calls best with the best connected sample of each batch, if the method finds one.
	Scorer func(n int, p Params, best func(sample.Index, []sample.Index)) (score.Scorer, error)
	// Targets returns the targets for the parameters of this boundary.
	Targets func(p Params) draw.Targets
	// Cache returns the paper's own memory policy, for n samples. If substitutes are allowed, nodes are added to it or to another policy; see
	// [Method.WithNodes].
	Cache func(n int, capacity int64, p Params) (policy.Policy, error)
}

// Methods is the table of the parts of each method.
var Methods = []Method{
	{
		Name: "impact", Substitute: substitute.Low,
		Defaults: Params{Beta: 1, Floor: 0.05, SShare: 0.25, LShare: 0.1, LDepth: 3, Overlap: 0.8, MaxWarmUp: 10, Rep: 1, Batch: 256},
		Scorer: func(n int, p Params, _ func(sample.Index, []sample.Index)) (score.Scorer, error) {
			return made[score.Scorer](score.NewLoss(n, score.LossOptions{Irreducible: p.Irreducible, Unstable: p.Unstable, Overlap: p.Overlap, MaxEpochs: p.MaxWarmUp, Fixed: p.WarmUp}))
		},
		Targets: func(p Params) draw.Targets { return draw.Even(draw.IIS(p.Beta, p.Floor)) },
		Cache: func(n int, capacity int64, _ Params) (policy.Policy, error) {
			return made[policy.Policy](policy.NewHCache(n, capacity))
		},
	},
	{
		Name:     "shade",
		Defaults: Params{B0: 10, Rep: 1, Prefetch: true, Batch: 256},
		Scorer: func(n int, p Params, _ func(sample.Index, []sample.Index)) (score.Scorer, error) {
			return made[score.Scorer](score.NewRank(n, p.Batch, p.B0))
		},
		Targets: func(p Params) draw.Targets { return draw.Weighted(p.Smooth, p.Rep) },
		Cache: func(n int, capacity int64, p Params) (policy.Policy, error) {
			return made[policy.Policy](policy.NewAPP(n, capacity, p.Strict))
		},
	},
	{
		Name: "spider", Substitute: substitute.Class,
		Defaults: Params{K: 500, MaxUses: 8, RatioStart: 0.9, RatioEnd: 0.8, Gamma: 0.01, M: 5, Rep: 1, Batch: 256},
		Scorer: func(n int, p Params, best func(sample.Index, []sample.Index)) (score.Scorer, error) {
			return made[score.Scorer](score.NewGraph(n, p.K, score.NewElastic(p.RatioStart, p.RatioEnd, p.Gamma, p.M), best))
		},
		Targets: func(p Params) draw.Targets { return draw.Weighted(0, p.Rep) },
		Cache: func(n int, capacity int64, _ Params) (policy.Policy, error) {
			return made[policy.Policy](policy.NewValued(n, capacity))
		},
	},
}

// made returns a constructor's result as an interface; nil after an error.
func made[I any, T interface {
	*E
	Close()
}, E any](x T, err error) (i I, _ error) {
	if err != nil {
		return i, err
	}
	return any(x).(I), nil
}

// Lookup finds a method by its name.
func Lookup(name string) (Method, error) {
	var names []string
	for _, m := range Methods {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return Method{}, unknown("method", name, names)
}

// Policies are the memory policies that any method can use. "paper" is the method's own.
var Policies = []string{"next-use", "paper", "lru", "minio"}

// NewPolicy returns a memory policy of a method for n samples, by name: next-use, paper, lru or minio.
func (m Method) NewPolicy(name string, n int, capacity int64, p Params) (policy.Policy, error) {
	switch name {
	case "next-use":
		return made[policy.Policy](policy.NewNextUse(n, capacity))
	case "paper":
		return m.Cache(n, capacity, p)
	case "lru":
		return made[policy.Policy](policy.NewLRU(n, capacity))
	case "minio":
		return made[policy.Policy](policy.NewMinIO(n, capacity))
	}
	return nil, unknown("policy", name, Policies)
}

// WithNodes returns a memory policy together with nodes, for samples with these labels. Nodes get the memory that the initial ratio leaves.
func (m Method) WithNodes(name string, labels []int32, capacity int64, p Params) (*policy.Homophily, error) {
	important, err := m.NewPolicy(name, len(labels), 0, p)
	if err != nil {
		return nil, err
	}
	nodes, err := policy.NewNodes(labels, 0, p.MaxUses)
	if err != nil {
		important.Close()
		return nil, err
	}
	return policy.NewHomophily(important, nodes, capacity, p.RatioStart), nil
}

func unknown(what, name string, known []string) error {
	hint := ""
	if near := usage.Nearest(name, known); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", near)
	}
	return fmt.Errorf("importance: no %s %q: there are %s%s", what, name, strings.Join(known, ", "), hint)
}

// Params are the parameters of all methods. Each method uses only some of them.
type Params struct {
	Batch int // samples of one batch

	// impact
	Beta, Floor float64
	SShare      float64 // share of the memory for the S-buffer
	LShare      float64 // no effect: part of the state file, because older servers compare it
	LDepth      int     // packages in memory
	Overlap     float64
	MaxWarmUp   int
	WarmUp      int // epochs; 0: until S is stable
	Unstable    int // samples in S, computed from SShare and the memory
	Irreducible []float32

	// shade
	B0, Rep, Smooth float64
	Strict          bool
	Prefetch        bool // no effect, like LShare

	// spider
	K, MaxUses           int
	RatioStart, RatioEnd float64
	Gamma                float64
	M                    int
}

// Check returns an error for an invalid parameter of a method, with the valid range.
func (m Method) Check(p Params) error {
	type rule struct {
		of, name    string
		value       float64
		least, most float64
	}
	for _, r := range []rule{
		{"", "batch_size", float64(p.Batch), 1, score.MaxSamples},
		{"impact", "beta", p.Beta, 1e-3, 100},
		{"impact", "floor", p.Floor, 0, 1},
		{"impact", "s_share", p.SShare, 0, 0.9},
		{"impact", "l_depth", float64(p.LDepth), 1, 1024},
		{"impact", "overlap", p.Overlap, 0, 1},
		{"impact", "max_warmup", float64(p.MaxWarmUp), 1, 1000},
		{"impact", "warmup", float64(p.WarmUp), 0, 1000},
		{"shade", "b0", p.B0, 1, 1e6},
		{"shade", "rep", p.Rep, 1, 1000},
		{"shade", "smooth", p.Smooth, 0, 1e6},
		{"spider", "k", float64(p.K), 1, score.MaxNeighbours},
		{"spider", "max_uses", float64(p.MaxUses), 0, math.MaxInt32},
		{"spider", "ratio's start", p.RatioStart, 0, 1},
		{"spider", "ratio's end", p.RatioEnd, 0, p.RatioStart},
		{"spider", "gamma", p.Gamma, 1e-9, 1},
		{"spider", "m", float64(p.M), 1, 1000},
	} {
		if r.of != "" && r.of != m.Name {
			continue
		}
		if !(r.value >= r.least && r.value <= r.most) {
			return fmt.Errorf("importance: %s of %s is %v: give a number from %v to %v", r.name, m.Name, r.value, r.least, r.most)
		}
	}
	return nil
}
