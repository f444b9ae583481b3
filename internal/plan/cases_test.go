package plan

import (
	"encoding/json"
	"errors"
	"testing"

	"lcache/internal/plan/plantest"
)

// TestCases compares with the golden cases of testdata/cases.json, or of the file in PLAN_CASES.
func TestCases(t *testing.T) {
	plantest.Run(t, map[string]func(*testing.T, json.RawMessage) any{
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
	})
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
	plantest.Decode(t, input, &c)
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

func nextUseCase(t *testing.T, input json.RawMessage) any {
	var in struct {
		Nodes       float64
		EpochsAhead float64 `json:"epochs_ahead"`
	}
	plantest.Decode(t, input, &in)
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
	plantest.Decode(t, input, &in)
	hit, err := NextUseAt(in.Nodes, in.Share)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"hit": hit}
}

func crossoverCase(t *testing.T, input json.RawMessage) any {
	var in struct{ Device DiskLine }
	plantest.Decode(t, input, &in)
	return in.Device.Crossover()
}

func mixedCase(t *testing.T, input json.RawMessage) any {
	var in struct {
		DiskLine
		Sample float64 `json:"sample_bytes"`
	}
	plantest.Decode(t, input, &in)
	return in.BestMix(in.Sample)
}

func mixCase(t *testing.T, input json.RawMessage) any {
	var in struct {
		Read      float64 `json:"read_bps"`
		Write     float64 `json:"write_bps"`
		BothRead  float64 `json:"both_read_bps"`
		BothWrite float64 `json:"both_write_bps"`
	}
	plantest.Decode(t, input, &in)
	return map[string]any{"mix": Mix(in.Read, in.Write, in.BothRead, in.BothWrite)}
}

// memoryInput has the common inputs of the kinds memory and fit.
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
	plantest.Decode(t, input, &in)
	return in.memory().Sizes()
}

func fitCase(t *testing.T, input json.RawMessage) any {
	var in memoryInput
	plantest.Decode(t, input, &in)
	z, fits := in.memory().Fit(in.Limit, in.Budget, in.Device.SmallestBlock(), nil)
	got := plantest.AsMap(t, z)
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
	plantest.Decode(t, input, &in)
	padded := Padded(in.Dataset, in.Samples)
	z := Memory{KeptBytes: padded * min(1, in.Budget/padded), BlockBytes: in.Block}.Sizes()
	got := plantest.AsMap(t, NewSpace(padded, in.Budget, z))
	got["full_budget_bytes"] = FullBudget(padded, Memory{KeptBytes: padded, BlockBytes: in.Block}.Sizes())
	return got
}
