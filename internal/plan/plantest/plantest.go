// Package plantest compares the formulas of plans and simulations with golden cases, which an independent program computed. It is only for tests.
//
// [Run] reads the cases of testdata/cases.json, or of the file that PLAN_CASES names, and runs a subtest for each. The file may have cases of several
// kinds: each package computes its own, and skips the others.
package plantest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
)

// kinds are all kinds that package plan or package simulate computes.
var kinds = []string{"frequency", "lemma1", "placement", "next_use", "next_use_at", "layout", "run", "best_admission", "auto", "crossover", "mixed", "memory", "fit", "space", "mix",
	"consume", "simulate"}

// goldenCase is an input and the expected result.
type goldenCase struct {
	Kind   string          `json:"kind"`
	Input  json.RawMessage `json:"input"`
	Want   map[string]any  `json:"want"`
	RelTol float64         `json:"rel_tol"`
}

// Run compares the cases with the results of compute for their inputs, by kind. The result must have the expected names.
func Run(t *testing.T, compute map[string]func(t *testing.T, input json.RawMessage) any) {
	t.Helper()
	path := os.Getenv("PLAN_CASES")
	if path == "" {
		path = "testdata/cases.json"
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []goldenCase }
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	ran := 0
	for i, c := range file.Cases {
		of, ok := compute[c.Kind]
		if !ok && slices.Contains(kinds, c.Kind) {
			continue // the other package computes it
		}
		ran++
		t.Run(fmt.Sprintf("%03d-%s", i, c.Kind), func(t *testing.T) {
			if !ok {
				t.Fatalf("case %d is of kind %q, which nothing here computes", i, c.Kind)
			}
			compareCase(t, c, AsMap(t, of(t, c.Input)))
		})
	}
	if ran == 0 {
		t.Fatalf("%s has no cases of this package", path)
	}
}

// compareCase compares everything that a case expects: numbers by relative error, words exactly.
func compareCase(t *testing.T, c goldenCase, got map[string]any) {
	t.Helper()
	if len(c.Want) == 0 {
		t.Fatal("the case wants nothing")
	}
	for name, want := range c.Want {
		have, ok := got[name]
		if !ok {
			t.Errorf("%s is missing, want %v", name, want)
			continue
		}
		if why := differs(have, want, c.RelTol); why != "" {
			t.Errorf("%s: %s\n%s", name, why, c.Input)
		}
	}
}

func differs(have, want any, tol float64) string {
	switch want := want.(type) {
	case float64:
		have, ok := have.(float64)
		if !ok || math.IsNaN(have) || math.Abs(have-want) > tol*max(math.Abs(want), math.Abs(have)) && math.Abs(have-want) > 1e-12 {
			return fmt.Sprintf("got %.16g, want %.16g", have, want)
		}
	case []any:
		have, ok := have.([]any)
		if !ok || len(have) != len(want) {
			return fmt.Sprintf("got %v, want %v", have, want)
		}
		for i := range want {
			if why := differs(have[i], want[i], tol); why != "" {
				return fmt.Sprintf("at %d: %s", i, why)
			}
		}
	default:
		if have != want {
			return fmt.Sprintf("got %v, want %v", have, want)
		}
	}
	return ""
}

// AsMap returns an answer as decoded JSON.
func AsMap(t *testing.T, answer any) (m map[string]any) {
	t.Helper()
	text, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// Decode decodes an input, and fails for unknown keys.
func Decode(t *testing.T, input json.RawMessage, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v in %s", err, input)
	}
}
