package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"lcache/engine"
)

func newVerifyCommand(g *globals) *cobra.Command {
	var o engine.VerifyOptions
	cmd := &cobra.Command{
		Use:        "verify --cache DIR[,DIR…]",
		Short:      "Check every stored sample's sum; with --against, every byte",
		SuggestFor: []string{"check", "fsck", "scrub"},
		Long: "verify reads all samples that a cache holds and compares each with the sum that its bytes had when they were\n" +
			"read from the source. With --against it reads the source too and compares the bytes: that also finds files\n" +
			"that were edited and kept their size and time. It refuses while a server has the cache.",
		Example: "  lcache verify --cache /nvme/train\n  lcache verify --cache /nvme/train --against /data/train",
	}
	f := cmd.Flags()
	addCacheFlag(f, &o.Dirs)
	f.StringVar(&o.Against, "against", "", "the source `SRC`, to compare every byte with")
	f.IntVar(&o.Jobs, "jobs", 0, "files read at once (default: chosen by lcache)")
	addIOFlags(f, &o.IO)
	f.BoolVar(&g.json, "json", false, "the report as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := needCache(o.Dirs); err != nil {
			return err
		}
		if err := finishIO(&o.IO); err != nil {
			return err
		}
		typed := o.Against
		if typed != "" {
			var err error
			if o.Against, err = absoluteSource(typed); err != nil {
				return err
			}
		}
		bar := newProgress(g, cmd.ErrOrStderr())
		defer bar.done()
		o.Progress = bar.update
		o.Logger = newLogger(g, bar, slog.LevelWarn)
		report, err := engine.Verify(cmd.Context(), o)
		bar.done()
		if err != nil {
			return err
		}
		if g.json {
			err = writeJSON(cmd.OutOrStdout(), report)
		} else {
			writeVerify(cmd.OutOrStdout(), o.Dirs, typed, report)
		}
		if err != nil {
			return err
		}
		return verdict(o.Dirs, report)
	}
	return cmd
}

// verdict turns a report into what the process ends with.
func verdict(cache []string, r *engine.VerifyReport) error {
	where := shellWord(strings.Join(cache, ","))
	switch {
	case r.Different > 0:
		return &corruptError{fmt.Errorf("%s not what the source has now: the source changed without a new time or size; run lcache ingest into a new cache",
			plural(int64(r.Different), "sample is", "samples are"))}
	case r.Corrupt > 0:
		return &corruptError{fmt.Errorf("%s damaged in %s: training gets them from the source, and the next ingest or epoch reads them again; unless power was lost or a server was killed, look at the disk",
			plural(int64(r.Corrupt), "sample is", "samples are"), where)}
	}
	return nil
}
