package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"lcache/cmd/lcache/internal/demo"
	"lcache/internal/store/ingest"
	"lcache/internal/units"
)

func newDemoCommand(g *globals) *cobra.Command {
	o := demo.Options{Epochs: 4, World: 2, BatchSize: 64}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Do the whole job on real files, check every byte, and show a table",
		Long: "demo ingests a folder of real files (the source of the Go toolchain), serves it, and reads it for some epochs\n" +
			"in fully shuffled order from Python, as several ranks. It compares every sample with its file, and the order\n" +
			"with that of torch's DistributedSampler. Then it does all of this again with half of the disk space.\n" +
			"It also drops the files from the page cache, reads the same samples in the same order as plain files, and says\n" +
			"where lcache is no faster. The cache lies in a new folder below --dir and is removed at the end. demo ends with 1\n" +
			"if a check failed. No check is about speed.",
		Example: "  lcache demo\n  lcache demo --source /data/train --dir /nvme --epochs 2",
	}
	f := cmd.Flags()
	f.StringVar(&o.Source, "source", "", "a `DIR` of folders of files (default: the Go toolchain's src)")
	f.StringVar(&o.Dir, "dir", ".", "the `DIR` where the cache's temporary folder is made")
	f.BoolVar(&o.Keep, "keep", false, "keep the caches")
	f.IntVar(&o.Epochs, "epochs", o.Epochs, "epochs to read")
	f.IntVar(&o.World, "world-size", o.World, "ranks, one process each")
	f.IntVar(&o.BatchSize, "batch-size", o.BatchSize, "samples in a mini-batch")
	f.StringVar(&o.Python, "python", "python3", "the `PYTHON` to read with")
	f.StringVar(&o.Client, "client", "python", "the `DIR` that has the Python package lcache")
	f.BoolVar(&g.json, "json", false, "the figures as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := finishDemo(&o); err != nil {
			return err
		}
		return runDemo(cmd, g, o)
	}
	return cmd
}

// finishDemo checks the options, and completes them.
func finishDemo(o *demo.Options) error {
	if o.Epochs < 1 || o.World < 1 || o.BatchSize < 1 {
		return usagef("--epochs, --world-size and --batch-size must be at least 1")
	}
	if o.Source == "" {
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return usagef("no Go toolchain here to take files from: give --source DIR")
		}
		o.Source = filepath.Join(strings.TrimSpace(string(root)), "src")
	}
	for _, p := range []*string{&o.Source, &o.Dir, &o.Client} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return fmt.Errorf("working directory: %w", err)
		}
		*p = abs
	}
	if _, err := os.Stat(filepath.Join(o.Client, "lcache", "__init__.py")); err != nil {
		return usagef("no Python package lcache in %s: run demo in the project's folder, or give --client DIR", o.Client)
	}
	if _, err := exec.LookPath(o.Python); err != nil {
		return fmt.Errorf("no %s: install Python 3.9 or newer, or give --python", o.Python)
	}
	o.IO.Engine = "auto"
	return finishIO(&o.IO)
}

// runDemo runs the demo, and prints each part when it is done. Its error decides the exit code.
func runDemo(cmd *cobra.Command, g *globals, o demo.Options) error {
	out, logs := cmd.OutOrStdout(), cmd.ErrOrStderr()
	bar := newProgress(g, logs)
	print := func(write func(io.Writer)) {
		if bar.done(); !g.json {
			write(out)
		}
	}
	o.Logs, o.Progress = logs, bar.update
	o.Logger = slog.New(slog.NewTextHandler(bar, &slog.HandlerOptions{Level: slog.LevelWarn}))
	o.Ingested = func(r *ingest.Report) { print(func(w io.Writer) { writeDemoHead(w, o, r) }) }
	o.Passed = func(p *demo.Pass) { print(func(w io.Writer) { writePass(w, p) }) }
	o.Timed = func(p *demo.PlainFiles) { print(func(w io.Writer) { writePlain(w, p) }) }
	result, err := demo.Run(cmd.Context(), o)
	if err != nil {
		return err
	}
	print(func(w io.Writer) { writeFindings(w, result) })
	if g.json {
		if err := writeJSON(out, result); err != nil {
			return err
		}
	}
	if failed := result.Failed(); len(failed) > 0 {
		return fmt.Errorf("%s: %s", units.Plural(int64(len(failed)), "check failed", "checks failed"), failed[0])
	}
	return nil
}
