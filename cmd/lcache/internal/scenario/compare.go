package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lcache/cmd/lcache/internal/simulate"
	"lcache/internal/usage"
)

// Options of Run.
type Options struct {
	Scenarios []Scenario
	Policies  []simulate.Contender // none: all
	Threads   simulate.Threads
	Method    simulate.Method
	Seed      uint64
	Scale     float64 // samples and storage are divided by this, and times and bytes of the results multiplied; 0 means 1
	Memory    float64 // that tables may take, in bytes
	Progress  func(what string, done, total float64)
}

// Report is the results, by scenario.
type Report struct {
	Scenarios []Results `json:"scenarios"`
	Threads   string    `json:"threads"`
	Seed      uint64    `json:"seed"`
	Scale     float64   `json:"scale"`
}

// Results has the results of one scenario.
type Results struct {
	Scenario
	LowerBoundS float64  `json:"lower_bound_s"`
	Policies    []Result `json:"policies"`
}

// Result is one policy's outcome, or why it can't do the job.
type Result struct {
	simulate.Outcome
	Error string `json:"error,omitempty"`
}

// Refuses says that the policy can't do the job.
func (r Result) Refuses() bool { return r.Error != "" }

// ParsePolicies reads a list of policies; "all" is all of them.
func ParsePolicies(words []string) (policies []simulate.Contender, err error) {
	all := simulate.Contenders()
	for _, word := range words {
		if word == "all" {
			return all, nil
		}
		if !slices.Contains(all, simulate.Contender(word)) {
			names := []string{}
			for _, p := range all {
				names = append(names, string(p))
			}
			if near := usage.Nearest(word, names); near != "" {
				return nil, usage.Errorf("policy %q is not known: did you mean %s?", word, near)
			}
			return nil, usage.Errorf("policy %q is not known: there are %s", word, strings.Join(names, ", "))
		}
		policies = append(policies, simulate.Contender(word))
	}
	return policies, nil
}

// mostVariants bounds the combinations of Vary.
const mostVariants = 1000

// Vary returns a variant of each scenario for every combination of values. A sweep is "key=value,value" with a key of the
// scenario file.
func Vary(all []Scenario, sweeps []string) ([]Scenario, error) {
	for _, sweep := range sweeps {
		key, values, ok := strings.Cut(sweep, "=")
		if !ok || values == "" {
			return nil, usage.Errorf("sweep %q: write key=value,value as in ram=32GB,64GB", sweep)
		}
		var varied []Scenario
		for _, s := range all {
			for _, value := range strings.Split(values, ",") {
				v := s
				if err := v.Set(key, value); err != nil {
					return nil, usage.Errorf("sweep %s: %v", sweep, err)
				}
				v.Name, v.Title = v.Name+" "+key+"="+value, v.Title+", "+key+" "+value
				varied = append(varied, v)
			}
		}
		if all = varied; len(all) > mostVariants {
			return nil, usage.Errorf("the sweeps give more than %d variants", mostVariants)
		}
	}
	return all, nil
}

// Run simulates every policy in every scenario.
func Run(ctx context.Context, o Options) (*Report, error) {
	if len(o.Policies) == 0 {
		o.Policies = simulate.Contenders()
	}
	if o.Threads == "" {
		o.Threads = simulate.Shared
	}
	if o.Scale == 0 {
		o.Scale = 1
	}
	if !(o.Scale >= 1 && o.Scale <= 1e12) {
		return nil, usage.Errorf("scale %g: give a number of 1 or more", o.Scale)
	}
	if o.Progress == nil {
		o.Progress = func(string, float64, float64) {}
	}
	report := &Report{Threads: string(o.Threads), Seed: o.Seed, Scale: o.Scale}
	total := float64(len(o.Scenarios) * len(o.Policies))
	for i, s := range o.Scenarios {
		results := Results{Scenario: s}
		s.Scale(o.Scale)
		for j, p := range o.Policies {
			done := float64(i*len(o.Policies) + j)
			r, err := o.one(ctx, s, p, func(share float64) { o.Progress(s.Name+": "+string(p), done+share, total) })
			if err != nil {
				return nil, fmt.Errorf("scenario %s, policy %s: %w", s.Name, p, err)
			}
			results.LowerBoundS = max(results.LowerBoundS, r.LowerBoundS)
			results.Policies = append(results.Policies, r)
		}
		report.Scenarios = append(report.Scenarios, results)
	}
	return report, nil
}

func (o Options) one(ctx context.Context, s Scenario, p simulate.Contender, progress func(float64)) (Result, error) {
	out, err := simulate.Simulate(ctx, simulate.Simulation{Machine: s.Machine, Workload: s.Workload, Policy: p, Threads: o.Threads, Method: o.Method, Seed: o.Seed,
		MemoryBytes: o.Memory, Progress: progress})
	if errors.Is(err, simulate.ErrUnsupported) {
		return Result{Outcome: simulate.Outcome{Policy: p}, Error: err.Error()}, nil
	}
	if err != nil {
		return Result{}, err
	}
	return Result{Outcome: enlarged(out, o.Scale)}, nil
}

// enlarged is an outcome of a job that was scaled down, as that of the whole job.
func enlarged(o simulate.Outcome, by float64) simulate.Outcome {
	for _, x := range []*float64{&o.Seconds, &o.LowerBoundS, &o.InitS, &o.StallS, &o.FirstEpochS, &o.SteadyEpochS, &o.MB.PFS, &o.MB.Local, &o.MB.Remote,
		&o.FetchS.RAM, &o.FetchS.SSD, &o.FetchS.Remote, &o.FetchS.PFS} {
		*x *= by
	}
	return o
}
