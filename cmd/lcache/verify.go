package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"lcache/cache"
	"lcache/figures"
	"lcache/spelling"
)

func newVerifyCommand(g *globals) *cobra.Command {
	var o cache.VerifyOptions
	cmd := &cobra.Command{
		Use:        "verify --cache DIR[,DIR…]",
		Short:      "Check every stored sample's sum; with --against, every byte",
		SuggestFor: []string{"check", "fsck", "scrub"},
		Long: "verify reads all samples that a cache holds and compares each with the sum that its bytes had when they were\n" +
			"read from the source. With --against it reads the source too and compares the bytes: that also finds files\n" +
			"that were edited and kept their size and time. It refuses while a server has the cache.\n\n" +
			"verify changes nothing, so that it finds the same again. With --repair it forgets the sums of the samples that are\n" +
			"damaged: the next ingest or epoch reads those from the source.\n\n" +
			"Exit code 3 says that bytes are wrong. Bytes that could not be read are an error of their own, with exit code 1:\n" +
			"nothing is known of them.",
		Example: "  lcache verify --cache /nvme/train\n  lcache verify --cache /nvme/train --against /data/train\n  lcache verify --cache /nvme/train --repair",
	}
	f := cmd.Flags()
	addCacheFlag(f, &o.Dirs)
	f.StringVar(&o.Against, "against", "", "the source `SRC`, to compare every byte with")
	f.BoolVar(&o.Repair, "repair", false, "forget what is damaged, so that it is read from the source again")
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
		return verify(cmd, g, o)
	}
	return cmd
}

// verify reads the cache and prints the report. The error is what the process ends with.
func verify(cmd *cobra.Command, g *globals, o cache.VerifyOptions) (err error) {
	typed := o.Against
	if typed != "" {
		if o.Against, err = absoluteSource(typed); err != nil {
			return err
		}
	}
	bar := newProgress(g, cmd.ErrOrStderr())
	defer bar.done()
	o.Progress = bar.update
	o.Logger = newLogger(g, bar, slog.LevelWarn)
	report, err := cache.Verify(cmd.Context(), o)
	bar.done()
	if report == nil {
		return err
	}
	if g.json {
		err = errors.Join(err, writeJSON(cmd.OutOrStdout(), report))
	} else {
		writeVerify(cmd.OutOrStdout(), o.Dirs, typed, report)
	}
	if err != nil {
		return err
	}
	return foundDamage(o.Dirs, typed, report)
}

// foundDamage turns a report into what the process ends with. Wrong bytes come first: of what could not be read nothing is known.
func foundDamage(cache []string, against string, r *cache.VerifyReport) error {
	where := strings.Join(cache, ",")
	unread := couldNotRead(where, against, r)
	var wrong error
	switch {
	case r.Different > 0:
		wrong = fmt.Errorf("%s not what the source has now: the source changed without a new time or size; run lcache ingest into a new cache",
			figures.Plural(int64(r.Different), "sample is", "samples are"))
	case r.Forgotten > 0:
		wrong = fmt.Errorf("%s damaged in %s and forgotten: the next ingest or epoch reads them from the source; unless power was lost or a server was killed, look at the disk",
			figures.Plural(int64(r.Forgotten), "sample was", "samples were"), spelling.ShellWord(where))
	case r.Corrupt > 0:
		wrong = fmt.Errorf("%s damaged in %s: training gets them from the source; lcache verify --cache %s --repair lets the next ingest read them again; unless power was lost or a server was killed, look at the disk",
			figures.Plural(int64(r.Corrupt), "sample is", "samples are"), spelling.ShellWord(where), spelling.ShellWord(where))
	default:
		return unread
	}
	return &corruptError{errors.Join(wrong, unread)}
}

// couldNotRead is nil if everything was read.
func couldNotRead(where, against string, r *cache.VerifyReport) error {
	var log, src error
	if r.Unreadable > 0 {
		log = fmt.Errorf("%s could not be read from %s: nothing is known of their bytes; look at the disk, then verify again",
			figures.Plural(int64(r.Unreadable), "sample", "samples"), spelling.ShellWord(where))
	}
	if r.Uncompared > 0 {
		src = fmt.Errorf("%s could not be read from %s: they were not compared; look at the source, then verify again",
			figures.Plural(int64(r.Uncompared), "sample", "samples"), spelling.ShellWord(against))
	}
	return errors.Join(log, src)
}
