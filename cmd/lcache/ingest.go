package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lcache/cmd/lcache/internal/launch"
	"lcache/engine"
	"lcache/internal/store/cache"
	"lcache/internal/store/cachedir"
	"lcache/internal/store/ingest"
	"lcache/internal/units"
)

func newIngestCommand(g *globals) *cobra.Command {
	var o ingest.Options
	var facts diskFlags
	var machines clusterFlags
	var filtered []string
	cmd := &cobra.Command{
		Use:         "ingest --source SRC --cache DIR[,DIR…]",
		Short:       "Create a cache and fill it before training",
		Annotations: map[string]string{groupedNote: "yes"},
		SuggestFor:  []string{"import", "fill", "prefill", "warm", "create"},
		Long: "ingest lists the source, reserves disk space, and writes all samples into the log of the first epoch. It reads the\n" +
			"source once, in the source's own order. Run it again to continue after an interruption, or to read the samples that\n" +
			"changed in the source.\n\n" +
			"At least 1 GB of the disk stays free, or 5 % if that is more, whatever --budget says. --recipe needs --batch-size.",
		Example: "  lcache ingest --source /data/train --cache /nvme/train \\\n" +
			"    --recipe torch.distributed_sampler --seed 0 --epochs 90 --batch-size 256 --world-size 8\n" +
			"  lcache ingest --source /data/train --cache /nvme0/c,/nvme1/c --budget 400GB",
	}
	addIngestFlags(cmd.Flags(), &o)
	addClusterFlags(cmd.Flags(), &machines)
	addDiskFlags(cmd.Flags(), &facts)
	// For programs that name the cache as run does.
	cmd.Flags().Var(dirs{&filtered}, "cache-if-filtered", "cache directory to use if --ext removes files")
	_ = cmd.Flags().MarkHidden("cache-if-filtered")
	cmd.Flags().BoolVar(&g.json, "json", false, "the report as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.Source == "" {
			return usagef("no source: give --source DIR, the folder of the dataset")
		}
		if err := needCache(o.Dirs); err != nil {
			return err
		}
		if err := finishIO(&o.IO); err != nil {
			return err
		}
		var err error
		if o.Disk, err = facts.disk(o.IO); err != nil {
			return err
		}
		if remark := withoutRecipe(cmd.Flags(), o.Job); remark != "" && !g.quiet {
			fmt.Fprintln(cmd.ErrOrStderr(), remark)
		}
		return runIngest(cmd, g, o, filtered, &machines)
	}
	return cmd
}

func addIngestFlags(f *pflag.FlagSet, o *ingest.Options) {
	addSourceFlag(f, &o.Source, "source", "dataset `SRC`: directory, tar:PATTERN, s3://BUCKET/PREFIX/ or https://HOST/LIST", &o.Remote)
	addCacheFlag(f, &o.Dirs)
	addJobFlags(f, &o.Job)
	f.Var(size{&o.Budget}, "budget", "maximum disk space of the cache (default: what the dataset needs)")
	f.Var(size{&o.Memory}, "memory", "maximum memory of the server (default: computed, at most a quarter)")
	f.BoolVar(&o.NoPrefill, "no-prefill", false, "leave reading the source to the first epoch")
	f.Var(&choice{&o.Compress, compressions}, "compress", "compression on disk; auto: lz4 if it saves 10 % (default: the cache's, else none)")
	addListingFlags(f, o)
	addLayoutFlag(f, &o.Layout)
	f.IntVar(&o.Jobs, "jobs", 0, "files read in parallel (default: automatic)")
	f.Var(share{&o.Share, &o.Shares}, "share", "read only part i of N, counted from 0")
	f.BoolVar(&o.DryRun, "dry-run", false, "print what reading the source would cost; create nothing")
	// For programs that start a server of their own.
	f.BoolVar(&o.Complete, "unless-complete", false, "skip listing if the cache is complete")
	_ = f.MarkHidden("unless-complete")
	f.BoolVar(&o.Relist, "relist", false, "list every directory again, not only changed ones")
	addIOFlags(f, &o.IO)
}

// runIngest makes or adapts the cache, and prints the report. filtered has the directories of the cache if --ext removes files; nil: the directories of o in any case.
func runIngest(cmd *cobra.Command, g *globals, o ingest.Options, filtered []string, machines *clusterFlags) (err error) {
	typed := o.Source
	if o.Source, err = absoluteSource(typed); err != nil {
		return err
	}
	bar := newProgress(g, cmd.ErrOrStderr())
	defer bar.done()
	o.Progress = bar.update
	o.Cost = func(c ingest.Cost) {
		if !g.quiet && !g.json {
			bar.done()
			fmt.Fprintln(cmd.ErrOrStderr(), costText(c))
		}
	}
	o.Hint = func(r *ingest.Report) {
		if !g.quiet && !g.json {
			bar.done()
			writeHint(cmd.ErrOrStderr(), r.TarPattern, r.Records)
		}
	}
	o.Logger = newLogger(g, bar, slog.LevelWarn)
	cachedir.WarnOfFolders(o.Logger, o.Dirs)
	if len(filtered) > 0 {
		other := o
		other.Dirs, o.Filtered = filtered, &other
	}
	joins, err := machines.options(cmd.Flags(), version, o.Logger)
	if err != nil {
		return err
	}
	if joins != nil && !o.DryRun {
		return ingestInCluster(cmd, g, o, joins, bar)
	}
	report, err := ingest.Run(cmd.Context(), o)
	bar.done()
	if err != nil {
		return err
	}
	if g.json {
		return writeJSON(cmd.OutOrStdout(), report)
	}
	if o.DryRun {
		text := costText(*report.Cost) + "\n"
		if report.LeftOut > 0 {
			text += "! " + leftOutText(report.Source, report.LeftOut) + "\n"
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		writeHint(cmd.OutOrStdout(), report.TarPattern, report.Records)
		return err
	}
	if !g.quiet {
		writeDefaults(cmd.ErrOrStderr(), report.Defaults)
	}
	report.Source = typed
	writeIngest(cmd.OutOrStdout(), report)
	return nil
}

// ingestInCluster makes the caches of several machines, and fills each with its part of the source.
func ingestInCluster(cmd *cobra.Command, g *globals, o ingest.Options, joins *launch.ClusterOptions, bar *progress) error {
	switch {
	case o.Shares > 0:
		return usagef("--share does not work with --cluster: the machines divide the source themselves; leave --share out")
	case o.Layout == cache.LayoutLog:
		return usagef("--layout log does not work with --cluster yet: leave --layout out")
	}
	r, err := launch.Ingest(cmd.Context(), launch.IngestOptions{Ingest: o, Cluster: joins, Version: version, Logger: o.Logger})
	bar.done()
	if err != nil {
		return err
	}
	if g.json {
		return writeJSON(cmd.OutOrStdout(), struct {
			*ingest.Report
			Machines int           `json:"machines"`
			Filled   engine.Filled `json:"filled"`
		}{r.Report, r.Machines, r.Filled})
	}
	if !g.quiet {
		writeDefaults(cmd.ErrOrStderr(), r.Defaults)
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "listed %s · %s\n", units.Plural(int64(r.Samples), "sample", "samples"), units.Bytes(r.Bytes))
	if r.Machines > 0 {
		fmt.Fprintf(out, "filled %s of %s, the part of 1 of %s\n", units.Bytes(r.Filled.Bytes), units.Bytes(r.Bytes), units.Plural(int64(r.Machines), "machine", "machines"))
	}
	if r.Filled.Failed > 0 {
		fmt.Fprintf(out, "! %s could not be read or stored: training reads them from the source\n", units.Plural(r.Filled.Failed, "sample", "samples"))
	}
	return nil
}
