package hitratio

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"lcache/internal/testenv"
	"lcache/internal/usage"
)

func trace(t *testing.T, name string, samples int) Trace {
	t.Helper()
	tr, err := Open(name, samples)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// at is the point of a curve.
func at(t *testing.T, r *Report, method string, rep float64, policy string, cache float64) Point {
	t.Helper()
	for _, c := range r.Curves {
		if c.Method == method && c.Rep == rep && c.Policy == policy {
			for _, p := range c.Points {
				if p.Cache == cache {
					return p
				}
			}
		}
	}
	t.Fatalf("no point of %s %v %s at %v", method, rep, policy, cache)
	return Point{}
}

// TestHitRatios compares hit ratios with a reference implementation in another language, within 2 points.
func TestHitRatios(t *testing.T) {
	testenv.Long(t)
	testenv.WithoutRace(t)
	r, err := Run(context.Background(), Options{Trace: trace(t, AR1, 4000), Seed: 1, Policies: []string{"lru", "minio", "paper", "next-use", "min"}, Caches: []float64{0.1, 0.2, 0.4, 0.5, 0.6, 0.8}})
	if err != nil {
		t.Fatal(err)
	}
	permuted := func(c float64) float64 { return c + (1-c)*math.Log(1-c) }
	share := func(c float64) float64 { return c }
	of := func(want ...float64) func(float64) float64 {
		return func(float64) float64 { v := want[0]; want = want[1:]; return v }
	}
	five, four, three := []float64{0.1, 0.2, 0.4, 0.6, 0.8}, []float64{0.2, 0.4, 0.6, 0.8}, []float64{0.1, 0.2, 0.5}
	for _, row := range []struct {
		method string
		rep    float64
		policy string
		caches []float64
		want   func(cache float64) float64
	}{
		{Plain, 1, "lru", five, permuted},
		{Plain, 1, "minio", five, share},
		{Plain, 1, "next-use", five, share}, // MIN, if the next epoch's order is not known
		{"impact", 1, "lru", []float64{0.2}, of(0.057)},
		{"impact", 1, "minio", []float64{0.2}, of(0.202)},
		{"impact", 1, "paper", four, of(0.318, 0.600, 0.812, 0.948)},
		{"impact", 1, "next-use", four, of(0.342, 0.618, 0.821, 0.949)},
		{"shade", 1, "minio", three, share},
		{"shade", 1, "lru", three, share},
		{"shade", 1, "paper", three, of(0.118, 0.235, 0.557)},
		{"shade", 1, "next-use", three, of(0.353, 0.489, 0.703)},
		{"shade", 3, "lru", []float64{0.2}, of(0.41)},
		{"shade", 3, "minio", []float64{0.2}, of(0.595)},
		{"shade", 3, "paper", []float64{0.2}, of(0.68)},
		{"shade", 3, "next-use", []float64{0.2}, of(0.74)},
	} {
		for _, cache := range row.caches {
			if got, want := at(t, r, row.method, row.rep, row.policy, cache).Hits, row.want(cache); math.Abs(got-want) > 0.02 {
				t.Errorf("%s, rep %v, %s with memory for %v of the samples: %.3f of the requests are hits, want %.3f", row.method, row.rep, row.policy, cache, got, want)
			}
		}
	}
	if got := at(t, r, "shade", 1, "paper", 0.2).Unseen; math.Abs(got-0.37) > 0.02 {
		t.Errorf("%.2f of the samples are not in an epoch of SHADE, want 0.37", got)
	}
	if got := at(t, r, "shade", 3, "paper", 0.2).Unseen; math.Abs(got-0.58) > 0.02 {
		t.Errorf("%.2f of the samples are not in an epoch of SHADE that repeats, want 0.58", got)
	}
	// Of other clusters by the same recipe: six points are as near as it can be.
	for k, want := range []float64{0.45, 0.54, 0.74} {
		if got := at(t, r, "spider", 1, "paper", three[k]).Hits; math.Abs(got-want) > 0.06 {
			t.Errorf("spider with memory for %v of the samples: %.3f of the requests are hits, want %.3f", three[k], got, want)
		}
	}
	for _, c := range r.Curves { // MIN is the most that can be
		for _, p := range c.Points {
			most := at(t, r, c.Method, c.Rep, "min", p.Cache).Hits
			if c.Rep == 1 && p.Hits > most+1e-9 {
				t.Errorf("%s, %s at %v: %.4f, MIN has %.4f", c.Method, c.Policy, p.Cache, p.Hits, most)
			}
		}
	}
	if u := r.Unstable; len(u) != len(shares) || u[0].Share != 0 || math.Abs(u[0].Hits-0.318) > 0.02 || math.Abs(u[2].Hits-0.291) > 0.03 || !slices.IsSortedFunc(u, func(a, b Share) int { return int(1000 * (b.Hits - a.Hits)) }) {
		t.Errorf("with a part of memory for unstable samples %+v", u)
	}
}

// TestSubstitutes: SpiderCache with substitutes as in the paper has the hits and substitutes of a reference in another language, within 7 points each. A server's plan,
// made between two epochs under its rules, has as many hits and fewer substitutes. A plan by next use has more of both together. Few substitutes have left memory when
// their turn comes.
func TestSubstitutes(t *testing.T) {
	testenv.WithoutRace(t)
	o := Options{Trace: trace(t, AR1, 1500)}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	all := setups(o)
	count := func(policy string, cache float64) (hits, substituted, gone float64) {
		p := &player{policy: policy, cache: cache}
		if err := all[len(all)-1].play(context.Background(), o, 1, []*player{p}); err != nil {
			t.Fatal(err)
		}
		return p.hits(), p.substitutes(), float64(p.gone) / float64(p.asked)
	}
	for cache, want := range map[float64][2]float64{0.1: {0.32, 0.22}, 0.2: {0.45, 0.23}, 0.5: {0.64, 0.18}} {
		hits, substituted, gone := count("substitutes", cache)
		if math.Abs(hits-want[0]) > 0.07 || math.Abs(substituted-want[1]) > 0.07 || gone != 0 {
			t.Errorf("memory for %v of the samples: %.3f hits and %.3f substitutes, want %v", cache, hits, substituted, want)
		}
		planned, instead, late := count("planned", cache)
		if planned < hits || instead < 0.02 || instead > substituted || late > 0.02 {
			t.Errorf("memory for %v of the samples: got %.3f hits, %.3f substitutes and %.3f evicted substitutes with a plan; %.3f hits and %.3f substitutes without", cache, planned, instead, late, hits, substituted)
		}
		if next, others, late := count("planned-next-use", cache); next < planned || others < 0.02 || next+others < planned+instead || late > 0.02 {
			t.Errorf("memory for %v of the samples: got %.3f hits, %.3f substitutes and %.3f evicted substitutes with a plan by next use", cache, next, others, late)
		}
	}
}

// TestRatios: for each policy with substitutes, the report has hits and substitutes by the ratio. With all memory for important samples, there are no substitutes.
func TestRatios(t *testing.T) {
	testenv.WithoutRace(t)
	r, err := Run(context.Background(), Options{Trace: trace(t, AR1, 300), Seed: 1, Policies: []string{"paper", "planned"}, Caches: []float64{0.2}})
	if err != nil || len(r.Ratios) != len(ratios) {
		t.Fatal(err, r)
	}
	for _, at := range r.Ratios {
		if at.Policy != "planned" || at.Hits <= 0 || (at.Substituted > 0) != (at.Ratio < 1) {
			t.Errorf("%+v", at)
		}
	}
}

// TestOptions: what can't be is refused, and a context ends a run.
func TestOptions(t *testing.T) {
	ar1 := trace(t, AR1, 100)
	for name, o := range map[string]Options{
		"a policy": {Trace: ar1, Policies: []string{"paperr"}}, "one epoch": {Trace: ar1, Epochs: 1}, "a batch": {Trace: ar1, Batch: -1},
		"epochs that a file lacks": {Trace: Trace{Name: "f", Samples: 3, Epochs: 3}, Epochs: 4},
	} {
		var wrong *usage.Error
		if _, err := Run(context.Background(), o); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(over, Options{Trace: ar1}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled run: %v", err)
	}
	if _, err := Open(AR1, -1); err == nil {
		t.Error("a negative number of samples")
	}
}

// TestPackages: with a tenth of the memory for packages, ImPACT's H-cache has nearly as many hits as alone. Loaded packages serve nearly all other requests. At no time are more
// packages loaded than have room.
func TestPackages(t *testing.T) {
	testenv.WithoutRace(t)
	o := Options{Trace: trace(t, AR1, 4000)}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	for _, cache := range []float64{0.2, 0.6} {
		alone, with := &player{policy: "paper", cache: cache}, &player{policy: packages, cache: cache}
		for _, p := range []*player{alone, with} {
			if err := setups(o)[1].play(t.Context(), o, 1, []*player{p}); err != nil {
				t.Fatal(err)
			}
		}
		rest := 1 - with.hits() - with.loads() - with.substitutes()
		if lost := alone.hits() - with.hits(); lost < 0.02 || lost > 0.12 || rest < 0 || rest > 0.12 || with.substitutes() < 0.1 || with.loads() <= 0 {
			t.Errorf("memory for %v of the samples: got %.3f hits alone; with packages %.3f hits, %.3f loaded and %.3f replaced", cache, alone.hits(), with.hits(), with.loads(), with.substitutes())
		}
		if room := cache * 4000; float64(with.most) > max(room/10, packageSamples) {
			t.Errorf("%d samples were loaded at once, in memory for %v", with.most, room)
		}
	}
}
