package substitute_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance"
	"lcache/internal/importance/draw"
	"lcache/internal/importance/importancetest"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/substitute"
	"lcache/internal/testenv"
	"lcache/sample"
)

// planCase is a memory with nodes, and a drawn epoch.
type planCase struct {
	pair            *policy.Homophily
	labels          []int32
	values, targets []float64
	order           []sample.Index
	maxUses         int
}

const planSamples = 300

func newPlanCase(t *testing.T, name string, seed uint64) *planCase {
	r := rand.New(rand.NewPCG(seed, 7))
	c := &planCase{labels: make([]int32, planSamples), maxUses: int(seed % 4)}
	for i := range planSamples {
		c.labels[i] = r.Int32N(3)
		c.values, c.targets = append(c.values, r.Float64()), append(c.targets, 0.1+r.Float64())
	}
	c.pair = importancetest.Paired(t, name, c.labels, 60, 0.7, c.maxUses)
	for range 600 {
		c.order = append(c.order, r.Uint32N(planSamples))
	}
	importancetest.Play(c.pair, c.order, c.values, importancetest.Unit)
	for range 30 {
		var near []sample.Index
		for range 40 {
			near = append(near, r.Uint32N(planSamples))
		}
		c.pair.Put(r.Uint32N(planSamples), near, 1)
	}
	for k := range c.order {
		c.order[k] = r.Uint32N(planSamples)
	}
	if next, is := c.pair.Policy().(*policy.NextUse); is {
		next.EndEpoch()
	}
	return c
}

func (c *planCase) plan(t *testing.T, cut substitute.Cut) substitute.Plan {
	t.Helper()
	r := testenv.OK[*substitute.Rehearsal](t)(substitute.NewRehearsal(c.pair, importancetest.Unit))
	defer r.Close()
	r.Begin(2, c.values, c.targets, c.order)
	return testenv.OK[substitute.Plan](t)(substitute.NewRules(substitute.Class, r, nil).Serve(c.order, cut))
}

// TestPlanOfClass: whatever memory holds, an epoch's plan follows the rules, restated here. A substitute is a node of
// the boundary with the current class. It is used at most max_uses times, and is not twice in a rank's batch. All
// other positions have the sample itself. The same memory gives the same plan, and planning does not change it.
func TestPlanOfClass(t *testing.T) {
	for seed := range uint64(24) {
		name, cut := importance.Policies[seed%4], substitute.Cut{World: 1 + int(seed%3), Batch: 5 + int(seed%7)}
		c := newPlanCase(t, name, seed)
		if seed%5 == 0 { // the current labels, not those from when the nodes came
			for i := range c.labels {
				c.labels[i] = (c.labels[i] + int32(i)%2) % 3
			}
		}
		nodes := c.pair.Nodes().List()
		p, again := c.plan(t, cut), c.plan(t, cut)
		if !slices.Equal(p.Indices, again.Indices) || !slices.Equal(p.Kinds, again.Kinds) {
			t.Errorf("seed %d: two plans of one memory differ", seed)
		}
		if !slices.Equal(nodes, c.pair.Nodes().List()) {
			t.Errorf("seed %d: the nodes are others after a plan", seed)
		}
		uses, kinds := map[sample.Index]int{}, map[policy.Kind]int{}
		cut.Each(len(c.order), func(places []int) {
			here := map[sample.Index]bool{}
			for _, k := range places {
				here[c.order[k]] = true
			}
			for _, k := range places {
				asked, served, kind := c.order[k], p.Indices[k], p.Kinds.At(k)
				kinds[kind]++
				if kind != policy.Substitute {
					if served != asked {
						t.Fatalf("seed %d: %d is served for %d, as a %v", seed, served, asked, kind)
					}
					continue
				}
				uses[served]++
				if here[served] || !slices.Contains(nodes, served) || c.labels[served] != c.labels[asked] || c.maxUses > 0 && uses[served] > c.maxUses {
					t.Fatalf("seed %d: %d of class %d stands in for %d of class %d, for the %dth time of %d", seed, served, c.labels[served], asked, c.labels[asked], uses[served], c.maxUses)
				}
				here[served] = true
			}
		})
		if kinds[policy.Hit] == 0 || kinds[policy.Miss] == 0 || kinds[policy.Substitute] == 0 {
			t.Errorf("seed %d, %s: %v", seed, name, kinds)
		}
		p.Close()
		again.Close()
		c.pair.Close()
	}
}

// TestPlanPredictsHits: a memory that then serves the order has hits where the plan predicted them, as long as no node
// comes or leaves. That holds exactly with its own policy; with next-use of the served order, it has at least as many
// hits.
func TestPlanPredictsHits(t *testing.T) {
	for _, name := range importance.Policies {
		c := newPlanCase(t, name, 2)
		p := c.plan(t, substitute.Cut{World: 1, Batch: 8})
		policy.Begin(c.pair, 2, c.values, c.targets, p.Indices)
		want, got := 0, 0
		for k, id := range p.Indices {
			kind := p.Kinds.At(k)
			_, now := c.pair.Get(id, nil)
			if now == policy.Miss {
				c.pair.Offer(id, 1)
			}
			switch {
			case kind == policy.Substitute && now != policy.Hit:
				t.Fatalf("%s: substitute %d is not in memory", name, id)
			case name != "next-use" && kind != policy.Substitute && kind != now:
				t.Fatalf("%s: place %d is a %v, planned as a %v", name, k, now, kind)
			}
			if kind == policy.Hit {
				want++
			}
			if now == policy.Hit && kind != policy.Substitute {
				got++
			}
		}
		if got < want {
			t.Errorf("%s: %d hits, %d were planned", name, got, want)
		}
		p.Close()
		c.pair.Close()
	}
}

// TestPlanOverAnEpoch: an order that is drawn one epoch ahead is planned on a memory that first simulates the epoch
// in between.
func TestPlanOverAnEpoch(t *testing.T) {
	c := newPlanCase(t, "paper", 3)
	defer c.pair.Close()
	between := slices.Clone(c.order)
	slices.Reverse(between)
	r := testenv.OK[*substitute.Rehearsal](t)(substitute.NewRehearsal(c.pair, importancetest.Unit))
	defer r.Close()
	r.Play(2, c.values, c.targets, between)
	r.Begin(3, c.values, c.targets, c.order)
	ahead := testenv.OK[substitute.Plan](t)(substitute.NewRules(substitute.Class, r, nil).Serve(c.order, substitute.Cut{World: 1, Batch: 8}))
	defer ahead.Close()
	importancetest.Play(c.pair, between, c.values, importancetest.Unit)
	then := c.plan(t, substitute.Cut{World: 1, Batch: 8})
	defer then.Close()
	if !slices.Equal(ahead.Indices, then.Indices) {
		t.Error("a plan that is made an epoch ahead differs from one that is made in time, with the same values and nodes")
	}
}

// BenchmarkPlanOfClass measures the plan of an epoch of 14.2 million samples. It should take seconds, and bounded
// memory.
func BenchmarkPlanOfClass(b *testing.B) {
	const n = importancetest.ImageNet
	labels, err := offheap.MakeDense[int32](n)
	if err != nil {
		b.Fatal(err)
	}
	defer offheap.Free(labels)
	for i := range labels {
		labels[i] = int32(i % 1000)
	}
	r := rand.New(rand.NewPCG(1, 2))
	pair := importancetest.Paired(b, "next-use", labels, n/5, 0.8, 8)
	defer pair.Close()
	order, err := draw.Plain(n, 1, 1)
	if err != nil {
		b.Fatal(err)
	}
	defer offheap.Free(order)
	pair.Begin(0, nil, nil)
	for _, id := range order[:n/5] {
		pair.Offer(id, 1)
	}
	for range 50_000 {
		node := r.Uint32N(n)
		var near []sample.Index
		for k := range uint32(100) {
			near = append(near, (node+1000*(1+k))%n)
		}
		pair.Put(node, near, 1)
	}
	pair.Policy().(*policy.NextUse).EndEpoch()
	b.ResetTimer()
	for range b.N {
		before := offheap.Mapped()
		began := importancetest.CPUTime(b)
		rehearsal, err := substitute.NewRehearsal(pair, importancetest.Unit)
		if err != nil {
			b.Fatal(err)
		}
		rehearsal.Begin(1, nil, nil, order)
		plan, err := substitute.NewRules(substitute.Class, rehearsal, nil).Serve(order, substitute.Cut{World: 1, Batch: 256})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric((importancetest.CPUTime(b) - began).Seconds(), "cpu-s/plan")
		b.ReportMetric(float64(offheap.Mapped()-before)/1e6, "MB")
		plan.Close()
		rehearsal.Close()
	}
}
