package importance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/offheap"
	"lcache/sample"
)

// lossesOf is the study's generator: a sample's loss is log-normal, falls with training, and wanders; that of a fifth of the samples wanders far.
type lossesOf struct {
	r           *rand.Rand
	base, a, sd []float64
}

func newLosses(n int, seed uint64) *lossesOf {
	g := &lossesOf{r: rand.New(rand.NewPCG(seed, 7)), base: make([]float64, n), a: make([]float64, n), sd: make([]float64, n)}
	for i := range n {
		g.base[i], g.sd[i] = math.Exp(0.8*g.r.NormFloat64()), 0.15
		if g.r.Float64() < 0.2 {
			g.sd[i] = 1.2
		}
	}
	return g
}

// epoch are the losses of all samples in the next epoch.
func (g *lossesOf) epoch(e int) []float32 {
	out := make([]float32, len(g.base))
	for i := range out {
		g.a[i] = 0.3*g.a[i] + g.sd[i]*g.r.NormFloat64()
		out[i] = float32(g.base[i] * (0.3 + 0.7*math.Exp(-float64(e)/10)) * math.Exp(g.a[i]))
	}
	return out
}

// study is one training over synthetic losses: epochs are drawn, requests go to a policy, losses to the scorer.
type study struct {
	method      string
	n, batch    int
	plain, all  int // epochs: plain permutations at the beginning, and all
	counted     int // the first epoch whose hits count
	share       float64
	policy      string
	params      func(*Params)
	draw        Draw
	alwaysPlain bool
}

// run returns the share of requests that were hits, and the mean share of samples that an epoch left out.
func (c study) run(t *testing.T, seed uint64) (hits, unseen float64) {
	t.Helper()
	m := ok[Method](t)(Lookup(c.method))
	params := m.Defaults
	params.Batch = c.batch
	if c.params != nil {
		c.params(&params)
	}
	s := ok[Scorer](t)(m.Scorer(c.n, params, nil))
	defer s.Close()
	capacity := int64(math.Round(c.share * float64(c.n)))
	p := ok[Policy](t)(m.NewPolicy(c.policy, make([]int32, c.n), capacity, params))
	defer p.Close()
	b := Boundary{Scorer: s, Samples: c.n, Seed: seed, Draw: c.draw}
	g := newLosses(c.n, seed)
	hit, asked, out, epochs := 0, 0, 0.0, 0
	for e := range c.all {
		order, targets := c.order(t, b, e, m.Targets(params), p)
		begin(p, e, b, targets, order)
		loss := g.epoch(e)
		for k := 0; k < len(order); k += c.batch {
			batch := order[k:min(k+c.batch, len(order))]
			for _, id := range batch {
				_, kind := p.Get(id, nil)
				if kind == Miss {
					p.Offer(id, 1)
				}
				if e >= c.counted {
					asked++
					if kind == Hit {
						hit++
					}
				}
			}
			observe(s, p, e, k, batch, loss)
		}
		if e >= c.counted {
			shape := ok[Shape](t)(ShapeOf(order, c.n))
			out, epochs = out+shape.Unseen, epochs+1
		}
		offheap.Free(order)
		offheap.Free(targets)
		s.EndEpoch(Progress{Epoch: e})
	}
	return float64(hit) / float64(asked), out / float64(epochs)
}

// order is the epoch's order, and the expected uses that follow from the values.
func (c study) order(t *testing.T, b Boundary, e int, targets Targets, p Policy) (order []uint32, expected []float64) {
	if app, is := p.(*APP); is && e > 0 {
		app.Prefetch(descending(b.Scorer.Values(nil)), unit) // hot is what is there afterwards
	}
	hot := ok[*sample.Set](t)(sample.NewSet(c.n))
	defer hot.Close()
	for i := range uint32(c.n) {
		if p.Has(i) {
			hot.Add(i)
		}
	}
	if e > 0 {
		expected = ok[[]float64](t)(b.Expected(targets, hot))
	}
	if e < c.plain || c.alwaysPlain {
		return ok[[]uint32](t)(Plain(c.n, b.Seed, e)), expected
	}
	used := slices.Clone(expected)
	return ok[[]uint32](t)(Order(used, b.Seed, e, b.Draw)), expected
}

// descending are all indices, that of the greatest value first.
func descending(values []float64) []sample.Index {
	by := make([]uint32, len(values))
	greatest(values, by)
	return by
}

// begin begins an epoch of a policy with what it wants to know.
func begin(p Policy, e int, b Boundary, targets []float64, order []uint32) {
	values := b.Scorer.Values(nil)
	switch p := p.(type) {
	case *NextUse:
		p.Begin(e, targets, order)
	case *HCache:
		p.Begin(e, values, order)
		p.Build(-1)
	default:
		p.Begin(e, values, order)
	}
}

func observe(s Scorer, p Policy, e, k int, batch []uint32, loss []float32) {
	o := Observation{Kind: Losses, Epoch: uint32(e), Batch: uint32(k), Index: batch}
	for _, id := range batch {
		o.Loss = append(o.Loss, loss[id])
	}
	s.Observe(o)
	for _, id := range batch {
		switch s := s.(type) {
		case *Rank:
			v, _ := s.Value(id)
			p.Observe(id, v)
		case *Loss:
			v, _ := s.Value(id)
			p.Observe(id, v)
		}
	}
}

// TestHitRatios compares hit ratios with those of a reference in another language, within 2 points, each the mean of three seeds.
func TestHitRatios(t *testing.T) {
	iis := study{method: "impact", n: 4000, batch: 64, plain: 6, all: 24, counted: 6, draw: Systematic, params: func(p *Params) { p.Floor = 0 }}
	pads := study{method: "shade", n: 4000, batch: 64, plain: 1, all: 16, counted: 2, draw: Multinomial}
	plainLRU := study{method: "impact", n: 4000, batch: 64, all: 12, counted: 1, alwaysPlain: true, policy: "lru"}
	closed := func(c float64) float64 { return c + (1-c)*math.Log(1-c) }
	type row struct {
		of     study
		policy string
		share  float64
		want   float64
	}
	rows := []row{}
	add := func(of study, policy string, shares []float64, want ...float64) {
		for i, c := range shares {
			rows = append(rows, row{of, policy, c, want[i]})
		}
	}
	five := []float64{0.1, 0.2, 0.4, 0.6, 0.8}
	add(plainLRU, "lru", five, closed(0.1), closed(0.2), closed(0.4), closed(0.6), closed(0.8))
	add(plainLRU, "minio", five, 0.1, 0.2, 0.4, 0.6, 0.8)
	add(plainLRU, "next-use", five, 0.1, 0.2, 0.4, 0.6, 0.8) // MIN of permutations, if the next epoch's order is not known
	add(iis, "lru", []float64{0.2}, 0.057)
	add(iis, "minio", []float64{0.2}, 0.202)
	add(iis, "paper", five[1:], 0.318, 0.600, 0.812, 0.948)
	add(iis, "next-use", five[1:], 0.342, 0.618, 0.821, 0.949)
	three := []float64{0.1, 0.2, 0.5}
	add(pads, "minio", three, 0.1, 0.2, 0.5)
	add(pads, "paper", three, 0.118, 0.235, 0.557)
	add(pads, "next-use", three, 0.353, 0.489, 0.703)
	rep := pads
	rep.params = func(p *Params) { p.Rep = 3 }
	add(rep, "lru", []float64{0.2}, 0.41)
	add(rep, "minio", []float64{0.2}, 0.595)
	add(rep, "paper", []float64{0.2}, 0.68)
	add(rep, "next-use", []float64{0.2}, 0.74)
	for _, r := range rows {
		t.Run(fmt.Sprintf("%s/%s/%v", r.of.method, r.policy, r.share), func(t *testing.T) {
			r.of.policy, r.of.share = r.policy, r.share
			sum, unseen := 0.0, 0.0
			for seed := range uint64(3) {
				h, u := r.of.run(t, seed+1)
				sum, unseen = sum+h/3, unseen+u/3
			}
			t.Logf("%.3f of the requests are hits, the reference has %.3f; %.2f of the samples are not in an epoch", sum, r.want, unseen)
			if math.Abs(sum-r.want) > 0.02 {
				t.Errorf("%.3f of the requests are hits, want %.3f", sum, r.want)
			}
		})
	}
}
