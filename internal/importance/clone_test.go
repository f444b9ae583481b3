package importance_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/internal/importance"
	"lcache/internal/importance/importancetest"
	"lcache/internal/importance/policy"
	"lcache/internal/testenv"
	"lcache/sample"
)

// TestClone: a copy behaves as its original would have, and does not affect the original.
func TestClone(t *testing.T) {
	const n, capacity = 200, 70
	size := func(i sample.Index) int64 { return 1 + int64(i)%3 }
	policies := map[string]func() policy.Policy{}
	for _, m := range importance.Methods {
		for _, name := range importance.Policies {
			policies[m.Name+", "+name] = func() policy.Policy { return testenv.OK[policy.Policy](t)(m.NewPolicy(name, n, capacity, m.Defaults)) }
		}
	}
	for _, name := range importance.Policies {
		policies["nodes with "+name] = func() policy.Policy {
			p := importancetest.Paired(t, name, make([]int32, n), capacity, 0.7, 3)
			for k := range sample.Index(8) {
				p.Put(20*k, []sample.Index{20*k + 1, 20*k + 2, 20*k + 3, 20*k + 19}, size(20*k))
			}
			return p
		}
	}
	for name, fresh := range policies {
		r := rand.New(rand.NewPCG(3, 4))
		var orders [4][]sample.Index
		var values [4][]float64
		for k := range orders {
			for range 300 {
				orders[k] = append(orders[k], r.Uint32N(n))
			}
			for range n {
				values[k] = append(values[k], r.Float64())
			}
		}
		apart, p := fresh(), fresh()
		for k := range orders {
			want := importancetest.Play(apart, orders[k], values[k], size)
			c := testenv.OK[policy.Policy](t)(p.Clone())
			if got := importancetest.Play(c, orders[k], values[k], size); !sameTold(got, want) {
				t.Errorf("%s: a copy goes on otherwise in epoch %d", name, k)
			}
			c.Close()
			if got := importancetest.Play(p, orders[k], values[k], size); !sameTold(got, want) {
				t.Errorf("%s: epoch %d is another one after a copy was made", name, k)
			}
		}
		apart.Close()
		p.Close()
	}
}

func sameTold(a, b []any) bool {
	return slices.EqualFunc(a, b, func(x, y any) bool {
		if drop, is := x.([]sample.Index); is {
			return slices.Equal(drop, y.([]sample.Index))
		}
		return x == y
	})
}

// TestNodesWithAnyPolicy: with each policy, a node is served for itself and for its neighbours, no sample is in
// both caches, and both together stay within the memory while their shares change.
func TestNodesWithAnyPolicy(t *testing.T) {
	const n, capacity = 100, 40
	for _, name := range importance.Policies {
		p := importancetest.Paired(t, name, make([]int32, n), capacity, 0.5, 0)
		r := rand.New(rand.NewPCG(5, 6))
		here, kinds := map[sample.Index]bool{}, map[policy.Kind]int{}
		nodes := 0
		gone := func(drop []sample.Index) {
			for _, i := range drop {
				if !here[i] {
					t.Fatalf("%s: %d is dropped, and is not kept", name, i)
				}
				delete(here, i)
			}
		}
		for epoch := range 6 {
			var order []sample.Index
			for range 400 {
				order = append(order, r.Uint32N(n))
			}
			gone(p.SetRatio(0.9 - 0.1*float64(epoch)))
			p.Begin(epoch, nil, order)
			for k, id := range order {
				served, kind := p.Get(id, policy.Always)
				kinds[kind]++
				if kind != policy.Substitute && served != id || kind == policy.Hit && !here[id] || kind == policy.Substitute && !p.Nodes().Has(served) {
					t.Fatalf("%s: sample %d is a %v by %d", name, id, kind, served)
				}
				if kind == policy.Miss {
					keep, drop := p.Offer(id, 1)
					gone(drop)
					if keep {
						here[id] = true
					}
				}
				if k%7 == 0 {
					node := r.Uint32N(n)
					keep, drop := p.Put(node, []sample.Index{(node + 1) % n, (node + 2) % n}, 1)
					gone(drop)
					if keep {
						here[node] = true
					}
				}
				nodes = max(nodes, len(p.Nodes().List()))
				for _, node := range p.Nodes().List() {
					if p.Policy().Has(node) {
						t.Fatalf("%s: %d is in both caches", name, node)
					}
				}
				if len(here) > capacity || len(p.Nodes().List()) > capacity-int(capacity*p.Ratio()) {
					t.Fatalf("%s: %d samples and %d nodes with a ratio of %v", name, len(here), len(p.Nodes().List()), p.Ratio())
				}
			}
		}
		if kinds[policy.Hit] == 0 || kinds[policy.Substitute] == 0 || kinds[policy.Miss] == 0 || nodes == 0 {
			t.Errorf("%s: %v with at most %d nodes", name, kinds, nodes)
		}
		p.Close()
	}
}
