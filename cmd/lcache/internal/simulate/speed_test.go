package simulate

import (
	"testing"
	"time"

	"lcache/internal/testenv"
)

// imageNet22k is the largest job that the simulator is made for: 14.2 million samples, 100 epochs, 256 workers.
func imageNet22k(p Contender, m Method) Simulation {
	return Simulation{
		Machine: Machine{
			Workers: 256, Compute: 64, Preprocess: 200, Network: 24000, Threads: [Classes]float64{8, 4, 2}, Capacity: [Classes]float64{5000, 120000, 900000},
			Read: [Classes]Table{{{8, 111000}}, {{4, 85000}}, {{2, 4000}}}, PFS: Table{{1, 330}, {2, 730}, {4, 1540}, {8, 2870}},
		},
		Workload: Workload{Samples: 14197122, MeanMB: 0.1077, SigmaMB: 0.2, Batch: 32, Epochs: 100},
		Policy:   p, Method: m, Seed: 1, MemoryBytes: 8 << 30,
	}
}

func BenchmarkAnalytic(b *testing.B) { benchmarkScale(b, Analytic) }
func BenchmarkSampled(b *testing.B)  { benchmarkScale(b, Sampled) }
func BenchmarkExact(b *testing.B)    { benchmarkScale(b, Exact) }

func benchmarkScale(b *testing.B, m Method) {
	for b.Loop() {
		if _, err := Simulate(b.Context(), imageNet22k(NoPFS, m)); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAnalyticIsQuick: the closed forms answer at once at any scale. The bound is loose, because machines are busy.
func TestAnalyticIsQuick(t *testing.T) {
	if !testenv.Timed() {
		t.Skip("asserts a time: make test-faults PARTS=times")
	}
	begin := time.Now()
	for _, p := range Contenders() {
		if _, err := Simulate(t.Context(), imageNet22k(p, Analytic)); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("all policies took %v", took)
	}
}
