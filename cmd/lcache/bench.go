package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"lcache/bench"
)

// limitTime is how long the device is measured before an epoch, and again after it. Tests, to which its figures say nothing, take less.
var limitTime = bench.LimitTime

func newBenchCommand(g *globals) *cobra.Command {
	var o bench.Options
	cmd := &cobra.Command{
		Use:   "bench --cache DIR[,DIR…]",
		Short: "Time an epoch of a cache beside the device's own limit",
		Long: "bench reads an epoch of a cache without writing, and one that is reordered: into nothing (a client in this process),\n" +
			"and into Python. In the static layout nothing is reordered, and the device's limit is that of random reads of a sample's size.\n" +
			"Before and after each the device is measured with the same direct I/O. It refuses a cache that is\n" +
			"served. The cache stays usable, but its log moves on by an epoch with each reordering: a job that begins at an\n" +
			"earlier one sorts it again, or lcache ingest does.",
		Example: "  lcache bench --cache /nvme/train\n  lcache bench --cache /nvme/train --client python --json",
	}
	f := cmd.Flags()
	addCacheFlag(f, &o.Engine.Dirs)
	f.Var(size{&o.Engine.Memory}, "memory", "memory the server may take (default: the need, at most a quarter)")
	f.StringVar(&o.Python, "python", "python3", "the `PYTHON` to read with")
	f.StringVar(&o.Client, "client", "", "the `DIR` that has the Python package lcache (default: as installed, else ./python)")
	addLayoutFlag(f, &o.Engine.Layout)
	addIOFlags(f, &o.Engine.IO)
	f.BoolVar(&g.json, "json", false, "the figures as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := needCache(o.Engine.Dirs); err != nil {
			return err
		}
		if err := finishIO(&o.Engine.IO); err != nil {
			return err
		}
		bar := newProgress(g, cmd.ErrOrStderr())
		defer bar.done()
		o.Engine.Logger = newLogger(g, bar, slog.LevelWarn)
		o.Engine.Version = cmd.Version
		o.Stage, o.Logs, o.LimitTime = stages(bar), bar, limitTime
		report, err := bench.Run(cmd.Context(), o)
		bar.done()
		if err != nil {
			return err
		}
		if g.json {
			return writeJSON(cmd.OutOrStdout(), report)
		}
		writeBench(cmd.OutOrStdout(), report)
		return nil
	}
	return cmd
}
