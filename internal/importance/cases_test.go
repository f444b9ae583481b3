package importance_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"strconv"
	"testing"
)

// number is a float of a case: a JSON number, null, "nan" or "inf".
type number float64

func (n *number) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil && string(b) != "null" {
		f, err := strconv.ParseFloat(s, 64)
		*n = number(f)
		return err
	}
	var f float64
	err := json.Unmarshal(b, &f)
	*n = number(f)
	return err
}

func floats(ns []number) []float64 {
	out := make([]float64, len(ns))
	for i, n := range ns {
		out[i] = float64(n)
	}
	return out
}

// seed is a decimal string.
type seed uint64

func (s *seed) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return err
	}
	n, err := strconv.ParseUint(text, 10, 64)
	*s = seed(n)
	return err
}

// op is one operation of a case: its name and its arguments.
type op struct {
	name string
	args []json.RawMessage
}

func (o *op) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &o.args); err != nil {
		return err
	}
	if len(o.args) == 0 {
		return fmt.Errorf("an operation without a name")
	}
	err := json.Unmarshal(o.args[0], &o.name)
	o.args = o.args[1:]
	return err
}

// input decodes the input of a case for a function. A field that the function does not know is an error; otherwise it
// would be ignored silently.
func input[T any](t *testing.T, raw json.RawMessage) (in T) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		t.Fatal(err)
	}
	return in
}

// arg decodes argument k of an operation.
func arg[T any](t *testing.T, o op, k int) (x T) {
	t.Helper()
	if k >= len(o.args) {
		t.Fatalf("operation %s has %d arguments", o.name, len(o.args))
	}
	if err := json.Unmarshal(o.args[k], &x); err != nil {
		t.Fatal(err)
	}
	return x
}

// agree compares a function's result with the expected one: floats to 1e-12 relative, everything else exactly.
func agree(t *testing.T, where string, got, want any) {
	t.Helper()
	switch w := want.(type) {
	case float64:
		g, ok := got.(float64)
		if !ok || math.Abs(g-w) > 1e-12*math.Max(math.Abs(g), math.Abs(w)) {
			t.Errorf("%s is %v, want %v", where, got, w)
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			t.Errorf("%s is %v, want %v", where, got, want)
			return
		}
		for i := range w {
			agree(t, fmt.Sprintf("%s[%d]", where, i), g[i], w[i])
		}
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(w) {
			t.Errorf("%s is %v, want %v", where, got, want)
			return
		}
		for k := range w {
			agree(t, where+"."+k, g[k], w[k])
		}
	default:
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, want %v", where, got, want)
		}
	}
}

// plain returns a value in the form that JSON decodes to.
func plain(t *testing.T, x any) (out any) {
	t.Helper()
	b, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// kinds has a function for each kind of case. Each returns the result to compare.
var kinds = map[string]func(t *testing.T, in json.RawMessage) any{
	"splitmix64": caseSplitMix, "uniform": caseUniform, "shuffle": caseShuffle, "cross_entropy": caseCrossEntropy,
	"rank_scores": caseRankScores, "rank_scorer": caseRankScorer, "warmup": caseWarmUp, "iis_targets": caseIIS,
	"weighted_targets": caseWeighted, "repeat_cached": caseRepeat, "order": caseOrder, "split_order": caseSplit,
	"hcache": caseHCache, "lcache": caseLCache, "hcache_bytes": caseHBytes, "app": caseAPP, "graph_score": caseGraphScore,
	"graph_scorer": caseGraphScorer, "spider": caseSpider, "elastic": caseElastic, "clairvoyant": caseClairvoyant,
}

// TestCases runs golden cases that a reference in another language has made. IMPORTANCE_CASES names another file of
// cases.
func TestCases(t *testing.T) {
	path := os.Getenv("IMPORTANCE_CASES")
	if path == "" {
		path = "testdata/cases.json"
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Format int
		Cases  []struct {
			Kind, Name string
			In         json.RawMessage
			Want       any
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if file.Format != 1 || len(file.Cases) == 0 {
		t.Fatalf("%s has format %d and %d cases; want format 1 and some", path, file.Format, len(file.Cases))
	}
	met := map[string]bool{}
	for _, c := range file.Cases {
		met[c.Kind] = true
		t.Run(c.Kind+"/"+c.Name, func(t *testing.T) {
			run := kinds[c.Kind]
			if run == nil {
				t.Fatalf("no function for cases of kind %s", c.Kind)
			}
			agree(t, "the result", plain(t, run(t, c.In)), c.Want)
			if c.Kind == "lcache" {
				agree(t, "by the rules", plain(t, caseRules(t, c.In)), c.Want)
			}
		})
	}
	for kind := range kinds {
		if os.Getenv("IMPORTANCE_CASES") == "" && !met[kind] {
			t.Errorf("%s has no case of kind %s", path, kind)
		}
	}
}
