package substitute_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/internal/importance/policy"
	"lcache/internal/importance/substitute"
	"lcache/internal/testenv"
	"lcache/sample"
)

// TestLCacheRules: a substitute was not yet served in this epoch, an exact read counts as served, and a refused
// candidate stays.
func TestLCacheRules(t *testing.T) {
	for trial := range uint64(40) {
		r := rand.New(rand.NewPCG(trial, 1))
		const n = 60
		size := func(i sample.Index) int64 { return 1 + int64(i)%3 }
		c := testenv.OK[*substitute.LCache](t)(substitute.NewLCache(n, 25))
		served, asked, loaded := map[sample.Index]bool{}, []sample.Index{}, []sample.Index{}
		for step := range 1500 {
			switch x := r.IntN(12); {
			case x == 0:
				var members []sample.Index
				for range 8 {
					members = append(members, r.Uint32N(n+2)) // also beyond the dataset
				}
				drop := c.Load(members, size)
				for _, i := range members {
					if i < n && !served[i] && !slices.Contains(loaded, i) {
						loaded = append(loaded, i)
					}
				}
				used := int64(0)
				for _, i := range loaded {
					used += size(i)
				}
				want := []sample.Index(nil)
				for used > 25 {
					used -= size(loaded[0])
					want = append(want, loaded[0])
					loaded = loaded[1:]
				}
				if !slices.Equal(drop, want) {
					t.Fatalf("trial %d, step %d: a package drops %v, want %v", trial, step, drop, want)
				}
			case x == 1 && step%10 == 0:
				c.Begin()
				served, asked = map[sample.Index]bool{}, nil
			default:
				id := r.Uint32N(n)
				odd := func(i sample.Index) bool { return i%2 == 1 }
				may := []policy.May{nil, policy.Always, odd}[r.IntN(3)]
				got, kind := c.Get(id, may)
				wantID, wantKind := id, policy.Miss
				if slices.Contains(loaded, id) {
					wantKind = policy.Hit
				} else {
					if !served[id] && !slices.Contains(asked, id) {
						asked = append(asked, id)
					}
					if k := slices.IndexFunc(loaded, func(i sample.Index) bool { return may != nil && may(i) }); k >= 0 {
						wantID, wantKind = loaded[k], policy.Substitute
					}
				}
				if got != wantID || kind != wantKind {
					t.Fatalf("trial %d, step %d: sample %d is a %v by %d, want a %v by %d", trial, step, id, kind, got, wantKind, wantID)
				}
				if kind == policy.Miss {
					c.Served(id)
				}
				if kind == policy.Substitute && served[got] {
					t.Fatalf("trial %d, step %d: substitute %d was served before", trial, step, got)
				}
				served[got] = true
				loaded = slices.DeleteFunc(loaded, func(i sample.Index) bool { return i == got })
			}
			if left := c.Left(); !slices.Equal(left, loaded) {
				t.Fatalf("trial %d, step %d: left %v, want %v", trial, step, left, loaded)
			}
			if !slices.Equal(c.Asked(), asked) {
				t.Fatalf("trial %d, step %d: asked %v, want %v", trial, step, c.Asked(), asked)
			}
		}
		c.Close()
	}
}
