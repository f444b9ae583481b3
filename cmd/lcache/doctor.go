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
		Short: "Check this machine, and say whether a cache is worth it",
		Long: "doctor checks the kernel, memory, and the directory of a cache, which need not exist yet. It measures the device\n" +
			"below that directory for up to 20 s, with a file of at most 1 GiB or 5 % of the free space. The file has no name while\n" +
			"it is used, and is gone afterwards.\n\n" +
			"With --source it also reads your own files for 30 s, with one reader and with 32, and says how fast lcache would be, or\n" +
			"that you need not bother. It drops each file from the page cache before it reads the file. Names and inodes stay in\n" +
			"memory, so a first epoch may be slower than this shows. A source over a network is asked as ingest asks it, and every\n" +
			"request counts.\n\n" +
			"doctor ends with 1 if a cache can't be in that directory.",
		Example: "  lcache doctor\n  lcache doctor --cache /nvme0/c,/nvme1/c --source /data/train\n  lcache doctor --cache /nvme --save machine.json",
	}
	f := cmd.Flags()
	f.Var(dirs{&o.look.Dirs}, "cache", "the directory of the cache, which need not exist yet (default: the working directory)")
	addSourceFlag(f, &o.read.Source, "source", "your files: `SRC`, a directory, tar:PATTERN, s3://BUCKET/PREFIX/ or https://HOST/LIST", &o.read.Remote)
	addStreamFlag(f, &o.read.Stream)
	f.DurationVar(&o.read.Time, "time", o.read.Time, "the time for reading --source, with its listing")
	f.StringVar(&o.save, "save", "", "a `FILE` to write the facts to, as JSON")
	f.BoolVar(&o.look.NoDevice, "no-device", false, "don't measure the device")
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
