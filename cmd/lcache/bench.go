package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"lcache/cmd/lcache/internal/bench"
)

// limitTime is how long the device is measured before an epoch, and again after it. Tests shorten it: they don't look at the rates.
var limitTime = bench.LimitTime

func newBenchCommand(g *globals) *cobra.Command {
	var o bench.Options
	cmd := &cobra.Command{
		Use:   "bench --cache DIR[,DIR…]",
		Short: "Time epochs of a cache, compared with the disk's limit",
		Long: "bench reads four epochs of a cache: two without writing and two that are reordered. Of each kind, one is read by this\n" +
			"process and one by Python. Before and after each epoch, bench measures the disk with the same direct I/O. In the\n" +
			"static layout no epoch is reordered, and the disk is measured by random reads of a sample's size.\n\n" +
			"bench refuses a cache that a server uses. Each reordering advances the log by one epoch. The cache stays usable: a job\n" +
			"that starts at an earlier epoch sorts the log again, and so does lcache ingest.",
		Example: "  lcache bench --cache /nvme/train\n  lcache bench --cache /nvme/train --client python --json",
	}
	f := cmd.Flags()
	addCacheFlag(f, &o.Engine.Dirs)
	f.Var(size{&o.Engine.Memory}, "memory", "maximum memory of the server (default: computed, at most a quarter)")
	f.StringVar(&o.Python, "python", "python3", "`PYTHON` interpreter to read with")
	f.StringVar(&o.Client, "client", "", "`DIR` with the Python package lcache (default: installed, else ./python)")
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
		disk, err := diskFlags{}.disk(o.Engine.IO)
		if err != nil {
			return err
		}
		o.Engine.Disk = disk(cmd.Context(), false, o.Engine.Dirs)
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
