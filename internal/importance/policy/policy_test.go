package policy_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/internal/importance/importancetest"
	"lcache/internal/importance/numeric"
	"lcache/internal/importance/policy"
	"lcache/internal/testenv"
	"lcache/sample"
)

// model is a cache as a list that is searched completely. It defines the results of a policy.
type model struct {
	kept     map[sample.Index]int64
	capacity int64
	key      func(sample.Index) float64 // the smallest key is evicted first; of equal keys, the smaller index
	yields   func(top, incoming sample.Index) bool
}

func (m *model) used() (sum int64) {
	for _, b := range m.kept {
		sum += b
	}
	return sum
}

func (m *model) offer(id sample.Index, bytes int64) (bool, []sample.Index) {
	if _, here := m.kept[id]; here {
		return true, nil
	}
	order := []sample.Index{}
	for i := range m.kept {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b sample.Index) int { return cmp.Or(cmp.Compare(m.key(a), m.key(b)), cmp.Compare(a, b)) })
	used, drop := m.used(), []sample.Index(nil)
	for used+bytes > m.capacity {
		if len(drop) == len(order) || !m.yields(order[len(drop)], id) {
			return false, nil
		}
		used -= m.kept[order[len(drop)]]
		drop = append(drop, order[len(drop)])
	}
	for _, i := range drop {
		delete(m.kept, i)
	}
	m.kept[id] = bytes
	return true, drop
}

// drive sends the same requests to a policy and to its model, and compares each answer, and the contents at the end.
func drive(t *testing.T, p policy.Policy, m *model, ids []sample.Index, size func(sample.Index) int64, before func(k int, id sample.Index)) {
	t.Helper()
	for k, id := range ids {
		if before != nil {
			before(k, id)
		}
		_, here := m.kept[id]
		if served, kind := p.Get(id, nil); served != id || (kind == policy.Hit) != here {
			t.Fatalf("request %d for sample %d: %v by %d, and the model has it: %v", k, id, kind, served, here)
		}
		if here {
			continue
		}
		keep, drop := p.Offer(id, size(id))
		wantKeep, wantDrop := m.offer(id, size(id))
		if keep != wantKeep || !slices.Equal(drop, wantDrop) {
			t.Fatalf("offer %d of sample %d: keep %v, drop %v; want %v, %v", k, id, keep, drop, wantKeep, wantDrop)
		}
		if used := m.used(); used > m.capacity {
			t.Fatalf("%d bytes are used of %d", used, m.capacity)
		}
	}
	for i := range sample.Index(1000) {
		if _, here := m.kept[i]; p.Has(i) != here {
			t.Fatalf("sample %d: kept %v, want %v", i, p.Has(i), here)
		}
	}
}

// requests returns random requests, in which some samples are frequent.
func requests(r *rand.Rand, n, count int) []sample.Index {
	out := make([]sample.Index, count)
	for k := range out {
		out[k] = uint32(float64(n) * math.Pow(r.Float64(), 2))
	}
	return out
}

func TestLRUModel(t *testing.T) {
	testenv.WithoutRace(t)
	for trial := range uint64(20) {
		r := rand.New(rand.NewPCG(trial, 1))
		n, last := 60, map[sample.Index]int{}
		size := func(i sample.Index) int64 { return 1 + int64(i)%5 }
		m := &model{kept: map[sample.Index]int64{}, capacity: 40, key: func(i sample.Index) float64 { return float64(last[i]) }, yields: func(_, _ sample.Index) bool { return true }}
		p := testenv.OK[*policy.LRU](t)(policy.NewLRU(n, m.capacity))
		drive(t, p, m, requests(r, n, 2000), size, func(k int, id sample.Index) { last[id] = k + 1 })
		p.Close()
	}
}

// TestNextUseIsMIN: in one epoch with samples of one size, no policy has more hits than Belady's MIN with bypass,
// which the test finds by exhaustive search.
func TestNextUseIsMIN(t *testing.T) {
	for trial := range uint64(300) {
		r := rand.New(rand.NewPCG(trial, 2))
		n, capacity := 2+r.IntN(4), r.IntN(4)
		order := make([]sample.Index, 3+r.IntN(9))
		for k := range order {
			order[k] = r.Uint32N(uint32(n))
		}
		p := testenv.OK[*policy.NextUse](t)(policy.NewNextUse(n, int64(capacity)))
		p.Begin(0, nil, order)
		hits := 0
		for _, id := range order {
			if _, kind := p.Get(id, nil); kind == policy.Miss {
				p.Offer(id, 1)
			} else {
				hits++
			}
		}
		p.Close()
		if want := most(order, 0, nil, capacity, map[string]int{}); hits != want {
			t.Errorf("order %v with room for %d: %d hits, want %d", order, capacity, hits, want)
		}
	}
}

// most returns the maximum number of hits of order[at:], over all ways to keep and drop samples.
func most(order []sample.Index, at int, kept []sample.Index, capacity int, known map[string]int) int {
	if at == len(order) {
		return 0
	}
	state := fmt.Sprint(at, kept)
	if n, is := known[state]; is {
		return n
	}
	id, best := order[at], 0
	if slices.Contains(kept, id) {
		best = 1 + most(order, at+1, kept, capacity, known)
	} else {
		best = most(order, at+1, kept, capacity, known) // not kept
		try := func(with []sample.Index) {
			with = append(slices.Clone(with), id)
			slices.Sort(with)
			best = max(best, most(order, at+1, with, capacity, known))
		}
		if len(kept) < capacity {
			try(kept)
		}
		for k := range kept {
			try(slices.Delete(slices.Clone(kept), k, k+1))
		}
	}
	known[state] = best
	return best
}

// TestNextUseModel compares with a search through the rest of the order, with samples of several sizes and over
// several epochs.
func TestNextUseModel(t *testing.T) {
	testenv.WithoutRace(t)
	for trial := range uint64(20) {
		r := rand.New(rand.NewPCG(trial, 3))
		n := 50
		size := func(i sample.Index) int64 { return 1 + int64(i)%4 }
		p := testenv.OK[*policy.NextUse](t)(policy.NewNextUse(n, 30))
		kept := map[sample.Index]int64{}
		for e := range 4 {
			order := requests(r, n, 300)
			targets := make([]float64, n)
			for i := range targets {
				targets[i] = r.Float64() * 2
			}
			targets[3] = 0 // never again
			at := -1
			m := &model{kept: kept, capacity: 30}
			m.key = func(i sample.Index) float64 {
				if next := slices.Index(order[at+1:], i); next >= 0 {
					return -float64(at + 1 + next)
				}
				return -(float64(len(order)) + float64(float32(numeric.Total(targets)/targets[i])))
			}
			m.yields = func(top, in sample.Index) bool {
				return m.key(top) < m.key(in) || m.key(top) == m.key(in) && top < in
			}
			p.Begin(e, targets, order)
			drive(t, p, m, order, size, func(k int, _ sample.Index) { at = k })
		}
		p.Close()
	}
}

// TestHCacheModel: if the shadow heap is finished at once, the cache gives the results of a search by value. While it is
// being built, no sample is lost and the capacity is kept. When it is finished, only values of the newest list count.
func TestHCacheModel(t *testing.T) {
	for trial := range uint64(20) {
		r := rand.New(rand.NewPCG(trial, 4))
		n := 60
		size := func(i sample.Index) int64 { return 1 + int64(i)%5 }
		p := testenv.OK[*policy.HCache](t)(policy.NewHCache(n, 40))
		m := &model{kept: map[sample.Index]int64{}, capacity: 40}
		for e := range 6 {
			values := make([]float64, n)
			for i := range values {
				values[i] = float64(r.IntN(20))
			}
			m.key = func(i sample.Index) float64 { return values[i] }
			m.yields = func(top, in sample.Index) bool { return values[top] < values[in] }
			p.Begin(e, values, nil)
			if e%2 == 0 {
				if !p.Build(-1) {
					t.Fatal("a whole build left entries")
				}
				drive(t, p, m, requests(r, n, 300), size, nil)
				continue
			}
			// A slow build: the contents are compared only with the answers.
			for k, id := range requests(r, n, 200) {
				if k%7 == 0 {
					p.Build(1)
				}
				_, here := m.kept[id]
				if _, kind := p.Get(id, nil); (kind == policy.Hit) != here {
					t.Fatalf("request %d for %d: %v, and it was kept: %v", k, id, kind, here)
				}
				if here {
					continue
				}
				keep, drop := p.Offer(id, size(id))
				for _, i := range drop {
					if _, was := m.kept[i]; !was || !keep {
						t.Fatalf("offer %d drops %d, which was kept: %v; and keeps the new one: %v", k, i, was, keep)
					}
					delete(m.kept, i)
				}
				if keep {
					m.kept[id] = size(id)
				}
				if m.used() > 40 {
					t.Fatalf("%d bytes are used of 40", m.used())
				}
			}
		}
		if p.Late > 3 {
			t.Errorf("%d builds were late, at most 3 were slow", p.Late)
		}
		for _, i := range p.Resize(10) {
			delete(m.kept, i)
		}
		if m.used() > 10 {
			t.Errorf("%d bytes are used of 10", m.used())
		}
		p.Close()
	}
}

// TestAPPModel: the same with changing scores. Uses decide between equal scores.
func TestAPPModel(t *testing.T) {
	testenv.WithoutRace(t)
	for trial := range uint64(40) {
		r := rand.New(rand.NewPCG(trial, 5))
		n, strict := 40, trial%2 == 0
		size := func(i sample.Index) int64 { return 1 + int64(i)%3 }
		p := testenv.OK[*policy.APP](t)(policy.NewAPP(n, 20, strict))
		score, seen := map[sample.Index]float64{}, map[sample.Index]int{}
		m := &model{kept: map[sample.Index]int64{}, capacity: 20}
		// Scores are whole numbers, so the model's key has the uses after the decimal point.
		m.key = func(i sample.Index) float64 { return score[i] + float64(seen[i])/1e6 }
		m.yields = func(top, in sample.Index) bool {
			return seen[in] > 0 && (score[top] < score[in] || !strict && score[top] == score[in])
		}
		drive(t, p, m, requests(r, n, 3000), size, func(int, sample.Index) {
			if r.IntN(2) == 0 {
				i := r.Uint32N(uint32(n))
				score[i] = float64(r.IntN(6))
				seen[i]++
				p.Observe(i, score[i])
			}
		})
		list := []sample.Index{5, 9, 5, 30, 2, 1, 0, 7, 8, 11, 12}
		was := importancetest.Contents(p, n)
		enter, drop := p.Prefetch(list, size)
		want, room := []sample.Index{}, int64(20)
		for k, i := range list {
			if slices.Index(list, i) < k {
				continue
			}
			if room -= size(i); room < 0 {
				break
			}
			want = append(want, i)
		}
		slices.Sort(want)
		if now := importancetest.Contents(p, n); !slices.Equal(now, want) {
			t.Fatalf("after a prefetch of %v: %v, want %v", list, now, want)
		}
		for _, i := range was {
			if gone := !slices.Contains(want, i); gone != slices.Contains(drop, i) {
				t.Errorf("sample %d was kept, is kept: %v, and drop is %v", i, !gone, drop)
			}
		}
		for _, i := range want {
			if slices.Contains(was, i) == slices.Contains(enter, i) {
				t.Errorf("sample %d is kept, was kept: %v, and enter is %v", i, slices.Contains(was, i), enter)
			}
		}
		p.Close()
	}
}

// TestMinIO: the first samples stay.
func TestMinIO(t *testing.T) {
	p := testenv.OK[*policy.MinIO](t)(policy.NewMinIO(10, 10))
	defer p.Close()
	for _, c := range []struct {
		id    sample.Index
		bytes int64
		keep  bool
	}{{1, 4, true}, {2, 7, false}, {3, 6, true}, {4, 1, false}, {5, 0, true}, {1, 4, true}} {
		if keep, drop := p.Offer(c.id, c.bytes); keep != c.keep || drop != nil {
			t.Errorf("sample %d of %d bytes: keep %v, drop %v", c.id, c.bytes, keep, drop)
		}
	}
	if drop := p.Resize(5); !slices.Equal(drop, []sample.Index{5, 3}) {
		t.Errorf("made smaller it drops %v", drop)
	}
}
