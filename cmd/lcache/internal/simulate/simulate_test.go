package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"lcache/internal/testenv"
)

// smallMachine is a cluster of four with classes that hold a part of 20,000 samples of 0.1 MB: 0.2 and 0.4 GB a worker.
func smallMachine() Machine {
	return Machine{
		Workers: 4, Compute: 64, Preprocess: 200, Network: 2400, Threads: [Classes]float64{8, 4, 2},
		Capacity: [Classes]float64{200, 200, 400},
		Read:     [Classes]Table{{{8, 11100}}, {{4, 8500}}, {{2, 400}}},
		PFS:      Table{{1, 330}, {2, 730}, {4, 1540}, {8, 2870}},
	}
}

func smallWorkload() Workload {
	return Workload{Samples: 20_000, MeanMB: 0.1, SigmaMB: 0.05, Batch: 32, Epochs: 5}
}

// tight is a source that gives an eighth.
func tight(m Machine) Machine {
	m.PFS = Table{{1, 330. / 8}, {2, 730. / 8}, {4, 1540. / 8}, {8, 2870. / 8}}
	return m
}

func mustSimulate(t *testing.T, s Simulation) Outcome {
	t.Helper()
	o, err := Simulate(t.Context(), s)
	if err != nil {
		t.Fatalf("%s, %s: %v", s.Policy, s.Method, err)
	}
	return o
}

// TestMethodsAgree: on 20,000 samples the three methods give the same hit ratios within 0.01, and times within 2 %.
func TestMethodsAgree(t *testing.T) {
	testenv.WithoutRace(t)
	machines := map[string]Machine{"wide": smallMachine(), "tight": tight(smallMachine())}
	roomy := tight(smallMachine())
	roomy.Capacity[1] = 600 // all of 2 GB in memory, so that the policies that need it do not refuse
	machines["roomy"] = roomy
	for name, m := range machines {
		for _, p := range Contenders() {
			for _, threads := range []Threads{Shared, Paper} {
				t.Run(fmt.Sprintf("%s/%s/%s", name, p, threads), func(t *testing.T) {
					s := Simulation{Machine: m, Workload: smallWorkload(), Policy: p, Threads: threads, Seed: 7, Method: Exact}
					exact, err := Simulate(t.Context(), s)
					if errors.Is(err, ErrUnsupported) {
						if !p.wholeInRAM() || name == "roomy" {
							t.Fatal(err)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					for _, method := range []Method{Sampled, Analytic} {
						s.Method = method
						compareOutcomes(t, mustSimulate(t, s), exact)
					}
				})
			}
		}
	}
}

func compareOutcomes(t *testing.T, got, want Outcome) {
	t.Helper()
	for _, x := range []struct {
		name      string
		got, want float64
	}{
		{"seconds", got.Seconds, want.Seconds}, {"lower bound", got.LowerBoundS, want.LowerBoundS}, {"first epoch", got.FirstEpochS, want.FirstEpochS},
		{"steady epoch", got.SteadyEpochS, want.SteadyEpochS},
	} {
		if math.Abs(x.got-x.want) > 0.02*x.want {
			t.Errorf("%s: %s is %.3f s, exact %.3f s: %.1f %% apart", got.Method, x.name, x.got, x.want, 100*(x.got/x.want-1))
		}
	}
	total := want.MB.PFS + want.MB.Local + want.MB.Remote
	for _, x := range []struct {
		name      string
		got, want float64
	}{
		{"from the source", got.MB.PFS, want.MB.PFS}, {"local", got.MB.Local, want.MB.Local}, {"remote", got.MB.Remote, want.MB.Remote},
		{"seen", got.DatasetSeen * total, want.DatasetSeen * total},
	} {
		if total > 0 && math.Abs(x.got-x.want) > 0.01*total {
			t.Errorf("%s: the share %s is %.4f, exact %.4f", got.Method, x.name, x.got/total, x.want/total)
		}
	}
	if math.Abs(got.InitS-want.InitS) > 0.02*want.InitS {
		t.Errorf("%s: staging in takes %.3f s, exact %.3f s", got.Method, got.InitS, want.InitS)
	}
	if off := got.StallS - want.StallS; off < -0.02*want.Seconds || got.Method != Analytic && off > 0.02*want.Seconds {
		t.Errorf("%s: stall is %.3f s, exact %.3f s of %.3f", got.Method, got.StallS, want.StallS, want.Seconds)
	}
}

// TestPerfectIsLeast: no policy is faster than a training that never waits. Its time is the lower bound.
func TestPerfectIsLeast(t *testing.T) {
	s := Simulation{Machine: tight(smallMachine()), Workload: smallWorkload(), Policy: Perfect, Method: Exact, Seed: 3}
	perfect := mustSimulate(t, s)
	if perfect.Seconds != perfect.LowerBoundS || perfect.StallS != 0 {
		t.Errorf("perfect takes %v s, the lower bound is %v s, stall %v s", perfect.Seconds, perfect.LowerBoundS, perfect.StallS)
	}
	for _, p := range []Contender{Naive, Staging, DeepIOOrdered, NoPFS, StaticAlone, LogAlone, StaticPeers, LogPeers} {
		s.Policy = p
		if o := mustSimulate(t, s); o.Seconds < perfect.Seconds*(1-1e-9) || math.Abs(o.LowerBoundS-perfect.LowerBoundS) > 1e-9*perfect.LowerBoundS {
			t.Errorf("%s takes %.2f s with a bound of %.2f s, perfect %.2f s", p, o.Seconds, o.LowerBoundS, perfect.Seconds)
		}
	}
}

// TestMoreStorageIsNotSlower: more memory or SSD never makes an epoch of NoPFS or lcache slower.
func TestMoreStorageIsNotSlower(t *testing.T) {
	testenv.WithoutRace(t)
	for _, p := range []Contender{NoPFS, StaticAlone, LogAlone, StaticPeers} {
		for class := 1; class < Classes; class++ {
			before := math.Inf(1)
			for _, mb := range []float64{0, 50, 100, 200, 400, 800, 2000, 4000} {
				m := tight(smallMachine())
				m.Capacity[class] = mb
				o := mustSimulate(t, Simulation{Machine: m, Workload: smallWorkload(), Policy: p, Method: Exact, Seed: 5})
				if o.Seconds > before*1.001 {
					t.Errorf("%s with %g MB in class %d takes %.3f s, with less %.3f s", p, mb, class, o.Seconds, before)
				}
				before = o.Seconds
			}
		}
	}
}

// TestLBANNRefuses: the error names the needed memory.
func TestLBANNRefuses(t *testing.T) {
	for _, p := range []Contender{LBANNDynamic, LBANNPreload} {
		_, err := Simulate(t.Context(), Simulation{Machine: smallMachine(), Workload: smallWorkload(), Policy: p})
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "2 GB") || !strings.Contains(err.Error(), "0.8 GB") {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// TestNoPFSPlacement compares with the placement restated from its definition: for each worker, samples by falling count,
// then by first use; running size decides the class.
func TestNoPFSPlacement(t *testing.T) {
	t.Run("4 workers", func(t *testing.T) { checkPlacement(t, 4, 16, [Classes]float64{200, 31.7, 55.3}) })
	t.Run("300 workers", func(t *testing.T) { checkPlacement(t, 300, 3, [Classes]float64{200, 0.7, 1.3}) })
	t.Run("no memory", func(t *testing.T) { checkPlacement(t, 4, 16, [Classes]float64{200, 0, 55.3}) })
	t.Run("room for all", func(t *testing.T) { checkPlacement(t, 4, 16, [Classes]float64{200, 31.7, 5000}) })
}

func checkPlacement(t *testing.T, workers, batch int, capacity [Classes]float64) {
	s := Simulation{Machine: smallMachine(), Workload: Workload{Samples: 3000, MeanMB: 0.1, SigmaMB: 0.05, Batch: float64(batch), Epochs: 6}, Policy: NoPFS, Method: Exact, Seed: 11, MemoryBytes: 1 << 30, Progress: func(float64) {}}
	s.Machine.Workers, s.Machine.Capacity = workers, capacity
	x, err := s.newExact(2)
	if err != nil {
		t.Fatal(err)
	}
	defer x.orders.forget()
	if _, _, err := x.place(t.Context()); err != nil {
		t.Fatal(err)
	}
	orders := make([][]uint32, 6)
	for e := range orders {
		positions := x.orders.make(e).positions
		x.turn(positions)
		orders[e] = slices.Clone(x.forward)
		x.orders.spare <- positions
	}
	classes := make([][]uint8, workers)
	best := make([]int, 3000)
	for worker := range classes {
		classes[worker] = nopfsClasses(x, orders, worker)
		for k, class := range classes[worker] {
			best[k] = better(best[k], int(class))
		}
	}
	for epoch, order := range orders {
		for at, k := range order {
			class := classes[at/batch%workers][k]
			if from := x.served.place(epoch, int(k)); from != x.pick[class][best[k]] {
				t.Fatalf("epoch %d, position %d: sample %d comes from place %d; its reader has it in class %d, anybody in %d", epoch, at, k, from, class, best[k])
			}
		}
	}
}

// nopfsClasses is the definition, by a stable selection over counts.
func nopfsClasses(x *exact, orders [][]uint32, worker int) []uint8 {
	counts, byFirstUse := make([]int, len(x.sizes)), []uint32{}
	for _, order := range orders {
		for h := range x.steps {
			for b := range x.batch {
				k := order[(h*x.workers+worker)*x.batch+b]
				if counts[k]++; counts[k] == 1 {
					byFirstUse = append(byFirstUse, k)
				}
			}
		}
	}
	classes, running := make([]uint8, len(x.sizes)), 0.0
	for count := len(orders); count >= 1; count-- {
		for _, k := range byFirstUse {
			if counts[k] != count {
				continue
			}
			running += float64(x.sizes[k])
			switch c := x.s.Machine.Capacity; {
			case running <= c[1]*1e6:
				classes[k] = 1
			case running <= (c[1]+c[2])*1e6:
				classes[k] = 2
			}
		}
	}
	return classes
}

func TestExpectedMax(t *testing.T) {
	for n, want := range map[int]float64{1: 0, 2: .564, 3: .846, 4: 1.029, 8: 1.424, 16: 1.766, 64: 2.344, 256: 2.827} {
		if got := expectedMax(n); math.Abs(got-want) > 0.001 {
			t.Errorf("the largest of %d normals: %.4f, want %.3f", n, got, want)
		}
	}
}

// TestMoments compares the closed form of cut and scaled normals with drawn ones.
func TestMoments(t *testing.T) {
	for _, sigma := range []float64{0, 0.02, 0.1, 0.2} {
		s := Simulation{Workload: Workload{Samples: 200_000, MeanMB: 0.1077, SigmaMB: sigma}}
		want, got := momentsOf(normalSizes(s.Workload, 1)), s.moments()
		if math.Abs(got.mean-want.mean) > 1e-6 || math.Abs(got.sigma-want.sigma) > 0.01*want.sigma+1e-9 {
			t.Errorf("sigma %g: mean and deviation %v, drawn %v", sigma, got, want)
		}
	}
}

func TestSimulateIsRepeatable(t *testing.T) {
	for _, method := range []Method{Exact, Sampled} {
		s := Simulation{Machine: tight(smallMachine()), Workload: smallWorkload(), Policy: DeepIOOpportunistic, Method: method, Seed: 9}
		a, b := mustSimulate(t, s), mustSimulate(t, s)
		s.Seed++
		if c := mustSimulate(t, s); a != b || a.Seconds == c.Seconds {
			t.Errorf("%s: %v and %v with one seed, %v with another", method, a.Seconds, b.Seconds, c.Seconds)
		}
	}
}

func TestSimulateEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, method := range []Method{Exact, Sampled} {
		if _, err := Simulate(ctx, Simulation{Machine: smallMachine(), Workload: smallWorkload(), Policy: NoPFS, Method: method}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s after its end: %v", method, err)
		}
	}
}

// TestSimulateRefuses: what makes no sense gets one error that names it.
func TestSimulateRefuses(t *testing.T) {
	for _, tc := range []struct {
		change func(*Simulation)
		want   string
	}{
		{func(s *Simulation) { s.Machine.Workers = 0 }, "workers is 0"},
		{func(s *Simulation) { s.Machine.Workers = 1 << 30 }, "workers"},
		{func(s *Simulation) { s.Machine.Compute = 0 }, "compute is 0"},
		{func(s *Simulation) { s.Machine.Compute = math.NaN() }, "compute is NaN"},
		{func(s *Simulation) { s.Machine.PFS = nil }, "pfs is empty"},
		{func(s *Simulation) { s.Machine.Capacity[1] = -1 }, "capacity[1]"},
		{func(s *Simulation) { s.Policy = "fastest" }, `"fastest"`},
		{func(s *Simulation) { s.Method = "guess" }, `"guess"`},
		{func(s *Simulation) { s.Threads = "all" }, `"all"`},
		{func(s *Simulation) { s.Workload.Samples = 0 }, "samples is 0"},
		{func(s *Simulation) { s.Workload.Samples = 100 }, "do not fill one mini-batch"},
		{func(s *Simulation) { s.Workload.Samples = 1e18 }, "scale down"},
		{func(s *Simulation) { s.Workload.Samples, s.Method = 1e18, Exact }, "memory"},
		{func(s *Simulation) { s.Workload.Batch = 1.5 }, "whole number"},
		{func(s *Simulation) { s.Workload.Epochs = 0 }, "epochs is 0"},
		{func(s *Simulation) { s.Workload.MeanMB = math.Inf(1) }, "mean_mb"},
		{func(s *Simulation) { s.Sizes = make([]uint32, 5); s.Method = Exact }, "5 sizes"},
		{func(s *Simulation) { s.Method = Exact; s.Orders = func(int) []uint32 { return nil } }, "0 positions"},
		{func(s *Simulation) { s.MemoryBytes, s.Method = 1e5, Exact }, "may take"},
	} {
		s := Simulation{Machine: smallMachine(), Workload: smallWorkload(), Policy: NoPFS}
		tc.change(&s)
		if _, err := Simulate(t.Context(), s); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("want an error with %q, got %v", tc.want, err)
		}
	}
}

// FuzzSimulate: any numbers give an outcome or an error, never a panic or a hang.
func FuzzSimulate(f *testing.F) {
	f.Add(4, 64.0, 200.0, 1e3, 8.0, 100.0, 50.0, 100.0, 1540.0, 2000.0, 0.1, 0.05, 32.0, 5.0, uint8(8), uint8(0), true)
	f.Add(1, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1e-9, 1e18, 1e12, 1e12, 1.0, 1.0, uint8(3), uint8(2), false)
	f.Add(100_000, math.NaN(), -1.0, 1e300, 1e9, 1e24, 1.0, 1e-9, 1.0, 1e5, 1e-6, 1e-9, 1.0, 1e7, uint8(12), uint8(1), false)
	f.Fuzz(func(t *testing.T, workers int, compute, prepare, network, threads, d0, d1, d2, pfs, samples, mean, sigma, batch, epochs float64, policy, method uint8, paper bool) {
		table, err := NewTable(map[float64]float64{1: pfs, threads: pfs * 2})
		if err != nil {
			return
		}
		s := Simulation{
			Machine: Machine{Workers: workers, Compute: compute, Preprocess: prepare, Network: network, Threads: [Classes]float64{threads, threads, 1},
				Capacity: [Classes]float64{d0, d1, d2}, Read: [Classes]Table{table, table, table}, PFS: table},
			Workload: Workload{Samples: samples, MeanMB: mean, SigmaMB: sigma, Batch: batch, Epochs: epochs},
			Policy:   Contenders()[int(policy)%len(Contenders())], Method: []Method{Analytic, Sampled, Exact}[method%3], Threads: Shared, MemoryBytes: 1 << 24,
		}
		if paper {
			s.Threads = Paper
		}
		if s.Method != Analytic && (samples*min(epochs, 4) > 1e6 || epochs > 500) {
			return // an answer, but a slow one
		}
		o, err := Simulate(t.Context(), s)
		if err == nil && !(o.Seconds >= 0 && o.DatasetSeen >= 0 && o.DatasetSeen <= 1 && !math.IsNaN(o.Ratio)) {
			t.Fatalf("%+v gives %+v", s, o)
		}
	})
}
