package policy_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/internal/importance/importancetest"
	"lcache/internal/importance/policy"
	"lcache/sample"
)

// pairModel is both caches as lists.
type pairModel struct {
	capacity, total int64
	values          map[sample.Index]float64
	important       map[sample.Index]int64
	nodes           []pairNode
	labels          []int32
	most            int
	uses            map[sample.Index]int // of nodes, in this epoch
}

type pairNode struct {
	id    sample.Index
	near  []sample.Index
	bytes int64
}

func (m *pairModel) node(id sample.Index) int {
	return slices.IndexFunc(m.nodes, func(n pairNode) bool { return n.id == id })
}

func (m *pairModel) has(id sample.Index) bool {
	_, here := m.important[id]
	return here || m.node(id) >= 0
}

// get returns the sample that serves a request: the sample itself, or the newest node that lists it if it is still
// there and may allows it, or none.
func (m *pairModel) get(id sample.Index, may bool, newest map[sample.Index]int, born []int) (sample.Index, policy.Kind) {
	if m.has(id) {
		return id, policy.Hit
	}
	ticket, listed := newest[id]
	if !may || !listed || born[ticket] < 0 {
		return id, policy.Miss
	}
	k := m.node(sample.Index(born[ticket]))
	n := &m.nodes[k]
	if m.labels[n.id] != m.labels[id] || m.most > 0 && m.uses[n.id] >= m.most {
		return id, policy.Miss
	}
	m.uses[n.id]++
	return n.id, policy.Substitute
}

// TestHomophilyModel sends random requests, values, nodes, ratios and epochs to the caches and to a model.
func TestHomophilyModel(t *testing.T) {
	for trial := range uint64(60) {
		r := rand.New(rand.NewPCG(trial, 6))
		const n = 40
		size := func(i sample.Index) int64 { return 1 + int64(i)%3 }
		labels := make([]int32, n)
		for i := range labels {
			labels[i] = r.Int32N(3)
		}
		m := &pairModel{total: 30, capacity: 15, values: map[sample.Index]float64{}, important: map[sample.Index]int64{}, labels: labels, most: int(trial % 4), uses: map[sample.Index]int{}}
		newest, born := map[sample.Index]int{}, []int{} // newest: the last node that lists each sample; born: a node by ticket, -1 if it has left
		p := importancetest.Paired(t, "paper", labels, 30, 0.5, m.most)
		gone := func(drop []sample.Index, what string) {
			for _, i := range drop {
				if !m.has(i) {
					t.Fatalf("trial %d: %s drops %d, which is not kept", trial, what, i)
				}
				if k := m.node(i); k >= 0 {
					if k != 0 {
						t.Fatalf("trial %d: %s drops node %d, and it is not the oldest", trial, what, i)
					}
					born[slices.Index(born, int(i))] = -1
					m.nodes = m.nodes[1:]
					continue
				}
				delete(m.important, i)
			}
		}
		for step := range 1500 {
			id := r.Uint32N(n)
			switch x := r.IntN(20); {
			case x < 4:
				m.values[id] = float64(r.IntN(8))
				p.Observe(id, m.values[id])
			case x < 7:
				near := []sample.Index{}
				for range r.IntN(5) {
					near = append(near, r.Uint32N(n))
				}
				own := slices.DeleteFunc(slices.Clone(near), func(i sample.Index) bool { return i == id || labels[i] != labels[id] })
				want := !m.has(id) && len(own) > 0 && size(id) <= m.total-m.capacity
				keep, drop := p.Put(id, near, size(id))
				if keep != want {
					t.Fatalf("trial %d, step %d: put %d with %v: %v, want %v", trial, step, id, near, keep, want)
				}
				gone(drop, "put")
				if keep {
					for _, i := range own {
						newest[i] = len(born)
					}
					born = append(born, int(id))
					m.nodes = append(m.nodes, pairNode{id: id, near: own, bytes: size(id)})
				}
			case x == 7 && step%5 == 0:
				ratio := r.Float64()
				gone(p.SetRatio(ratio), "a ratio")
				m.capacity = int64(float64(m.total) * ratio)
			case x == 8:
				p.Begin(0, nil, nil)
				clear(m.uses)
			case x == 9 && step%20 == 0:
				labels[id] = r.Int32N(3)
			default:
				may := r.IntN(3) > 0
				served, kind := p.Get(id, importancetest.Allow(may))
				if s, k := m.get(id, may, newest, born); s != served || k != kind {
					t.Fatalf("trial %d, step %d: sample %d is a %v by %d, want a %v by %d", trial, step, id, kind, served, k, s)
				}
				if kind == policy.Miss {
					keep, drop := p.Offer(id, size(id))
					gone(drop, "offer")
					for _, i := range drop {
						if m.values[i] >= m.values[id] {
							t.Fatalf("trial %d: %d of value %v goes for %d of %v", trial, i, m.values[i], id, m.values[id])
						}
					}
					if keep {
						m.important[id] = size(id)
					}
				}
			}
			sum, nodes := int64(0), int64(0)
			for _, b := range m.important {
				sum += b
			}
			for _, n := range m.nodes {
				nodes += n.bytes
			}
			if sum > m.capacity || nodes > m.total-m.capacity {
				t.Fatalf("trial %d, step %d: %d of %d bytes are important, %d of %d nodes", trial, step, sum, m.capacity, nodes, m.total-m.capacity)
			}
		}
		want := []sample.Index{}
		for _, n := range m.nodes {
			want = append(want, n.id)
		}
		if got := p.Nodes().List(); !slices.Equal(got, want) {
			t.Fatalf("trial %d: nodes %v, want %v", trial, got, want)
		}
		p.Close()
	}
}

// TestSubstituteMayBeRefused: a candidate that the batch already has is not served. A refusal does not count as a use
// of the node.
func TestSubstituteMayBeRefused(t *testing.T) {
	p := importancetest.Paired(t, "paper", []int32{0, 0, 0, 1}, 10, 0.5, 1)
	defer p.Close()
	if keep, _ := p.Put(0, []sample.Index{1, 2, 3}, 1); !keep {
		t.Fatal("a node is refused")
	}
	refuse := func(i sample.Index) bool { return i != 0 }
	if _, k := p.Get(1, refuse); k != policy.Miss {
		t.Errorf("a refused substitute is a %v", k)
	}
	if served, k := p.Get(1, policy.Always); k != policy.Substitute || served != 0 {
		t.Errorf("sample 1 is a %v by %d", k, served)
	}
	if _, k := p.Get(3, policy.Always); k != policy.Miss {
		t.Errorf("a sample of another class is a %v", k)
	}
}
