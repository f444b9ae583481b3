package simulate

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"lcache/internal/testenv"
)

// TestExactStaysWithinItsMemory: all memory that a replay allocates, including freed memory, is at most the amount that it
// announced. With one byte less allowed, it returns an error.
func TestExactStaysWithinItsMemory(t *testing.T) {
	testenv.WithoutRace(t)
	for _, p := range Contenders() {
		for _, workers := range []int{1, 16, 300} {
			s := Simulation{Machine: smallMachine(), Workload: Workload{Samples: 100_000, MeanMB: 0.001, SigmaMB: 0.001, Batch: 8, Epochs: 4}, Policy: p, Method: Exact, Seed: 1}
			s.Machine.Workers = workers
			s.MemoryBytes = s.exactBytes(float64(min(runtime.GOMAXPROCS(0), mostCores)))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			mustSimulate(t, s)
			runtime.ReadMemStats(&after)
			if took := float64(after.TotalAlloc - before.TotalAlloc); took > s.MemoryBytes {
				t.Errorf("%s with %d workers takes %.0f bytes, and says %.0f", p, workers, took, s.MemoryBytes)
			}
			s.MemoryBytes--
			if _, err := Simulate(t.Context(), s); err == nil || !strings.Contains(err.Error(), "of memory, and may take") {
				t.Errorf("%s with %d workers and a byte less: %v", p, workers, err)
			}
		}
	}
}

// TestPermute: every number is there once, and no place of a short permutation is preferred by any number.
func TestPermute(t *testing.T) {
	order := make([]uint32, 70_001)
	permute(order, 1, 0)
	again := slices.Clone(order)
	permute(again, 1, 1)
	if slices.Equal(order, again) {
		t.Error("two epochs have the same order")
	}
	for range 2 {
		slices.Sort(order)
		for k, v := range order {
			if int(v) != k {
				t.Fatalf("number %d is missing", k)
			}
		}
		order = again
	}
	const draws, n = 5000, 5
	var at [n][n]int
	for seed := range uint64(draws) {
		var short [n]uint32
		permute(short[:], seed, 7)
		for place, v := range short {
			at[v][place]++
		}
	}
	for v := range at {
		for place, times := range at[v] {
			if off := float64(times) - draws/n; off > 150 || off < -150 { // five deviations
				t.Errorf("%d is at place %d %d times of %d", v, place, times, draws)
			}
		}
	}
}

// TestOrdersThatRepeat: an order that has an index twice is refused.
func TestOrdersThatRepeat(t *testing.T) {
	s := Simulation{Machine: smallMachine(), Workload: smallWorkload(), Policy: NoPFS, Method: Exact, Orders: func(int) []uint32 { return make([]uint32, 20_000) }}
	if _, err := Simulate(t.Context(), s); err == nil || !strings.Contains(err.Error(), "index 0 twice") {
		t.Error(err)
	}
}
