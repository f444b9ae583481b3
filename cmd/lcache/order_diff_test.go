package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lcache/shuffle"
)

// stateFile writes a state with some keys changed, and returns its name.
func stateFile(t *testing.T, dir, name string, change map[string]any) string {
	t.Helper()
	state := map[string]any{"v": 1, "seed": 5, "epoch": 1, "consumed": 2, "world": 1, "batch_size": 4, "fingerprint": "f", "order_digest": strings.Repeat("ab", 32)}
	for key, value := range change {
		if state[key] = value; value == "absent" {
			delete(state, key)
		}
	}
	text, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	writeFile(t, path, string(text))
	return path
}

// digestOf is the digest of a recipe's order of one epoch, by the definition in docs/pytorch.md.
func digestOf(t *testing.T, spec shuffle.Spec, epoch int) string {
	t.Helper()
	r, err := shuffle.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	order, err := r.Global(epoch, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for _, x := range order {
		b = append(b, byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
	}
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

func TestOrderDiff(t *testing.T) {
	dir := t.TempDir()
	distributed := func(seed string, world int) string {
		return digestOf(t, shuffle.Spec{Recipe: "torch.distributed_sampler", Samples: 20, Seed: seed, World: world}, 1)
	}
	other := strings.Repeat("cd", 32)
	for i, c := range []struct {
		a, b map[string]any
		args string
		exit int
		want []string
	}{
		{nil, nil, "", 0, []string{"equal: epoch 1, batch 2, order abababababab…"}},
		{nil, map[string]any{"consumed": 3}, "", 1, []string{"consumed  2, 3", "both have the same order; they are at different positions"}},
		{nil, map[string]any{"seed": 6, "order_digest": other}, "", 1, []string{"seed          5, 6", "first difference: epoch 1\n", "give --samples N"}},
		{nil, map[string]any{"order_digest": other}, "", 1, []string{"no option in the states is the cause"}},
		{nil, map[string]any{"fingerprint": "g"}, "", 1, []string{"fingerprint  f, g", "different datasets"}},
		{nil, map[string]any{"epoch": 2, "order_digest": other}, "", 1, []string{"epoch         1, 2", "of different epochs"}},
		{nil, map[string]any{"batch_size": 8}, "", 1, []string{"batch_size  4, 8", "in batches of other sizes"}},
		{nil, map[string]any{"world": 2}, "", 1, []string{"world  1, 2", "first difference: epoch 1, rank 0, position 1\n"}},
		{nil, map[string]any{"order_digest": nil}, "", 1, []string{"a state has no digest"}},
		{map[string]any{"order_digest": distributed("5", 2), "world": 2}, map[string]any{"order_digest": distributed("5", 4), "world": 4}, "--samples 20", 1,
			[]string{"world  2, 4", "both orders are those of DistributedSampler", "first difference: epoch 0, rank 0, position 1: sample "}},
		{map[string]any{"order_digest": distributed("5", 2), "world": 2}, map[string]any{"order_digest": distributed("6", 2), "world": 2, "seed": 6}, "--samples 20", 1,
			[]string{"first difference: epoch 0, rank 0, position 0: sample "}},
		{map[string]any{"order_digest": distributed("5", 2), "world": 2}, map[string]any{"order_digest": distributed("5", 2), "world": 2, "consumed": 1}, "--samples 20", 1,
			[]string{"each rank reads the same samples in the same order"}},
		{map[string]any{"order_digest": distributed("5", 2), "world": 2}, map[string]any{"order_digest": other, "world": 2}, "--samples 20", 1,
			[]string{"no known recipe gives the order of B with 20 samples"}},
	} {
		args := append([]string{"--diff", stateFile(t, dir, "a", c.a), stateFile(t, dir, "b", c.b)}, strings.Fields(c.args)...)
		out, err := orderCommand(args...)
		if exit := exitCode(err); err == nil && c.exit != 0 || err != nil && exit != c.exit {
			t.Errorf("case %d: exit %v, want %d", i, err, c.exit)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("case %d: no %q in\n%s", i, want, out)
			}
		}
	}
	for b, want := range map[string]string{strings.Repeat("AB", 32): "equal: the same order\n", other: "different\n  order_digest  "} {
		if out, _ := orderCommand("--diff", strings.Repeat("ab", 32), b); !strings.HasPrefix(out, want) {
			t.Errorf("digest %s: %s", b, out)
		}
	}
	out, err := orderCommand("--diff", stateFile(t, dir, "a", nil), other, "--json")
	var d orderDiff
	if jsonErr := json.Unmarshal([]byte(out), &d); jsonErr != nil || d.Schema != 1 || d.Equal || exitCode(err) != 1 {
		t.Errorf("as JSON: %v, %v: %s", err, jsonErr, out)
	}
}

// TestOrderDiffRefuses: a file that is no state is one clear error, which names the file.
func TestOrderDiffRefuses(t *testing.T) {
	dir := t.TempDir()
	good := stateFile(t, dir, "good", nil)
	for text, want := range map[string]string{
		"":                         "unexpected end of JSON input",
		"[1]":                      "cannot unmarshal array",
		"{":                        "unexpected end of JSON input",
		`{"v": 1}`:                 `it has no "seed"`,
		strings.Repeat(" ", 2<<20): "it has more than 1 MiB",
	} {
		bad := filepath.Join(dir, "bad")
		writeFile(t, bad, text)
		if _, err := orderCommand("--diff", good, bad); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), bad+" is not a state of lcache's loader") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	for key, value := range map[string]any{"v": 2, "epoch": -1, "consumed": nil, "world": 0, "batch_size": 0, "seed": 1.5, "order_digest": "xyz", "fingerprint": 7, "before": -1} {
		if _, err := orderCommand("--diff", stateFile(t, dir, "bad", map[string]any{key: value}), good); err == nil || !strings.Contains(err.Error(), "bad is not a state") {
			t.Errorf("%s %v: %v", key, value, err)
		}
	}
	for _, args := range [][]string{{"--diff"}, {"--diff", good}, {"--diff", good, good, good}, {good, good}, {"--diff", good, good, "--samples", "-1"}, {"--diff", good, good, "--samples", "0"}} {
		if _, err := orderCommand(args...); !errors.As(err, new(*usageError)) {
			t.Errorf("%q: %v, want a usage error", args, err)
		}
	}
	if _, err := orderCommand("--diff", good, filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// FuzzState: any bytes are a state within its bounds, or an error.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"v":1,"seed":5,"epoch":1,"consumed":2,"world":1,"batch_size":4,"fingerprint":"f","order_digest":null,"before":3}`))
	f.Add([]byte(`{"v":1,"seed":1e9,"epoch":1,"consumed":2,"world":1,"batch_size":null,"fingerprint":null,"order_digest":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseState(text)
		if err != nil {
			return
		}
		if *s.Epoch < 0 || *s.Epoch > mostStateEpoch || *s.World < 1 || *s.World > mostStateWorld || s.Before < 0 {
			t.Errorf("%s is a state", text)
		}
		if d, err := diffStates(t.Context(), s, s, shuffle.Spec{}); err != nil || !d.Equal {
			t.Errorf("%s differs from itself: %v", text, err)
		}
	})
}
