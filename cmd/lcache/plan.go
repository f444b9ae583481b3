package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lcache/cmd/lcache/internal/planner"
	"lcache/internal/units"
	"lcache/internal/usage"
)

// factFlag is a flag whose text package planner reads.
type factFlag struct {
	to   *string
	kind planner.Kind
}

func (f factFlag) Type() string { return string(f.kind) }
func (f factFlag) String() string {
	if f.to == nil {
		return ""
	}
	return *f.to
}

func (f factFlag) Set(text string) error {
	*f.to = text
	return nil
}

type planOptions struct {
	gather    planner.Gathering
	given     map[string]*string
	endurance string
	whatIf    []string
	alone     bool
}

func newPlanCommand(g *globals) *cobra.Command {
	o := planOptions{given: map[string]*string{}}
	cmd := &cobra.Command{
		Use:   "plan [--source SRC] [--cache DIR[,DIR…]] [--facts FILE|off] [FACTS]",
		Short: "Predict the effect of a cache on a job",
		Long: "plan predicts, for each caching policy, the epoch time, the bottleneck, the write volume, the memory, and the smallest\n" +
			"useful cache. It recommends a layout, and ends with the command to run.\n\n" +
			"plan takes facts, in this order, from flags, from --facts, from a running server of --cache, and from measurements:\n" +
			"the files of --source for --time, the disk of --cache for up to 20 s. The report shows the origin of each fact.\n" +
			"--facts off never measures. Write \"unlimited\" for something without a limit.\n\n" +
			"Sizes and rates are for one node. The size and the rates of the source are for all nodes together.\n" +
			"docs/planning.md explains the numbers.",
		Example: "  lcache plan --source /data/train --time 2s --budget 1TB --read-bw 3GB/s --write-bw 2GB/s --read-iops 500000 \\\n" +
			"    --batch-size 256 --epochs 90 --consumer 5000/s\n" +
			"  lcache plan --facts off --samples 1281167 --bytes 138GB --batch-size 256 --epochs 90 --budget 150GB \\\n" +
			"    --combined-bw 500MB/s --combined-iops 3000 --source-bw 150MB/s --consumer 5000/s --what-if sample-size=16KB",
	}
	f := cmd.Flags()
	addSourceFlag(f, &o.gather.Source, "source", "source `SRC` to list and measure, as in ingest", &o.gather.Remote)
	addStreamFlag(f, &o.gather.Stream)
	addRecordFlags(f, &o.gather.Records)
	f.DurationVar(&o.gather.Time, "time", 10*time.Second, "time for listing and reading --source")
	f.Var(dirs{&o.gather.Dirs}, "cache", "directory of the cache: queries its server, or measures its disk")
	f.StringVar(&o.gather.File, "facts", "", "`FILE` saved by lcache doctor, or off: measure nothing")
	for _, fact := range planner.Fields {
		o.given[fact.Name] = new(string)
		f.Var(factFlag{o.given[fact.Name], fact.Kind}, fact.Name, fact.Help)
	}
	f.BoolVar(&o.alone, "without-peers", false, "nodes cannot read from each other")
	f.StringVar(&o.endurance, "endurance", "", "write rating of the drives: `3DWPD` (drive writes per day) or 1400TBW")
	f.StringArrayVar(&o.whatIf, "what-if", nil, "other values of a fact or of sample-size: `KEY=V,V`")
	f.BoolVar(&g.json, "json", false, "the plan as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		bar := newProgress(g, cmd.ErrOrStderr())
		defer bar.done()
		o.gather.Progress, o.gather.Now = stages(bar), time.Now()
		report, missing, err := o.report(cmd)
		bar.done()
		switch {
		case err != nil:
			return err
		case len(missing) > 0:
			return missingFacts(cmd.ErrOrStderr(), missing)
		case g.json:
			return writeJSON(cmd.OutOrStdout(), report)
		}
		writePlan(cmd.OutOrStdout(), report)
		if next := o.command(report); next != "" {
			fmt.Fprintf(cmd.OutOrStdout(), "\nnext: %s\n", next)
		}
		return nil
	}
	return cmd
}

// missingFacts prints the facts that a plan lacks, one a line, and returns the error with which the command ends.
func missingFacts(w io.Writer, missing []planner.MissingFact) error {
	rows := make([][]string, len(missing))
	for i, m := range missing {
		rows[i] = []string{"missing", m.Name, m.Ways}
	}
	table(w, "", rows)
	return usage.Errorf("%s missing: add the flags that are listed above, with \"unlimited\" for something without a limit", units.Plural(int64(len(missing)), "fact is", "facts are"))
}

// command returns the command that follows the plan's advice, or "" if no cache is needed or none fits. SRC and DIR stand for unknown paths.
func (o *planOptions) command(r *planner.Report) string {
	src, dir := "SRC", "DIR"
	if o.gather.Source != "" {
		src = usage.ShellWord(o.gather.Source)
	}
	if len(o.gather.Dirs) > 0 {
		dir = usage.ShellWord(strings.Join(o.gather.Dirs, ","))
	}
	layout, policy := r.Advice.Layout, r.Advice.Policy
	if r.Advice.NotYet != "" {
		policy = r.Advice.TodayPolicy
		layout = strings.TrimPrefix(policy, "peer_")
	}
	f := r.Model.Facts()
	if r.Advice.Error != "" || layout == "none" || layout == "" {
		return ""
	}
	line := fmt.Sprintf("lcache run --source %s --cache %s --layout %s", src, dir, layout)
	if small := r.Advice.SmallestCache; small > 0 && small < f.CacheBytes && r.Advice.NotYet == "" {
		line += " --budget " + atLeast(small)
	}
	if policy != layout { // see docs/cluster.md
		line += " --cluster auto --cluster-key KEY"
	}
	return line + " -- python train.py"
}

// atLeast writes bytes for a flag, rounded up to a whole number of megabytes or gigabytes.
func atLeast(n float64) string {
	if n < 10e9 {
		return fmt.Sprintf("%.0fMB", math.Ceil(n/1e6))
	}
	return fmt.Sprintf("%.0fGB", math.Ceil(n/1e9))
}

// report collects the facts and makes the plan; without one, missing has the facts that it lacks.
func (o *planOptions) report(cmd *cobra.Command) (r *planner.Report, missing []planner.MissingFact, err error) {
	if o.gather.Time < time.Second {
		return nil, nil, usage.Errorf("--time %v: give at least 1s", o.gather.Time)
	}
	var changes []planner.Change
	for _, text := range o.whatIf {
		c, err := planner.ParseChange(text)
		if err != nil {
			return nil, nil, err
		}
		changes = append(changes, c)
	}
	facts := &planner.Facts{}
	for _, fact := range planner.Fields {
		if cmd.Flags().Changed(fact.Name) {
			if err := facts.Set(fact.Name, *o.given[fact.Name], "given"); err != nil {
				return nil, nil, err
			}
		}
	}
	facts.WithoutPeers = o.alone
	if err := facts.Gather(cmd.Context(), o.gather); err != nil {
		return nil, nil, err
	}
	if missing = facts.Missing(); len(missing) > 0 {
		return nil, missing, nil
	}
	if o.endurance != "" {
		if err := facts.Endurance(o.endurance); err != nil {
			return nil, nil, err
		}
	}
	r, err = facts.Report(changes)
	return r, nil, err
}
