package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"lcache/cmd/lcache/internal/chart"
	"lcache/cmd/lcache/internal/hitratio"
	"lcache/cmd/lcache/internal/scenario"
	"lcache/cmd/lcache/internal/simulate"
	"lcache/internal/store/cache"
	"lcache/internal/units"
	"lcache/internal/usage"
)

type simulateOptions struct {
	run       scenario.Options
	scenarios []string
	policies  []string
	sweeps    []string
	epochs    string
	workers   string
	batch     string
	memory    int64
	picture   string
	threads   string
	method    string
	hits      hitsOptions
}

func newSimulateCommand(g *globals) *cobra.Command {
	o := simulateOptions{threads: string(simulate.Shared), method: string(simulate.AutoMethod), memory: 2 << 30}
	cmd := &cobra.Command{
		Use:   "simulate [--scenario NAME|FILE]… [--policy NAME,…|all]",
		Short: "Compare caching policies in a simulated training",
		Long: "simulate runs the model of the NoPFS paper (SC '21): workers compute, prefetch, and wait for each other. A policy decides\n" +
			"where samples are kept and in which order they are read. simulate compares the policies of that paper with lcache's.\n\n" +
			"Built-in scenarios: " + strings.Join(scenario.Names(), ", ") + ".\n" +
			"docs/planning.md shows a scenario file. Without --scenario, simulate runs the six of the paper's Fig. 8.\n\n" +
			"Three methods compute the same numbers:\n" +
			"exact replays the orders of all epochs, sample by sample; it is the slowest, and correct to the byte.\n" +
			"sampled draws random mini-batches of four epochs; it takes seconds instead of minutes, and is correct to about 1 %.\n" +
			"analytic uses formulas alone, and answers at once.\n" +
			"auto chooses exact for small jobs, otherwise sampled.\n\n" +
			"--importance simulates something else: the hit ratio of memory, by its size, for importance-sampled orders\n" +
			"(docs/importance.md). It simulates no machine, and takes --policy " + strings.Join(hitratio.Policies, ", ") + ".",
		Example: "  lcache simulate --scenario imagenet1k-tight --plot fig8.svg\n" +
			"  lcache simulate --scenario imagenet22k --scale 50 --policy nopfs,peer_static --sweep ram=32GB,128GB --sweep ssd=128GB,1TB\n" +
			"  lcache simulate --importance ar1 --samples 500 --plot hits.svg",
	}
	f := cmd.Flags()
	f.Var(list{&o.scenarios}, "scenario", "`NAME` or file of a scenario (default: the paper's six)")
	f.Var(list{&o.policies}, "policy", "policies, or all (default: all)")
	f.StringVar(&o.epochs, "epochs", "", "`N` epochs, instead of the scenario's")
	f.StringVar(&o.workers, "workers", "", "`N` workers, instead of the scenario's")
	f.StringVar(&o.batch, "batch-size", "", "`N` samples in one worker's mini-batch, instead of the scenario's")
	f.Var(&choice{&o.threads, []string{"shared", "paper"}}, "threads", "prefetch threads share the device (shared) or nothing (paper)")
	f.Var(&choice{&o.method, []string{"auto", "analytic", "sampled", "exact"}}, "method", "replay of all orders (exact), random mini-batches (sampled), or formulas (analytic)")
	f.Uint64Var(&o.run.Seed, "seed", 0, "`SEED` of orders, sizes and draws")
	f.Float64Var(&o.run.Scale, "scale", 1, "simulate 1/`K` of samples and storage; times are scaled back")
	f.Var(size{&o.memory}, "memory", "maximum memory for the tables of exact")
	f.StringArrayVar(&o.sweeps, "sweep", nil, "key of the scenario and values: `KEY=V,V`; runs all combinations")
	f.StringVar(&o.picture, "plot", "", "draw the results to `FILE`.svg or .png")
	o.hits.register(f)
	f.BoolVar(&g.json, "json", false, "the results as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.hits.check(cmd.Flags()); err != nil {
			return err
		}
		bar := newProgress(g, cmd.ErrOrStderr())
		defer bar.done()
		if o.hits.trace != "" {
			return simulateHits(cmd.Context(), &o, g.json, cmd.OutOrStdout(), bar)
		}
		if err := o.finish(); err != nil {
			return err
		}
		o.run.Progress = func(what string, done, total float64) {
			u := cache.Progress{Stage: "simulating " + what, Done: int64(done), Total: int64(total), Unit: "simulations"}
			if total == 1 {
				u.Done, u.Total, u.Unit = int64(1000*done), 1000, "parts"
			}
			bar.update(u)
		}
		report, err := scenario.Run(cmd.Context(), o.run)
		bar.done()
		if err != nil {
			return err
		}
		if o.picture != "" {
			if err := chart.Save(report, o.picture); err != nil {
				return err
			}
		}
		if g.json {
			return writeJSON(cmd.OutOrStdout(), report)
		}
		writeSimulation(cmd.OutOrStdout(), report)
		return nil
	}
	return cmd
}

// figure8 are the scenarios that are run if none is named.
var figure8 = []string{"mnist", "imagenet1k", "openimages", "imagenet22k", "cosmoflow", "cosmoflow512"}

// finish checks the options, and completes them.
func (o *simulateOptions) finish() (err error) {
	if o.run.Scale == 0 { // which package compare takes for not given
		return usage.Errorf("scale 0: give a number of 1 or more")
	}
	if o.picture != "" {
		if err := chart.Check(o.picture); err != nil {
			return err
		}
	}
	if o.run.Policies, err = scenario.ParsePolicies(o.policies); err != nil {
		return err
	}
	if len(o.scenarios) == 0 {
		o.scenarios = figure8
	}
	var all []scenario.Scenario
	for _, name := range o.scenarios {
		loaded, err := scenario.Load(name)
		if err != nil {
			return usage.Errorf("%v", err)
		}
		all = append(all, loaded...)
	}
	for i := range all {
		for key, value := range map[string]string{"epochs": o.epochs, "workers": o.workers, "batch": o.batch} {
			if value == "" {
				continue
			}
			if err := all[i].Set(key, value); err != nil {
				return usage.Errorf("%v", err)
			}
		}
	}
	o.run.Scenarios, err = scenario.Vary(all, o.sweeps)
	o.run.Threads, o.run.Method, o.run.Memory = simulate.Threads(o.threads), simulate.Method(o.method), float64(o.memory)
	return err
}

// writeSimulation prints a table for each scenario.
func writeSimulation(w io.Writer, r *scenario.Report) {
	for i, s := range r.Scenarios {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s: %s\n", s.Name, s.Title)
		fmt.Fprintf(w, "  %s samples, %s, %s epochs, %d workers; computing alone (the lower bound) takes %s\n", units.Count(int64(s.Workload.Samples)), bytesOf(s.Workload.TotalMB()*1e6),
			units.Count(int64(s.Workload.Epochs)), s.Machine.Workers, epochTime(s.LowerBoundS))
		rows := [][]string{{"policy", "time", "÷ lower bound", "filling", "waiting", "first epoch", "other epochs", "from source", "from own", "from others", "method"}}
		for _, p := range s.Policies {
			rows = append(rows, simulationRow(p))
		}
		numbers(w, "  ", rows)
	}
	if r.Scale != 1 {
		fmt.Fprintf(w, "\nSimulated with samples and storage divided by %g; times and bytes are for the whole job.\n", r.Scale)
	}
}

func simulationRow(p scenario.Result) []string {
	if p.Refuses() {
		return []string{string(p.Policy), "refuses", "–", "–", "–", "–", "–", "–", "–", "–", ""}
	}
	note := string(p.Method)
	if p.DatasetSeen < 0.995 {
		note += fmt.Sprintf(", reads %.0f %% of the dataset", 100*p.DatasetSeen)
	}
	mb := func(n float64) string {
		if n <= 0 {
			return "–"
		}
		return bytesOf(n * 1e6)
	}
	return []string{string(p.Policy), epochTime(p.Seconds), fmt.Sprintf("%.2f", p.Ratio), epochTime(p.InitS), epochTime(p.StallS), epochTime(p.FirstEpochS), epochTime(p.SteadyEpochS),
		mb(p.MB.PFS), mb(p.MB.Local), mb(p.MB.Remote), note}
}
