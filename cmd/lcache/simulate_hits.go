package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/pflag"

	"lcache/cmd/lcache/internal/chart"
	"lcache/cmd/lcache/internal/hitratio"
	"lcache/internal/store/cache"
	"lcache/internal/units"
	"lcache/internal/usage"
)

// hitsOptions are the flags of simulate that are about importance.
type hitsOptions struct {
	trace   string
	samples int
}

func (o *hitsOptions) register(f *pflag.FlagSet) {
	f.StringVar(&o.trace, "importance", "", "hit ratios for a `TRACE` of losses, or "+hitratio.AR1+" (generated)")
	f.IntVar(&o.samples, "samples", 0, "number `N` of samples in the trace (default for "+hitratio.AR1+": 4000)")
}

// ofMachines are the flags that have no meaning with --importance.
var ofMachines = []string{"scenario", "workers", "threads", "method", "scale", "memory", "sweep"}

// check refuses flags that have no meaning with, or without, a trace.
func (o *hitsOptions) check(f *pflag.FlagSet) error {
	if o.trace == "" && f.Changed("samples") {
		return usage.Errorf("--samples requires --importance")
	}
	for _, name := range ofMachines {
		if o.trace != "" && f.Changed(name) {
			return usage.Errorf("--%s cannot be combined with --importance: leave it out", name)
		}
	}
	return nil
}

// simulateHits counts hit ratios, and prints and draws them.
func simulateHits(ctx context.Context, o *simulateOptions, asJSON bool, w io.Writer, bar *progress) error {
	run := hitratio.Options{Seed: o.run.Seed, Policies: o.policies}
	for _, number := range []struct {
		name, text string
		to         *int
	}{{"epochs", o.epochs, &run.Epochs}, {"batch-size", o.batch, &run.Batch}} {
		if number.text == "" {
			continue
		}
		n, err := strconv.Atoi(number.text)
		if err != nil || n < 1 {
			return usage.Errorf("--%s %s: give a number of at least 1", number.name, number.text)
		}
		*number.to = n
	}
	if slices.Equal(run.Policies, []string{"all"}) {
		run.Policies = nil
	}
	if o.picture != "" {
		if err := chart.Check(o.picture); err != nil {
			return err
		}
	}
	var err error
	if run.Trace, err = hitratio.Open(o.hits.trace, o.hits.samples); err != nil {
		return err
	}
	run.Progress = func(done, total int) {
		bar.update(cache.Progress{Stage: "simulating importance", Done: int64(done), Total: int64(total), Unit: "parts"})
	}
	report, err := hitratio.Run(ctx, run)
	bar.done()
	if err != nil {
		return err
	}
	if o.picture != "" {
		if err := chart.SaveHits(report, o.picture); err != nil {
			return err
		}
	}
	if asJSON {
		return writeJSON(w, report)
	}
	writeHits(w, report)
	return nil
}

// writeHits prints a table for each method: a row for each size of memory, a column for each policy.
func writeHits(w io.Writer, r *hitratio.Report) {
	for k := 0; k < len(r.Curves); {
		first := r.Curves[k]
		of := []hitratio.Curve{}
		for ; k < len(r.Curves) && r.Curves[k].Method == first.Method && r.Curves[k].Rep == first.Rep; k++ {
			of = append(of, r.Curves[k])
		}
		name := first.Method
		switch {
		case name == hitratio.Plain:
			name = "permutations, no importance"
		case first.Rep != 1:
			name = fmt.Sprintf("%s, rep %g", name, first.Rep)
		}
		fmt.Fprintf(w, "%s: %s samples, %d epochs, hit ratios of those from epoch %d on\n", name, units.Count(int64(first.Samples)), first.Epochs, first.From)
		rows := [][]string{{"memory"}}
		for _, c := range of {
			rows[0] = append(rows[0], c.Policy)
		}
		for p, point := range first.Points {
			row := []string{percent(point.Cache)}
			for _, c := range of {
				row = append(row, hitsText(c.Points[p]))
			}
			rows = append(rows, row)
		}
		numbers(w, "  ", rows)
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "impact with memory for 20 % of the samples, by the share of it for unstable samples")
	rows := [][]string{{"share", "paper"}}
	for _, s := range r.Unstable {
		rows = append(rows, []string{percent(s.Share), percent(s.Hits)})
	}
	numbers(w, "  ", rows)
	writeRatios(w, r)
}

// writeRatios prints a row for each ratio of SpiderCache's caches, and a column for each policy that serves other samples.
func writeRatios(w io.Writer, r *hitratio.Report) {
	if len(r.Ratios) == 0 {
		return
	}
	fmt.Fprintln(w, "\nspider with memory for 20 % of the samples, by the share of it for important samples")
	rows := [][]string{{"ratio"}}
	for _, at := range r.Ratios {
		if !slices.Contains(rows[0], at.Policy) {
			rows[0] = append(rows[0], at.Policy)
		}
		row := slices.IndexFunc(rows, func(row []string) bool { return row[0] == percent(at.Ratio) })
		if row < 0 {
			row, rows = len(rows), append(rows, []string{percent(at.Ratio)})
		}
		rows[row] = append(rows[row], hitsText(hitratio.Point{Hits: at.Hits, Substituted: at.Substituted}))
	}
	numbers(w, "  ", rows)
}

// hitsText is a hit ratio; what loaded packages and other samples served stands behind pluses.
func hitsText(p hitratio.Point) string {
	if p.Loaded > 0 {
		return fmt.Sprintf("%.1f + %.1f + %.1f %%", 100*p.Hits, 100*p.Loaded, 100*p.Substituted)
	}
	if p.Substituted > 0 {
		return fmt.Sprintf("%.1f + %.1f %%", 100*p.Hits, 100*p.Substituted)
	}
	return percent(p.Hits)
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }
