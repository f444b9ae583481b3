package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"lcache/internal/store/cache"
	"lcache/internal/units"
	"lcache/internal/usage"
)

func newVerifyCommand(g *globals) *cobra.Command {
	var o cache.VerifyOptions
	cmd := &cobra.Command{
		Use:        "verify --cache DIR[,DIR…]",
		Short:      "Check the checksum of every stored sample",
		SuggestFor: []string{"check", "fsck", "scrub"},
		Long: "verify reads all samples in a cache, and compares each with the checksum of the bytes that were read from the source.\n" +
			"With --against it also reads the source and compares every byte. This finds files that were edited but kept their size\n" +
			"and mtime. verify refuses a cache that a server uses.\n\n" +
			"verify changes nothing, except with --repair: then it drops damaged samples, and the next ingest or epoch reads them\n" +
			"from the source.\n\n" +
			"Exit code 3: some bytes are wrong. Exit code 1: some bytes could not be read, and none are known to be wrong.",
		Example: "  lcache verify --cache /nvme/train\n  lcache verify --cache /nvme/train --against /data/train\n  lcache verify --cache /nvme/train --repair",
	}
	f := cmd.Flags()
	addCacheFlag(f, &o.Dirs)
	addSourceFlag(f, &o.Against, "against", "compare every byte with the source `SRC`", &o.Remote)
	f.BoolVar(&o.Repair, "repair", false, "drop damaged samples, to be read from the source again")
	f.IntVar(&o.Jobs, "jobs", 0, "files read in parallel (default: automatic)")
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

// verify reads the cache and prints the report. Its error decides the exit code.
func verify(cmd *cobra.Command, g *globals, o cache.VerifyOptions) (err error) {
	typed := o.Against
	if typed != "" {
		if o.Against, err = absoluteSource(typed); err != nil {
			return err
		}
		if _, err = o.Remote.Completed(o.Against); err != nil {
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

// foundDamage returns the error of a report that found damage. Wrong bytes come before bytes that could not be read.
func foundDamage(cache []string, against string, r *cache.VerifyReport) error {
	where := strings.Join(cache, ",")
	unread := couldNotRead(where, against, r)
	var wrong error
	switch {
	case r.Different > 0:
		wrong = fmt.Errorf("%s from the source, which was edited without a new time or size: touch the files named above and run lcache ingest --relist, or make a new cache",
			units.Plural(int64(r.Different), "sample differs", "samples differ"))
	case r.Forgotten > 0:
		wrong = fmt.Errorf("%s damaged in %s and dropped: the next ingest or epoch reads them from the source; unless power was lost or a server was killed, check the disk",
			units.Plural(int64(r.Forgotten), "sample was", "samples were"), usage.ShellWord(where))
	case r.Corrupt > 0:
		wrong = fmt.Errorf("%s damaged in %s: training gets them from the source; lcache verify --cache %s --repair drops them, and the next ingest reads them again; unless power was lost or a server was killed, check the disk",
			units.Plural(int64(r.Corrupt), "sample is", "samples are"), usage.ShellWord(where), usage.ShellWord(where))
	default:
		return unread
	}
	return &corruptError{errors.Join(wrong, unread)}
}

// couldNotRead returns the error of a report with samples that could not be read; nil: all were read.
func couldNotRead(where, against string, r *cache.VerifyReport) error {
	var log, src error
	if r.Unreadable > 0 {
		log = fmt.Errorf("%s could not be read from %s, so their bytes were not checked: check the disk, then verify again",
			units.Plural(int64(r.Unreadable), "sample", "samples"), usage.ShellWord(where))
	}
	if r.Uncompared > 0 {
		src = fmt.Errorf("%s could not be read from %s, so they were not compared: check the source, then verify again",
			units.Plural(int64(r.Uncompared), "sample", "samples"), usage.ShellWord(against))
	}
	return errors.Join(log, src)
}
