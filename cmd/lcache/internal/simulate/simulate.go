// Package simulate runs a training of several workers, mini-batch by mini-batch, with published policies and with lcache's own.
// It is pure: a Machine and a Workload go in, an Outcome comes out; it measures nothing, opens nothing, and
// knows no clock.
//
// Simulate replays the orders of all epochs, draws mini-batches, or computes closed forms, as the Method says. The access
// model (Frequency, Lemma1, Placement) says how often a worker reads a sample.
//
// The formulas follow Dryden et al., "Clairvoyant Prefetching for Distributed Machine Learning I/O" (NoPFS, SC '21), §3,
// §4 and §6; docs/planning.md explains them. Numbers that make no sense are refused by an error that names the fact; no
// function panics or runs for ever on one. Everything here may be called concurrently.
package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
)

// Method is how a simulation finds out which samples a worker has where.
type Method string

// The methods, from cheap to dear.
const (
	AutoMethod Method = "auto"     // exact if that is cheap, else sampled
	Analytic   Method = "analytic" // closed forms: no mini-batch is looked at
	Sampled    Method = "sampled"  // mini-batches are drawn from the distributions of the access model
	Exact      Method = "exact"    // the orders of all epochs are replayed
)

// Limits under which auto replays orders.
const (
	cheapReads = 50e6      // F·E
	cheapTable = 256 << 20 // N·F bytes
)

// Workload is the dataset and batches of a Machine. Sizes are MB (10^6 bytes).
type Workload struct {
	Samples float64 `json:"samples"` // F
	MeanMB  float64 `json:"mean_mb"` // μ of the samples' sizes
	SigmaMB float64 `json:"sigma_mb"`
	Batch   float64 `json:"batch"` // of one worker
	Epochs  float64 `json:"epochs"`
}

// TotalMB is S.
func (w Workload) TotalMB() float64 { return w.Samples * w.MeanMB }

// Simulation is one question to the simulator.
type Simulation struct {
	Machine  Machine
	Workload Workload
	Policy   Contender
	Threads  Threads // "" means Shared
	Method   Method  // "" means AutoMethod
	Seed     uint64  // of orders, sizes and draws

	// Orders returns the indices of an epoch in reading order, over all workers; nil means a permutation by Seed. Sizes
	// are bytes; nil means normal by MeanMB and SigmaMB. Only the exact method looks at both.
	Orders func(epoch int) []uint32
	Sizes  []uint32

	MemoryBytes float64             // what tables may take; 0 means 2 GiB
	Progress    func(share float64) // called now and then, with the share that is done; may be nil
}

// Outcome is the result of a simulation. MB and seconds are sums over workers unless stated otherwise.
type Outcome struct {
	Policy       Contender `json:"policy"`
	Method       Method    `json:"method"`
	Seconds      float64   `json:"seconds"`       // from the start of staging in to the end of the last epoch
	LowerBoundS  float64   `json:"lower_bound_s"` // computing alone, with the barrier at every mini-batch
	Ratio        float64   `json:"ratio"`
	InitS        float64   `json:"init_s"`  // staging in, before the training
	StallS       float64   `json:"stall_s"` // waiting for data, the mean over workers, without InitS; analytic: of the slowest
	MB           Traffic   `json:"mb"`
	FetchS       FetchTime `json:"fetch_s"`
	DatasetSeen  float64   `json:"dataset_seen"` // the share of the samples that are ever read
	FirstEpochS  float64   `json:"first_epoch_s"`
	SteadyEpochS float64   `json:"steady_epoch_s"`
}

// Traffic is where MB came from.
type Traffic struct {
	PFS    float64 `json:"pfs"`
	Local  float64 `json:"local"`
	Remote float64 `json:"remote"`
}

// FetchTime is how long the fetches took, by where samples came from: the mean over workers.
type FetchTime struct {
	RAM    float64 `json:"ram"`
	SSD    float64 `json:"ssd"`
	Remote float64 `json:"remote"`
	PFS    float64 `json:"pfs"`
}

// ErrUnsupported says that a policy can't do a job: it needs the dataset to fit into memory.
var ErrUnsupported = errors.New("unsupported")

// steps is T, the global mini-batches of an epoch. What fills none of them is dropped.
func (s *Simulation) steps() int {
	return int(s.Workload.Samples / (float64(s.Machine.Workers) * s.Workload.Batch))
}

func (s *Simulation) check() error {
	if err := s.Machine.check(); err != nil {
		return err
	}
	if err := s.Policy.check(); err != nil {
		return err
	}
	w := s.Workload
	for _, must := range []struct {
		name          string
		value, lo, hi float64
		whole         bool
	}{
		{"samples", w.Samples, 1, 1e18, true},
		{"mean_mb", w.MeanMB, 1e-6, 1e12, false},
		{"sigma_mb", w.SigmaMB, 0, 1e12, false},
		{"batch", w.Batch, 1, 1e12, true},
		{"epochs", w.Epochs, 1, mostEpochs, true},
		{"memory_bytes", s.MemoryBytes, 0, largest, false},
	} {
		if !(must.value >= must.lo && must.value <= must.hi) {
			return fmt.Errorf("%s is %g, and must lie between %g and %g", must.name, must.value, must.lo, must.hi)
		}
		if must.whole && must.value != math.Floor(must.value) {
			return fmt.Errorf("%s is %g, and must be a whole number", must.name, must.value)
		}
	}
	if global := float64(s.Machine.Workers) * w.Batch; w.Samples < global {
		return fmt.Errorf("%g samples do not fill one mini-batch of all workers, which is %g", w.Samples, global)
	}
	switch s.Threads {
	case "", Shared, Paper:
	default:
		return fmt.Errorf("threads is %q, and must be %q or %q", s.Threads, Shared, Paper)
	}
	if s.Policy.wholeInRAM() && s.totalMB() > float64(s.Machine.Workers)*s.Machine.Capacity[1] {
		return fmt.Errorf("%w: %s needs %.3g GB of memory, and all workers have %.3g GB", ErrUnsupported, s.Policy,
			s.totalMB()/1e3, float64(s.Machine.Workers)*s.Machine.Capacity[1]/1e3)
	}
	return nil
}

func (s *Simulation) totalMB() float64 {
	if s.Sizes == nil {
		return s.Workload.TotalMB()
	}
	var bytes uint64
	for _, b := range s.Sizes {
		bytes += uint64(b)
	}
	return float64(bytes) / 1e6
}

// window is how many mini-batches of one worker the staging buffer holds, and no more than there are.
func (s *Simulation) window() int {
	fit := s.Machine.Capacity[0] / (s.Workload.Batch * s.totalMB() / s.Workload.Samples)
	return int(max(1, math.Floor(min(fit, float64(s.steps())*s.Workload.Epochs, 1e6))))
}

// method is the one that is used.
func (s *Simulation) method() Method {
	if s.Method != "" && s.Method != AutoMethod {
		return s.Method
	}
	w := s.Workload
	if w.Samples*w.Epochs <= cheapReads && float64(s.Machine.Workers)*w.Samples <= cheapTable {
		return Exact
	}
	return Sampled
}

// Simulate runs a training of a policy, mini-batch by mini-batch (NoPFS §6). It returns an error that wraps ErrUnsupported
// if the policy can't do the job, and ctx's error if that ends first.
func Simulate(ctx context.Context, s Simulation) (Outcome, error) {
	if err := s.check(); err != nil {
		return Outcome{}, err
	}
	if s.Threads == "" {
		s.Threads = Shared
	}
	if s.MemoryBytes == 0 {
		s.MemoryBytes = 2 << 30
	}
	if s.Progress == nil {
		s.Progress = func(float64) {}
	}
	switch m := s.method(); m {
	case Exact:
		return s.exact(ctx)
	case Sampled:
		return s.sampled(ctx)
	case Analytic:
		return s.analytic()
	default:
		return Outcome{}, fmt.Errorf("method is %q, and must be auto, analytic, sampled or exact", m)
	}
}

// start makes the clock of a simulation that begins after init seconds.
func (s *Simulation) start(init float64) *clock {
	c := newClock(s.Machine.rates(), s.Threads, s.window(), init)
	c.perfect = s.Policy == Perfect
	return c
}

// beginEpoch sets what differs between a cold first epoch and the others.
func (s *Simulation) beginEpoch(c *clock, epoch int) {
	c.lanes, c.disk = c.r.p[0], s.Policy.diskPasses()
	if epoch > 0 {
		return
	}
	if s.Policy.cold() {
		c.disk = 0
	}
	if s.Policy == LBANNDynamic {
		c.lanes = c.r.p[1]
	}
}

// outcome is the result of a clock at the end. ends are the end times of the epochs.
func (s *Simulation) outcome(c *clock, m Method, init, seen float64, ends []float64) Outcome {
	n := float64(s.Machine.Workers)
	o := Outcome{Policy: s.Policy, Method: m, Seconds: c.end, LowerBoundS: c.bound, Ratio: c.end / c.bound, InitS: init, StallS: c.stall / n, DatasetSeen: seen}
	o.MB = Traffic{PFS: c.mb[fromPFS] + c.mb[onDemand], Local: c.mb[localRAM] + c.mb[localSSD], Remote: c.mb[remoteRAM] + c.mb[remoteSSD]}
	o.FetchS = FetchTime{RAM: c.fetch[localRAM] / n, SSD: c.fetch[localSSD] / n, Remote: (c.fetch[remoteRAM] + c.fetch[remoteSSD]) / n,
		PFS: (c.fetch[fromPFS] + c.fetch[onDemand]) / n}
	o.FirstEpochS = ends[0] - init
	o.SteadyEpochS = o.FirstEpochS
	if last := len(ends) - 1; last > 0 {
		o.SteadyEpochS = (ends[last] - ends[0]) / float64(last)
	}
	return o
}
