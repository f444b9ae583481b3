package simulate

import (
	"encoding/json"
	"errors"
	"testing"

	"lcache/internal/plan/plantest"
)

// TestCases compares with golden cases in testdata/cases.json, or in the file that PLAN_CASES names.
func TestCases(t *testing.T) {
	plantest.Run(t, map[string]func(*testing.T, json.RawMessage) any{
		"frequency": frequencyCase,
		"lemma1":    lemma1Case,
		"placement": placementCase,
		"consume":   consumeCase,
		"simulate":  simulateCase,
	})
}

func frequencyCase(t *testing.T, input json.RawMessage) any {
	var in struct{ Samples, Epochs, Workers, Above float64 }
	plantest.Decode(t, input, &in)
	expected, stddev, err := Frequency(in.Samples, in.Epochs, in.Workers, in.Above)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"expected": expected, "stddev": stddev}
}

func lemma1Case(t *testing.T, input json.RawMessage) any {
	var in struct{ Epochs, Workers, Delta float64 }
	plantest.Decode(t, input, &in)
	x, err := Lemma1(in.Epochs, in.Workers, in.Delta)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func placementCase(t *testing.T, input json.RawMessage) any {
	var in struct{ Epochs, Workers, Share float64 }
	plantest.Decode(t, input, &in)
	hit, covered, err := Placement(in.Epochs, in.Workers, in.Share)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{"local_hit": hit, "covered": covered}
}

func consumeCase(t *testing.T, input json.RawMessage) any {
	var in struct {
		Avail   []float64
		Sizes   []float64 `json:"sizes_mb"`
		Compute float64   `json:"compute_mb_s"`
	}
	plantest.Decode(t, input, &in)
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
	plantest.Decode(t, input, &in)
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
