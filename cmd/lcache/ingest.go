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
		Short:       "Make a cache and fill it before training",
		Annotations: map[string]string{groupedNote: "yes"},
		SuggestFor:  []string{"import", "fill", "prefill", "warm", "create"},
		Long: "ingest lists the source once, reserves space on disk, and reads all samples, in the source's own order, into the log\n" +
			"of the first epoch. Interrupted, it goes on where it stopped when it is run again. Of a source that has changed it\n" +
			"reads only the samples that changed.",
		Example: "  lcache ingest --source /data/train --cache /nvme/train \\\n" +
			"    --recipe torch.distributed_sampler --seed 0 --epochs 90 --batch-size 256 --world-size 8\n" +
			"  lcache ingest --source /data/train --cache /nvme0/c,/nvme1/c --budget 400GB",
	}
	addIngestFlags(cmd.Flags(), &o)
	addDiskFlags(cmd.Flags(), &facts)
	// For programs that name the cache as run does.
	cmd.Flags().Var(dirs{&filtered}, "cache-if-filtered", "the cache's directories if --ext removes files; --cache is then a cache without --ext")
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
	addSourceFlag(f, &o.Source, "source", "the dataset: `SRC`, a directory, tar:PATTERN, s3://BUCKET/PREFIX/ or https://HOST/LIST", &o.Remote)
	addCacheFlag(f, &o.Dirs)
	addJobFlags(f, &o.Job)
	f.Var(size{&o.Budget}, "budget", "disk space the cache may take; 1 GB or 5 % of the disk, whichever is more, stay free (default: what the dataset needs, if free)")
	f.Var(size{&o.Memory}, "memory", "memory the server may take (default: the need, at most a quarter)")
	f.BoolVar(&o.NoPrefill, "no-prefill", false, "don't read the source now: the first epoch reads it")
	f.Var(&choice{&o.Compress, compressions}, "compress", "compression of samples on disk: auto takes lz4 if it saves 10 % (default: that of the cache; none for a new one)")
	addListingFlags(f, o)
	addLayoutFlag(f, &o.Layout)
	f.IntVar(&o.Jobs, "jobs", 0, "files read at once (default: chosen by lcache)")
	f.Var(share{&o.Share, &o.Shares}, "share", "read only part i of N of the source, from 0")
	f.BoolVar(&o.DryRun, "dry-run", false, "list the source, print what reading it would cost, and make nothing")
	// For programs that start a server of their own.
	f.BoolVar(&o.Complete, "unless-complete", false, "don't list a source over a network of which the cache has all")
	_ = f.MarkHidden("unless-complete")
	f.BoolVar(&o.Relist, "relist", false, "list every directory again, not only those that changed")
	addIOFlags(f, &o.IO)
}

// runIngest makes or adapts the cache, and prints the report. filtered has the directories of the cache if --ext removes files; nil: those of o in any case.
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
