package main

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"lcache/cmd/lcache/internal/demo"
	"lcache/internal/errcode"
	"lcache/internal/store/ingest"
	"lcache/internal/units"
)

func newDemoCommand(g *globals) *cobra.Command {
	o := demo.Options{Epochs: 4, World: 2, BatchSize: 64}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Train on real files, and check every byte",
		Long: "demo ingests a folder of real files (the source of the Go toolchain, or without one Python's library), serves it, and\n" +
			"reads it for several fully shuffled epochs from Python, with several ranks. It compares every sample with its file, and\n" +
			"the order with torch's DistributedSampler. Then it repeats this with half of the disk space. Last, it drops the files from the page cache,\n" +
			"reads the same samples in the same order as plain files, and says where lcache is not faster.\n\n" +
			"demo prints the verdict first and the measurements after it. It exits with 1 if a check failed; no check is about\n" +
			"speed. The cache is in a new folder below --dir, and demo removes it at the end.",
		Example: "  lcache demo\n  lcache demo --source /data/train --dir /nvme --epochs 2",
	}
	f := cmd.Flags()
	f.StringVar(&o.Source, "source", "", "`DIR` of folders of files (default: Go's source, else Python's library)")
	f.StringVar(&o.Dir, "dir", ".", "`DIR` for the temporary cache")
	f.BoolVar(&o.Keep, "keep", false, "keep the caches")
	f.IntVar(&o.Epochs, "epochs", o.Epochs, "epochs to read")
	f.IntVar(&o.World, "world-size", o.World, "ranks, one process each")
	f.IntVar(&o.BatchSize, "batch-size", o.BatchSize, "samples in a mini-batch")
	f.StringVar(&o.Python, "python", "", "`PYTHON` interpreter to read with (default: next to lcache, else python3)")
	f.StringVar(&o.Client, "client", "", "`DIR` with the Python package lcache (default: the installed one)")
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
	if err := completeDemo(o); err != nil {
		return err
	}
	for _, p := range []*string{&o.Source, &o.Dir, &o.Client} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return fmt.Errorf("working directory: %w", err)
		}
		*p = abs
	}
	if !hasClient(o.Client) {
		return usagef("no Python package lcache in %s: install it, run demo in the project's folder, or give --client DIR", o.Client)
	}
	o.IO.Engine = "auto"
	return finishIO(&o.IO)
}

// runDemo runs the demo, and prints the verdict before the measurements. Its error decides the exit code.
func runDemo(cmd *cobra.Command, g *globals, o demo.Options) error {
	out, logs := cmd.OutOrStdout(), cmd.ErrOrStderr()
	bar := newProgress(g, logs)
	o.Logs, o.Progress = logs, bar.update
	o.Logger = slog.New(slog.NewTextHandler(bar, &slog.HandlerOptions{Level: slog.LevelWarn}))
	o.Ingested = func(r *ingest.Report) {
		if bar.done(); !g.json {
			writeDemoHead(out, o, r)
		}
	}
	result, err := demo.Run(cmd.Context(), o)
	bar.done()
	if err != nil {
		return err
	}
	if g.json {
		if err := writeJSON(out, result); err != nil {
			return err
		}
	} else {
		writeDemoResult(out, result)
	}
	if failed := result.Failed(); len(failed) > 0 {
		return errcode.Errorf(errcode.CheckFailed, "%s: %s", units.Plural(int64(len(failed)), "check failed", "checks failed"), failed[0])
	}
	return nil
}
