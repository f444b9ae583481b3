package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"lcache/cmd/lcache/internal/doctor"
	"lcache/internal/store/cache"
)

type doctorOptions struct {
	look doctor.Options
	io   cache.IO
	read doctor.ReadOptions
	save string

	given bool // --cache was
}

func newDoctorCommand(g *globals) *cobra.Command {
	o := doctorOptions{read: doctor.ReadOptions{Time: 30 * time.Second}}
	cmd := &cobra.Command{
		Use:   "doctor [--cache DIR[,DIR…]] [--source SRC]",
		Short: "Check this machine, and tell whether a cache is worth it",
		Long: "doctor checks the kernel, the memory, and the directory of a cache, which need not exist yet. It measures the disk\n" +
			"below that directory for up to 20 s. For this it uses a temporary file of at most 1 GiB or 5 % of the free space.\n\n" +
			"With --source it also reads your own files for 30 s, with one reader and with 32, and predicts the speed of lcache. It\n" +
			"ends with a verdict: worth it, don't bother, or unclear. It drops each file from the page cache before reading it.\n" +
			"Names and inodes stay in memory, so a real first epoch may be slower. A network source counts and bills these requests\n" +
			"as usual.\n\n" +
			"doctor exits with 1 if that directory cannot hold a cache.",
		Example: "  lcache doctor\n  lcache doctor --cache /nvme0/c,/nvme1/c --source /data/train\n  lcache doctor --cache /nvme --save machine.json",
	}
	f := cmd.Flags()
	f.Var(dirs{&o.look.Dirs}, "cache", "directory of the cache, existing or not (default: the working directory)")
	addSourceFlag(f, &o.read.Source, "source", "your samples `SRC`: directory, tar:PATTERN, s3://BUCKET/PREFIX/ or https://HOST/LIST", &o.read.Remote)
	addStreamFlag(f, &o.read.Stream)
	addRecordFlags(f, &o.read.Records)
	f.DurationVar(&o.read.Time, "time", o.read.Time, "time for listing and reading --source")
	f.StringVar(&o.save, "save", "", "write the facts to `FILE` as JSON")
	f.BoolVar(&o.look.NoDevice, "no-device", false, "skip measuring the disk")
	addIOFlags(f, &o.io)
	f.BoolVar(&g.json, "json", false, "facts and findings as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.finish(); err != nil {
			return err
		}
		bar := newProgress(g, cmd.ErrOrStderr())
		defer bar.done()
		o.look.Progress = stages(bar)
		o.look.Logger = newLogger(g, bar, slog.LevelError)
		report, err := doctor.Examine(cmd.Context(), o.look, o.read)
		bar.done()
		if err != nil {
			return err
		}
		report.Version = cmd.Version
		return o.show(cmd.OutOrStdout(), g, report)
	}
	return cmd
}

// finish checks the options, and completes them.
func (o *doctorOptions) finish() error {
	if err := finishIO(&o.io); err != nil {
		return err
	}
	if o.read.Time < time.Second {
		return usagef("--time %v: give at least 1s", o.read.Time)
	}
	if o.read.Source != "" {
		var err error
		if o.read.Remote, err = o.read.Remote.Completed(o.read.Source); err != nil {
			return err
		}
	}
	if o.given = len(o.look.Dirs) > 0; !o.given {
		here, err := os.Getwd()
		if err != nil {
			return fmt.Errorf("working directory: %w", err)
		}
		o.look.Dirs = []string{here}
	}
	o.look.Engine = o.io.Engine
	return nil
}

// show saves and prints a report. Its error decides the exit code.
func (o *doctorOptions) show(w io.Writer, g *globals, report *doctor.Report) error {
	if o.save != "" {
		if err := report.Save(o.save); err != nil {
			return err
		}
	}
	if g.json {
		if err := writeJSON(w, report); err != nil {
			return err
		}
	} else {
		writeDoctor(w, report, o.given)
	}
	return report.Err()
}

// stages returns a function that shows the stages of a measurement. Nobody knows how many there will be, so they are not counted.
func stages(bar *progress) func(string) {
	return func(stage string) { bar.update(cache.Progress{Stage: stage}) }
}
