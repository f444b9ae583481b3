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

	given  bool // --cache was
	bundle bundleOptions
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
			"doctor exits with 1 if that directory cannot hold a cache.\n\n" +
			"With --bundle it writes a file that helps others to find a fault: the status, log messages and profiles of your servers, and\n" +
			"the facts above. It lists the contents first. Names are replaced by placeholders, and nothing is sent. While a server\n" +
			"runs, the disk is not measured. --inspect prints such a file.",
		Example: "  lcache doctor\n  lcache doctor --cache /nvme0/c,/nvme1/c --source /data/train\n  lcache doctor --cache /nvme --save machine.json\n" +
			"  lcache doctor --bundle lcache.tar.gz\n  lcache doctor --inspect lcache.tar.gz",
	}
	f := cmd.Flags()
	f.Var(dirs{&o.look.Dirs}, "cache", "directory of the cache, existing or not (default: the working directory)")
	addSourceFlag(f, &o.read.Source, "source", "your samples `SRC`: directory, tar:PATTERN, s3://BUCKET/PREFIX/ or https://HOST/LIST", &o.read.Remote)
	addStreamFlag(f, &o.read.Stream)
	addRecordFlags(f, &o.read.Records)
	f.DurationVar(&o.read.Time, "time", o.read.Time, "time for listing and reading --source")
	f.StringVar(&o.save, "save", "", "write the facts to `FILE` as JSON")
	f.BoolVar(&o.look.NoDevice, "no-device", false, "skip measuring the disk")
	f.StringVar(&o.bundle.file, "bundle", "", "write status, logs and profiles of your servers to `FILE.tar.gz`")
	f.BoolVar(&o.bundle.keep, "no-redact", false, "keep names in the bundle; credentials are always left out")
	f.StringVar(&o.bundle.socket, "socket", "", "socket `PATH` of the server for --bundle (default: this user's servers)")
	f.StringVar(&o.bundle.inspect, "inspect", "", "print the bundle in `FILE`, and nothing else")
	addIOFlags(f, &o.io)
	f.BoolVar(&g.json, "json", false, "facts and findings as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		for _, name := range []string{"bundle", "inspect"} {
			if value := f.Lookup(name).Value; f.Changed(name) && value.String() == "" {
				return usagef("--%s needs the name of a file", name)
			}
		}
		if err := o.bundle.finish(); err != nil {
			return err
		}
		if o.bundle.inspect != "" {
			return inspectBundle(cmd.OutOrStdout(), o.bundle.inspect)
		}
		if o.bundle.file != "" {
			if err := o.bundle.connect(); err != nil {
				return err
			}
			defer o.bundle.close()
			if len(o.bundle.servers)+len(o.bundle.silent) > 0 {
				o.look.NoDevice = true // measuring would disturb them
				if len(o.look.Dirs) == 0 && len(o.bundle.servers) > 0 {
					o.look.Dirs = o.bundle.dirs()
				}
			}
		}
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
		if o.bundle.file != "" {
			o.bundle.words = wordsOfFlags(cmd.Root())
			return o.bundle.write(cmd.Context(), cmd.OutOrStdout(), g, report)
		}
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
