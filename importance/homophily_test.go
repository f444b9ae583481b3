package importance

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/offheap"
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
}

type pairNode struct {
	id    sample.Index
	near  []sample.Index
	bytes int64
	uses  int
}

func (m *pairModel) node(id sample.Index) int {
	return slices.IndexFunc(m.nodes, func(n pairNode) bool { return n.id == id })
}

func (m *pairModel) has(id sample.Index) bool {
	_, here := m.important[id]
	return here || m.node(id) >= 0
}

// get says who serves a request: itself, the newest node that ever listed it, if that is still there and may, or nobody.
func (m *pairModel) get(id sample.Index, may bool, newest map[sample.Index]int, born []int) (sample.Index, Kind) {
	if m.has(id) {
		return id, Hit
	}
	ticket, listed := newest[id]
	if !may || !listed || born[ticket] < 0 {
		return id, Miss
	}
	k := m.node(sample.Index(born[ticket]))
	n := &m.nodes[k]
	if m.labels[n.id] != m.labels[id] || m.most > 0 && n.uses >= m.most {
		return id, Miss
	}
	n.uses++
	return n.id, Substitute
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
		m := &pairModel{total: 30, capacity: 15, values: map[sample.Index]float64{}, important: map[sample.Index]int64{}, labels: labels, most: int(trial % 4)}
		newest, born := map[sample.Index]int{}, []int{} // the last node that listed a sample; a node by ticket, -1 when gone
		p := ok[*Homophily](t)(NewHomophily(labels, 30, 0.5, m.most))
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
				for k := range m.nodes {
					m.nodes[k].uses = 0
				}
			case x == 9 && step%20 == 0:
				labels[id] = r.Int32N(3)
			default:
				may := r.IntN(3) > 0
				served, kind := p.Get(id, allow(may))
				if s, k := m.get(id, may, newest, born); s != served || k != kind {
					t.Fatalf("trial %d, step %d: sample %d is a %v by %d, want a %v by %d", trial, step, id, kind, served, k, s)
				}
				if kind == Miss {
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
		if got := p.Nodes(); !slices.Equal(got, want) {
			t.Fatalf("trial %d: nodes %v, want %v", trial, got, want)
		}
		p.Close()
	}
}

// TestSubstituteMayBeRefused: a candidate that the batch has already is not served, and a node is not used up by being refused.
func TestSubstituteMayBeRefused(t *testing.T) {
	p := ok[*Homophily](t)(NewHomophily([]int32{0, 0, 0, 1}, 10, 0.5, 1))
	defer p.Close()
	if keep, _ := p.Put(0, []sample.Index{1, 2, 3}, 1); !keep {
		t.Fatal("a node is refused")
	}
	refuse := func(i sample.Index) bool { return i != 0 }
	if _, k := p.Get(1, refuse); k != Miss {
		t.Errorf("a refused substitute is a %v", k)
	}
	if served, k := p.Get(1, Always); k != Substitute || served != 0 {
		t.Errorf("sample 1 is a %v by %d", k, served)
	}
	if _, k := p.Get(3, Always); k != Miss {
		t.Errorf("a sample of another class is a %v", k)
	}
}

// TestSpiderStudy: over clustered embeddings, as the study draws them, substitutes serve a part of the requests, and the whole is more than importance alone;
// samples near another class have the greatest values.
func TestSpiderStudy(t *testing.T) {
	const n, classes, dims, epochs, batch = 600, 10, 16, 6, 64
	hits := func(ratio float64, may May) (exact, substituted, percentile float64) {
		r := rand.New(rand.NewPCG(1, 9))
		labels, centre, hard := make([]int32, n), make([][]float64, n), make([]bool, n)
		class, sub := make([][]float64, classes), make([][]float64, classes*8)
		point := func(sd float64) []float64 {
			x := make([]float64, dims)
			for k := range x {
				x[k] = sd * r.NormFloat64()
			}
			return x
		}
		for c := range class {
			class[c] = point(3)
		}
		for k := range sub {
			sub[k] = point(1)
			for d := range dims {
				sub[k][d] += class[k/8][d]
			}
		}
		for i := range n {
			labels[i] = int32(i % classes)
			centre[i] = slices.Clone(sub[int(labels[i])*8+r.IntN(8)])
			if hard[i] = r.IntN(10) == 0; hard[i] {
				other := sub[r.IntN(len(sub))]
				for d := range dims {
					centre[i][d] = (centre[i][d] + other[d]) / 2
				}
			}
		}
		m := ok[Method](t)(Lookup("spider"))
		p := ok[*Homophily](t)(NewHomophily(labels, n/5, ratio, 8))
		defer p.Close()
		s := ok[*Graph](t)(NewGraph(n, m.Defaults.K, nil, func(node sample.Index, near []sample.Index) { p.Put(node, near, 1) }))
		defer s.Close()
		bank := NewBank(labels, 0.5, 0.36787944117144233, m.Defaults.K) // an edge is closer than 2
		b := Boundary{Scorer: s, Samples: n, Seed: 1, Draw: Multinomial}
		asked, same, other := 0, 0, 0
		for e := range epochs {
			order := ok[[]uint32](t)(b.Order(e, m.Targets(m.Defaults), nil))
			p.Begin(e, s.Values(nil), order)
			spread := 0.35 * (0.4 + 0.8/(1+float64(e)))
			for k := 0; k < len(order); k += batch {
				now := order[k:min(k+batch, len(order))]
				rows := [][]float64{}
				for _, id := range now {
					_, kind := p.Get(id, may)
					if kind == Miss {
						p.Offer(id, 1)
					}
					if e >= 2 {
						asked++
						same += map[Kind]int{Hit: 1}[kind]
						other += map[Kind]int{Substitute: 1}[kind]
					}
					x := point(spread)
					for d := range dims {
						x[d] += centre[id][d]
					}
					rows = append(rows, x)
				}
				o := bank.Batch(now, rows)
				o.Epoch, o.Batch = uint32(e), uint32(k)
				s.Observe(o)
				for _, id := range now {
					v, _ := s.Value(id)
					p.Observe(id, v)
				}
			}
			offheap.Free(order)
			s.EndEpoch(Progress{Epoch: e})
		}
		by := descending(s.Values(nil))
		places, count := 0, 0
		for place, i := range by {
			if hard[i] {
				places, count = places+place, count+1
			}
		}
		return float64(same) / float64(asked), float64(other) / float64(asked), 1 - float64(places)/float64(count)/n
	}
	alone, none, percentile := hits(1, nil)
	exact, substituted, _ := hits(0.8, Always)
	t.Logf("importance alone %.2f; with substitutes %.2f + %.2f; hard samples are at percentile %.2f", alone, exact, substituted, percentile)
	if none != 0 {
		t.Errorf("%.2f of the requests had a substitute that nobody allowed", none)
	}
	if substituted < 0.02 || exact+substituted < alone {
		t.Errorf("with substitutes %.2f + %.2f, importance alone %.2f", exact, substituted, alone)
	}
	if percentile < 0.8 {
		t.Errorf("hard samples are at percentile %.2f, want at least 0.8", percentile)
	}
	if alone < 0.3 {
		t.Errorf("importance alone hits %.2f of the requests, hardly more than its share of the samples", alone)
	}
}
