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

const lawSamples = 12

// TestRules reads testdata with cases of substitution.
func TestRules(t *testing.T) {
	datadriven.RunTest(t, "testdata/rules.txt", func(t *testing.T, d *datadriven.TestData) string { return tellRules(t, d) })
}

// tellRules runs one paragraph.
func tellRules(t *testing.T, d *datadriven.TestData) string {
	rule, uses := d.Cmd, 0
	var high []sample.Index
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "off":
			rule = ""
		case "uses":
			uses, _ = strconv.Atoi(arg.Vals[0])
		case "high":
			for _, v := range arg.Vals {
				high = append(high, indices(t, v)...)
			}
		default:
			d.Fatalf(t, "no argument %s", arg.Key)
		}
	}
	low := testenv.OK[*substitute.LCache](t)(substitute.NewLCache(lawSamples, 4))
	defer low.Close()
	labels := make([]int32, lawSamples)
	for i := range labels {
		labels[i] = int32(i % 2)
	}
	near := importancetest.Paired(t, "paper", labels, 8, 0.5, uses)
	defer near.Close()
	var keeper substitute.Keeper = low
	if d.Cmd == "class" {
		keeper = near
	}
	rules := substitute.NewRules(rule, keeper, func(i sample.Index) bool { return slices.Contains(high, i) })
	var out strings.Builder
	for _, line := range strings.Split(d.Input, "\n") {
		verb, rest, _ := strings.Cut(line, " ")
		said := ""
		switch verb {
		case "load":
			low.Load(indices(t, rest), importancetest.Unit)
		case "exact":
			for _, i := range indices(t, rest) {
				low.Served(i)
			}
		case "node":
			node, list, _ := strings.Cut(rest, " of ")
			keep, _ := near.Put(indices(t, node)[0], indices(t, list), 1)
			if !keep {
				said = ": refused"
			}
		case "label":
			v := indices(t, rest)
			labels[v[0]] = int32(v[1])
		case "epoch":
			low.Begin()
			near.Begin(0, nil, nil)
			rules.Begin()
		case "repack":
			said = ": " + fmt.Sprint(low.Asked())
		case "ask", "foreign":
			asked := indices(t, rest)
			said = ": " + told(asked, rules.Batch(asked, verb == "ask"))
		default:
			d.Fatalf(t, "no step %q", line)
		}
		fmt.Fprintf(&out, "%s%s\n", line, said)
	}
	substituted, most := rules.Counted()
	fmt.Fprintf(&out, "substituted %d, one sample at most %d\n", substituted, most)
	return out.String()
}

func told(asked []sample.Index, s substitute.Served) string {
	var words []string
	for k, id := range asked {
		switch s.Kind[k] {
		case policy.Hit:
			words = append(words, fmt.Sprint(s.Index[k]))
		case policy.Miss:
			words = append(words, fmt.Sprintf("%d?", s.Index[k]))
		default:
			words = append(words, fmt.Sprintf("%d for %d", s.Index[k], id))
		}
	}
	return strings.Join(words, ", ")
}

func indices(t *testing.T, text string) (out []sample.Index) {
	t.Helper()
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' }) {
		n, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, sample.Index(n))
	}
	return out
}

// TestRulesHold: the rules, restated here, hold whatever is loaded, listed and requested. A substitute is never served
// for an H-sample, is never twice in a batch, and was allowed. For "low" it is not an H-sample and was not yet served
// in the epoch; for "class" it has the class of the requested sample. A hit and a miss are the sample itself.
func TestRulesHold(t *testing.T) {
	const n = 80
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 8))
		class, on := seed%2 == 1, seed%5 != 0
		low := testenv.OK[*substitute.LCache](t)(substitute.NewLCache(n, 30))
		labels := make([]int32, n)
		for i := range labels {
			labels[i] = int32(r.IntN(3))
		}
		near := importancetest.Paired(t, "paper", labels, 40, 0.5, 0)
		rule, keeper := substitute.Low, substitute.Keeper(low)
		if class {
			rule, keeper = substitute.Class, near
		}
		if !on {
			rule = ""
		}
		high := map[sample.Index]bool{}
		for range 10 {
			high[r.Uint32N(n)] = true
		}
		rules := substitute.NewRules(rule, keeper, func(i sample.Index) bool { return high[i] })
		served, uses := map[sample.Index]bool{}, map[sample.Index]int{}
		substituted, most := int64(0), 0
		for step := range 600 {
			switch x := r.IntN(20); {
			case x == 0 && step%3 == 0:
				low.Begin()
				near.Begin(0, nil, nil)
				rules.Begin()
				clear(served)
				clear(uses)
			case x < 4:
				members := make([]sample.Index, 10)
				for k := range members {
					members[k] = r.Uint32N(n)
				}
				low.Load(slices.DeleteFunc(slices.Clone(members), func(i sample.Index) bool { return high[i] }), importancetest.Unit)
				near.Put(members[0], members[1:], 1)
			default:
				asked := make([]sample.Index, 1+r.IntN(8))
				for k := range asked {
					asked[k] = r.Uint32N(n)
				}
				own := r.IntN(6) > 0
				s := rules.Batch(asked, own)
				for k, got := range s.Index {
					if s.Kind[k] != policy.Substitute {
						if got != asked[k] {
							t.Fatalf("seed %d, step %d: %d is served for %d, as a %v", seed, step, got, asked[k], s.Kind[k])
						}
						continue
					}
					substituted++
					uses[got]++
					most = max(most, uses[got])
					twice := slices.Contains(asked, got) || slices.Contains(s.Index[:k], got)
					if !on || !own || !class && high[got] || high[asked[k]] || twice || !class && served[got] || class && (labels[got] != labels[asked[k]]) {
						t.Fatalf("seed %d, step %d: %d stands in for %d in %v, which gives %v; on %v, own %v, served %v, uses %d", seed, step, got, asked[k], asked, s.Index, on, own, served[got], uses[got])
					}
				}
				for k, got := range s.Index {
					if own && !high[got] && !class {
						served[got] = true
						if s.Kind[k] == policy.Miss {
							low.Served(got)
						}
					}
				}
			}
		}
		if got, gotMost := rules.Counted(); got != substituted || gotMost != most || on != (got > 0) {
			t.Errorf("seed %d: counted %d substitutes, one at most %d times; want %d and %d; on %v", seed, got, gotMost, substituted, most, on)
		}
		low.Close()
		near.Close()
	}
}
