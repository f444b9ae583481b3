package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"lcache/cache"
	"lcache/doctor"
)

type doctorOptions struct {
	look   doctor.Options
	source string
	time   time.Duration
	save   string
}

func newDoctorCommand(g *globals) *cobra.Command {
	o := doctorOptions{time: 30 * time.Second}
	var io cache.IO
	cmd := &cobra.Command{
		Use:   "doctor [--cache DIR[,DIR…]] [--source SRC]",
		Short: "Say what this machine gives to a cache, and whether one is worth it",
		Long: "doctor looks at the kernel, at memory, and at the directory that a cache is or will be in, and measures the device\n" +
			"below it for up to 20 s: with a file of at most 1 GiB or 5 % of what is free, which has no name while it is used and\n" +
			"is gone afterwards. With --source it also reads your own files for 30 s, as one reader does and as 32 do, and says\n" +
			"what lcache would make of it, or that you need not bother. Each file is dropped from the page cache before it is\n" +
			"read; names and inodes can't be without root, so a first epoch may be slower than this shows.\n" +
			"Ends with 1 if a cache can't be there.",
		Example: "  lcache doctor\n  lcache doctor --cache /nvme0/c,/nvme1/c --source /data/train\n  lcache doctor --cache /nvme --save machine.json",
	}
	f := cmd.Flags()
	f.Var(dirs{&o.look.Dirs}, "cache", "where the cache is or will be (default: the working directory)")
	f.StringVar(&o.source, "source", "", "your files: `SRC`, a directory")
	f.DurationVar(&o.time, "time", o.time, "for reading --source, its listing included")
	f.StringVar(&o.save, "save", "", "a `FILE` to write the facts to, as JSON")
	f.BoolVar(&o.look.NoDevice, "no-device", false, "measure no device")
	addIOFlags(f, &io)
	f.BoolVar(&g.json, "json", false, "facts and findings as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := finishIO(&io); err != nil {
			return err
		}
		if o.time < time.Second {
			return usagef("--time %v: give at least 1s", o.time)
		}
		if len(o.look.Dirs) == 0 {
			here, err := os.Getwd()
			if err != nil {
				return fmt.Errorf("working directory: %w", err)
			}
			o.look.Dirs = []string{here}
		}
		o.look.Engine, o.look.Direct = io.Engine, io.Direct
		bar := newProgress(g, cmd.ErrOrStderr())
		defer bar.done()
		o.look.Progress = stages(bar)
		o.look.Logger = newLogger(g, bar, slog.LevelError)
		report, err := diagnose(cmd, o)
		bar.done()
		if err != nil {
			return err
		}
		if o.save != "" {
			if err := report.save(o.save); err != nil {
				return err
			}
		}
		if g.json {
			err = writeJSON(cmd.OutOrStdout(), report)
		} else {
			writeDoctor(cmd.OutOrStdout(), report)
		}
		if err != nil {
			return err
		}
		return report.verdict()
	}
	return cmd
}

// stages shows what a measurement does now. It has no count: each stage is a matter of seconds.
func stages(bar *progress) func(string) {
	n := int64(0)
	return func(stage string) {
		n++
		bar.update(cache.Progress{Stage: stage, Done: n, Unit: "steps"})
	}
}

// doctorReport is the document of --json and --save.
type doctorReport struct {
	Version string         `json:"version"`
	Facts   *doctor.Facts  `json:"facts"`
	Checks  []doctor.Check `json:"checks"`
	Unseen  []string       `json:"unseen"`
	Advice  *doctor.Advice `json:"advice,omitempty"`
}

func diagnose(cmd *cobra.Command, o doctorOptions) (*doctorReport, error) {
	facts, err := doctor.Look(cmd.Context(), o.look)
	if err != nil {
		return nil, err
	}
	r := &doctorReport{Version: cmd.Version, Facts: facts}
	if o.source != "" {
		facts.Reading, err = doctor.Read(cmd.Context(), doctor.ReadOptions{Source: o.source, Time: o.time, Progress: o.look.Progress})
		if err != nil {
			return nil, err
		}
		advice := facts.Advise()
		r.Advice = &advice
	}
	r.Checks, r.Unseen = facts.Checks(), facts.Blind()
	return r, nil
}

// verdict is an error if a cache can't be where it should.
func (r *doctorReport) verdict() error {
	for _, c := range r.Checks {
		if c.State == doctor.Bad {
			return fmt.Errorf("%s: %s: %s", c.Name, c.Found, c.Do)
		}
	}
	return nil
}

// save writes the report whole or not at all.
func (r *doctorReport) save(path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("save the report: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
			err = fmt.Errorf("save the report: %w", err)
		}
	}()
	err = writeJSON(f, r)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
