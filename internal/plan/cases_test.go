package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"
)

// A golden case: what the formulas give for an input, computed by a program that is not ours.
type goldenCase struct {
	Kind   string          `json:"kind"`
	Input  json.RawMessage `json:"input"`
	Want   map[string]any  `json:"want"`
	RelTol float64         `json:"rel_tol"`
}

// kinds are what computes each kind of case. The answer's names are those of the wanted ones.
var kinds = map[string]func(t *testing.T, input json.RawMessage) any{
	"frequency":   frequencyCase,
	"lemma1":      lemma1Case,
	"placement":   placementCase,
	"next_use":    nextUseCase,
	"next_use_at": nextUseAtCase,
	"layout": func(t *testing.T, input json.RawMessage) any {
		c := readFacts(t, input)
		return c.model.Epoch(c.Policy)
	},
	"run":            func(t *testing.T, input json.RawMessage) any { c := readFacts(t, input); return c.model.Run(c.Policy) },
	"best_admission": bestAdmissionCase,
	"auto":           autoCase,
	"crossover":      crossoverCase,
	"mixed":          mixedCase,
	"memory":         memoryCase,
	"fit":            fitCase,
	"space":          spaceCase,
	"mix":            mixCase,
	"consume":        consumeCase,
	"simulate":       simulateCase,
}

// TestCases compares with golden cases: those of testdata/cases.json, or of the file that PLAN_CASES names.
func TestCases(t *testing.T) {
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
	if len(file.Cases) == 0 {
		t.Fatalf("%s has no cases", path)
	}
	for i, c := range file.Cases {
		t.Run(fmt.Sprintf("%03d-%s", i, c.Kind), func(t *testing.T) {
			compute, ok := kinds[c.Kind]
			if !ok {
				t.Fatalf("case %d is of kind %q, which nothing here computes", i, c.Kind)
			}
			compareCase(t, c, asMap(t, compute(t, c.Input)))
		})
	}
}

// compareCase compares all that a case wants. Numbers are relative, words exact.
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

// asMap is an answer as JSON has it.
func asMap(t *testing.T, answer any) (m map[string]any) {
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

// decode reads an input, and refuses keys that nobody would look at.
func decode(t *testing.T, input json.RawMessage, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%v in %s", err, input)
	}
}

type factsCase struct {
	Policy Policy
	Case   struct {
		Facts
		Peers *bool `json:"peers"`
	}
	model *Model
}

func readFacts(t *testing.T, input json.RawMessage) (c factsCase) {
	t.Helper()
	decode(t, input, &c)
	c.Case.WithoutPeers = c.Case.Peers != nil && !*c.Case.Peers
	m, err := New(c.Case.Facts)
	if err != nil {
		t.Fatal(err)
	}
	c.model = m
	return c
}

func bestAdmissionCase(t *testing.T, input json.RawMessage) any {
	c := readFacts(t, input)
	admit, e := c.model.BestAdmission(c.Policy)
	return map[string]any{"admit": admit, "epoch_s": e.EpochS}
}

func autoCase(t *testing.T, input json.RawMessage) any {
	a, err := readFacts(t, input).model.Auto()
	var tooSmall *MemoryError
	if errors.As(err, &tooSmall) {
		return map[string]any{"error": "memory", "needs_bytes": tooSmall.Needs}
	}
	return a
}

func frequencyCase(t *testing.T, input json.RawMessage) any {
	var in struct{ Samples, Epochs, Workers, Above float64 }
	decode(t, input, &in)
	expected, stddev, err := Frequency(in.Samples, in.Epochs, in.Workers, in.Above)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"expected": expected, "stddev": stddev}
}

func lemma1Case(t *testing.T, input json.RawMessage) any {
	var in struct{ Epochs, Workers, Delta float64 }
	decode(t, input, &in)
	x, err := Lemma1(in.Epochs, in.Workers, in.Delta)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func placementCase(t *testing.T, input json.RawMessage) any {
	var in struct{ Epochs, Workers, Share float64 }
	decode(t, input, &in)
	hit, covered, err := Placement(in.Epochs, in.Workers, in.Share)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"local_hit": hit, "covered": covered}
}

func nextUseCase(t *testing.T, input json.RawMessage) any {
	var in struct {
		Nodes       float64
		EpochsAhead float64 `json:"epochs_ahead"`
	}
	decode(t, input, &in)
	hit, share, err := NextUse(in.Nodes, in.EpochsAhead)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"hit": hit, "cache_share": share}
}

func nextUseAtCase(t *testing.T, input json.RawMessage) any {
	var in struct {
		Nodes float64
		Share float64 `json:"cache_share"`
	}
	decode(t, input, &in)
	hit, err := NextUseAt(in.Nodes, in.Share)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"hit": hit}
}

func crossoverCase(t *testing.T, input json.RawMessage) any {
	var in struct{ Device DiskLine }
	decode(t, input, &in)
	return in.Device.Crossover()
}

func mixedCase(t *testing.T, input json.RawMessage) any {
	var in struct {
		DiskLine
		Sample float64 `json:"sample_bytes"`
	}
	decode(t, input, &in)
	return in.BestMix(in.Sample)
}

func mixCase(t *testing.T, input json.RawMessage) any {
	var in struct {
		Read      float64 `json:"read_bps"`
		Write     float64 `json:"write_bps"`
		BothRead  float64 `json:"both_read_bps"`
		BothWrite float64 `json:"both_write_bps"`
	}
	decode(t, input, &in)
	return map[string]any{"mix": Mix(in.Read, in.Write, in.BothRead, in.BothWrite)}
}

func consumeCase(t *testing.T, input json.RawMessage) any {
	var in struct {
		Avail   []float64
		Sizes   []float64 `json:"sizes_mb"`
		Compute float64   `json:"compute_mb_s"`
	}
	decode(t, input, &in)
	times, end, err := Consume(in.Avail, in.Sizes, in.Compute)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"t": times, "end": end}
}

// simulateCase replays orders (m·k + e) mod F of sizes 50,000 + (7919·k mod 100,001) bytes.
func simulateCase(t *testing.T, input json.RawMessage) any {
	var in struct {
		Policy      Contender
		Threads     Threads
		System      Machine
		Samples     int
		Batch       float64
		Multipliers []int
	}
	decode(t, input, &in)
	sizes, sum := make([]uint32, in.Samples), 0.0
	for k := range sizes {
		sizes[k] = uint32(50_000 + 7919*k%100_001)
		sum += float64(sizes[k]) / 1e6
	}
	got, err := Simulate(t.Context(), Simulation{
		Machine: in.System, Policy: in.Policy, Threads: in.Threads, Method: Exact, Sizes: sizes,
		Workload: Workload{Samples: float64(in.Samples), MeanMB: sum / float64(in.Samples), Batch: in.Batch, Epochs: float64(len(in.Multipliers))},
		Orders: func(epoch int) []uint32 {
			order := make([]uint32, in.Samples)
			for k := range order {
				order[k] = uint32((in.Multipliers[epoch]*k + epoch) % in.Samples)
			}
			return order
		},
	})
	if errors.Is(err, ErrUnsupported) {
		return map[string]any{"error": "unsupported"}
	}
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"seconds": got.Seconds, "init": got.InitS, "stall": got.StallS, "pfs_mb": got.MB.PFS, "local_mb": got.MB.Local, "remote_mb": got.MB.Remote}
}

// memoryInput is what the kinds memory and fit have in common.
type memoryInput struct {
	Kept    float64 `json:"kept_bytes"`
	Block   float64 `json:"block_bytes"`
	Devices float64
	Ranks   float64
	Held    float64 `json:"held_bytes"`
	Side    float64 `json:"side_bytes"`
	Miss    float64 `json:"miss_bytes"`
	Samples float64
	Largest float64 `json:"largest_bytes"`
	Spill   bool
	Limit   float64 `json:"memory_bytes"`
	Budget  float64 `json:"budget_bytes"`
	Device  DiskLine
}

func (in memoryInput) memory() Memory {
	return Memory{
		KeptBytes: in.Kept, LargestBytes: in.Largest, BlockBytes: orElse(in.Block, defaultBlock), Devices: orElse(in.Devices, 1), Ranks: orElse(in.Ranks, 1),
		HeldBytes: in.Held, SideBytes: in.Side, MissBytes: in.Miss, Samples: in.Samples, Spill: in.Spill,
	}
}

func orElse(x, otherwise float64) float64 {
	if x == 0 {
		return otherwise
	}
	return x
}

func memoryCase(t *testing.T, input json.RawMessage) any {
	var in memoryInput
	decode(t, input, &in)
	return in.memory().Sizes()
}

func fitCase(t *testing.T, input json.RawMessage) any {
	var in memoryInput
	decode(t, input, &in)
	z, fits := in.memory().Fit(in.Limit, in.Budget, in.Device.SmallestBlock(), nil)
	got := asMap(t, z)
	got["fits"], got["spill"] = fits, z.Spill
	return got
}

func spaceCase(t *testing.T, input json.RawMessage) any {
	var in struct {
		Dataset float64 `json:"dataset_bytes"`
		Samples float64
		Budget  float64 `json:"budget_bytes"`
		Block   float64 `json:"block_bytes"`
	}
	decode(t, input, &in)
	padded := Padded(in.Dataset, in.Samples)
	z := Memory{KeptBytes: padded * min(1, in.Budget/padded), BlockBytes: in.Block}.Sizes()
	got := asMap(t, NewSpace(padded, in.Budget, z))
	got["full_budget_bytes"] = FullBudget(padded, Memory{KeptBytes: padded, BlockBytes: in.Block}.Sizes())
	return got
}
