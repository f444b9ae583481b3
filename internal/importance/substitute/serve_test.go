package substitute_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lcache/internal/importance/importancetest"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/substitute"
	"lcache/internal/testenv"
	"lcache/sample"

	"github.com/cockroachdb/datadriven"
)

// TestServe reads testdata with whole epochs with substitutes.
func TestServe(t *testing.T) {
	datadriven.RunTest(t, "testdata/serve.txt", func(t *testing.T, d *datadriven.TestData) string { return tellServe(t, d) })
}

func tellServe(t *testing.T, d *datadriven.TestData) string {
	o := substitute.LoadingOptions{Samples: 40, Size: importancetest.Unit, Depth: 2, First: true}
	cut, rule := substitute.Cut{World: 1, Batch: 4}, substitute.Low
	var high []sample.Index
	for _, arg := range d.CmdArgs {
		n := 0
		if len(arg.Vals) == 1 {
			n, _ = strconv.Atoi(arg.Vals[0])
		}
		switch arg.Key {
		case "off":
			rule = ""
		case "depth":
			o.Depth = n
		case "world":
			cut.World = n
		case "batch":
			cut.Batch = n
		case "seed":
			o.Seed, o.First = uint64(n), false
		case "high":
			for _, v := range arg.Vals {
				high = append(high, indices(t, v)...)
			}
		default:
			d.Fatalf(t, "no argument %s", arg.Key)
		}
	}
	o.High = func(i sample.Index) bool { return slices.Contains(high, i) }
	var units [][]sample.Index
	var order []sample.Index
	for _, line := range strings.Split(d.Input, "\n") {
		switch verb, rest, _ := strings.Cut(line, " "); verb {
		case "unit":
			units = append(units, indices(t, rest))
		case "order":
			order = append(order, indices(t, rest)...)
		default:
			d.Fatalf(t, "no line %q", line)
		}
	}
	loading := testenv.OK[*substitute.Loading](t)(substitute.NewLoading(units, o))
	defer loading.Close()
	rules := substitute.NewRules(rule, loading, o.High)
	p := testenv.OK[substitute.Plan](t)(rules.Serve(order, cut))
	defer p.Close()
	var out strings.Builder
	cut.Each(len(order), func(places []int) {
		s := substitute.Served{}
		var asked []sample.Index
		for _, k := range places {
			asked, s.Index, s.Kind = append(asked, order[k]), append(s.Index, p.Indices[k]), append(s.Kind, p.Kinds.At(k))
		}
		fmt.Fprintln(&out, told(asked, s))
	})
	substituted, most := rules.Counted()
	fmt.Fprintf(&out, "substituted %d, one sample at most %d; %d units loaded, %d samples at once\n", substituted, most, loading.Loads(), loading.Most())
	return out.String()
}

// epoch is a random drawn epoch, over units of random samples.
type epoch struct {
	n     int
	order []sample.Index
	units [][]sample.Index
	high  map[sample.Index]bool
	o     substitute.LoadingOptions
	cut   substitute.Cut
}

func randomEpoch(seed uint64) epoch {
	r := rand.New(rand.NewPCG(seed, 3))
	e := epoch{n: 20 + r.IntN(400), high: map[sample.Index]bool{}, cut: substitute.Cut{World: 1 + r.IntN(3), Batch: 1 + r.IntN(12)}}
	all := r.Perm(e.n)
	for k, i := range all {
		if k < e.n/5 {
			e.high[sample.Index(i)] = true
		}
		if r.IntN(3) > 0 {
			e.order = append(e.order, sample.Index(i))
		}
	}
	r.Shuffle(len(e.order), func(i, j int) { e.order[i], e.order[j] = e.order[j], e.order[i] })
	e.o = substitute.LoadingOptions{Samples: e.n, Size: importancetest.Unit, Depth: 1 + r.IntN(4), Seed: seed, Epoch: int(seed % 5), High: func(i sample.Index) bool { return e.high[i] }}
	var one []sample.Index
	for _, i := range r.Perm(e.n) {
		if r.IntN(10) == 0 { // not in the cache
			continue
		}
		if one = append(one, sample.Index(i)); len(one) == 1+r.IntN(40) {
			e.units, one = append(e.units, one), nil
		}
	}
	return e
}

func (e epoch) plan(t *testing.T, rule string) (substitute.Plan, *substitute.Loading) {
	t.Helper()
	units := make([][]sample.Index, len(e.units))
	for k := range units {
		units[k] = slices.Clone(e.units[k])
	}
	l := testenv.OK[*substitute.Loading](t)(substitute.NewLoading(units, e.o))
	return testenv.OK[substitute.Plan](t)(substitute.NewRules(rule, l, e.o.High).Serve(e.order, e.cut)), l
}

// TestServeHolds: whatever is drawn and wherever it is stored, the served order follows the rules, restated here, and
// is the same each time.
func TestServeHolds(t *testing.T) {
	substitutes := 0
	for seed := range uint64(200) {
		e := randomEpoch(seed)
		p, l := e.plan(t, substitute.Low)
		again, l2 := e.plan(t, substitute.Low)
		off, l3 := e.plan(t, "")
		if !slices.Equal(p.Indices, again.Indices) || !slices.Equal(p.Kinds, again.Kinds) {
			t.Errorf("seed %d: two plans differ", seed)
		}
		if !slices.Equal(off.Indices, e.order) {
			t.Errorf("seed %d: substitutes are served, but the user allowed none", seed)
		}
		served := map[sample.Index]bool{}
		e.cut.Each(len(e.order), func(places []int) {
			var asked []sample.Index
			for _, k := range places {
				asked = append(asked, e.order[k])
			}
			seen := map[sample.Index]bool{}
			for i, k := range places {
				got, kind := p.Indices[k], p.Kinds.At(k)
				switch {
				case (kind == policy.Substitute) != (got != asked[i]):
					t.Errorf("seed %d: %d is served for %d as a %v", seed, got, asked[i], kind)
				case kind == policy.Substitute && (e.high[got] || e.high[asked[i]] || served[got] || seen[got] || slices.Contains(asked, got)):
					t.Errorf("seed %d: %d stands in for %d of %v; H %v, served before %v, in the batch %v", seed, got, asked[i], asked, e.high[got], served[got], seen[got])
				case e.high[got] && kind != policy.Miss:
					t.Errorf("seed %d: H-sample %d is a %v", seed, got, kind)
				}
				if kind == policy.Substitute {
					substitutes++
				}
				seen[got] = true
			}
			for got := range seen {
				served[got] = true
			}
		})
		largest := 0
		for _, u := range e.units {
			largest = max(largest, len(u))
		}
		if l.Most() > int64(e.o.Depth*largest) {
			t.Errorf("seed %d: %d samples loaded at once, %d units have %d at most", seed, l.Most(), e.o.Depth, e.o.Depth*largest)
		}
		for _, p := range []*substitute.Plan{&p, &again, &off} {
			p.Close()
		}
		for _, l := range []*substitute.Loading{l, l2, l3} {
			l.Close()
		}
	}
	if substitutes < 1000 {
		t.Errorf("only %d substitutes", substitutes)
	}
}

// TestServeIsRandom: another seed or another epoch gives other substitutes.
func TestServeIsRandom(t *testing.T) {
	e := randomEpoch(0)
	for seed := uint64(1); len(e.units) < 10*e.o.Depth; seed++ {
		e = randomEpoch(seed)
	}
	first, l := e.plan(t, substitute.Low)
	defer l.Close()
	defer first.Close()
	for name, change := range map[string]func(){"seed": func() { e.o.Seed++ }, "epoch": func() { e.o.Epoch++ }} {
		change()
		other, l := e.plan(t, substitute.Low)
		if slices.Equal(first.Indices, other.Indices) {
			t.Errorf("another %s, the same substitutes", name)
		}
		other.Close()
		l.Close()
	}
}

// TestRecut: cut into other batches than planned, a plan serves no substitute twice in a batch, or after the sample
// itself.
func TestRecut(t *testing.T) {
	for _, c := range []struct {
		rule                    string
		requested, served, want []sample.Index
		planned, batch          int
	}{
		{substitute.Low, []sample.Index{1, 2, 3}, []sample.Index{1, 8, 9}, []sample.Index{1, 8, 9}, 3, 3},
		{substitute.Low, []sample.Index{1, 2, 3}, []sample.Index{1, 8, 8}, []sample.Index{1, 8, 3}, 3, 3},          // twice: the second one is replaced
		{substitute.Low, []sample.Index{1, 2, 3}, []sample.Index{1, 3, 9}, []sample.Index{1, 2, 9}, 3, 3},          // requested in the batch
		{substitute.Low, []sample.Index{1, 2, 2}, []sample.Index{2, 2, 2}, []sample.Index{1, 2, 2}, 3, 3},          // a sample served as itself is not changed
		{substitute.Low, []sample.Index{1, 2, 3, 4}, []sample.Index{2, 2, 1, 4}, []sample.Index{1, 2, 3, 4}, 4, 2}, // sample 1 was served as itself instead, so it replaces no other sample
		{substitute.Class, []sample.Index{1, 2, 3, 4}, []sample.Index{2, 2, 1, 4}, []sample.Index{1, 2, 1, 4}, 4, 2},
		{substitute.Low, []sample.Index{1, 2, 1, 4, 5, 6}, []sample.Index{9, 2, 1, 4, 1, 6}, []sample.Index{9, 2, 1, 4, 5, 6}, 2, 2}, // positions from 2 on do not belong to the plan
	} {
		served := slices.Clone(c.served)
		if substitute.Recut(c.rule, c.requested, served, c.planned, substitute.Cut{World: 1, Batch: c.batch}); !slices.Equal(served, c.want) {
			t.Errorf("%v served by %v: %v, want %v", c.requested, c.served, served, c.want)
		}
	}
	for seed := range uint64(50) {
		e := randomEpoch(seed)
		p, l := e.plan(t, substitute.Low)
		served := slices.Clone(p.Indices)
		if substitute.Recut(substitute.Low, e.order, served, len(served), e.cut); !slices.Equal(served, p.Indices) {
			t.Errorf("seed %d: a lawful plan is changed", seed)
		}
		other := substitute.Cut{World: e.cut.World + 1, Batch: e.cut.Batch + 2}
		substitute.Recut(substitute.Low, e.order, served, len(served), other)
		again := slices.Clone(served)
		if substitute.Recut(substitute.Low, e.order, again, len(again), other); !slices.Equal(again, served) {
			t.Errorf("seed %d: substitutes that the rules allow in other batches are changed again", seed)
		}
		p.Close()
		l.Close()
	}
}

// BenchmarkServe measures the plan of an epoch of a million samples.
func BenchmarkServe(b *testing.B) {
	const n = 1 << 20
	r := rand.New(rand.NewPCG(1, 1))
	var order []sample.Index
	for _, i := range r.Perm(n)[:n/2] {
		order = append(order, sample.Index(i))
	}
	members := make([]sample.Index, n)
	for i := range members {
		members[i] = sample.Index(i)
	}
	high := func(i sample.Index) bool { return i%5 == 0 }
	for b.Loop() {
		units := slices.Collect(slices.Chunk(slices.Clone(members), 4096))
		l, err := substitute.NewLoading(units, substitute.LoadingOptions{Samples: n, Size: importancetest.Unit, High: high, Depth: 3})
		if err != nil {
			b.Fatal(err)
		}
		p, err := substitute.NewRules(substitute.Low, l, high).Serve(order, substitute.Cut{World: 1, Batch: 256})
		if err != nil {
			b.Fatal(err)
		}
		p.Close()
		l.Close()
	}
}
