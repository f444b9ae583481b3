package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lcache/internal/store/cachedir"
	"lcache/internal/store/ingest"
)

func newIngestCommand(g *globals) *cobra.Command {
	var o ingest.Options
	var facts diskFlags
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
		return runIngest(cmd, g, o, filtered)
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
func runIngest(cmd *cobra.Command, g *globals, o ingest.Options, filtered []string) (err error) {
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
