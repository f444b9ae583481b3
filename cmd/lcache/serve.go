package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lcache/cmd/lcache/internal/attach"
	"lcache/cmd/lcache/internal/launch"
	"lcache/engine"
	"lcache/internal/usage"
	"lcache/server"
)

// serveOptions are the options of a server, of serve and of run.
type serveOptions struct {
	engine  engine.Options
	server  server.Options
	group   group // a group whose members may connect too
	metrics metricsFlags
	last    time.Duration // --exit-last; below 0: not given
	over    bool          // --take-over
}

func newServeCommand(g *globals) *cobra.Command {
	var o serveOptions
	var facts diskFlags
	var machines clusterFlags
	cmd := &cobra.Command{
		Use:         "serve --cache DIR[,DIR…]",
		Short:       "Serve a cache to the training processes on this machine",
		Annotations: map[string]string{groupedNote: "yes"},
		SuggestFor:  []string{"server", "daemon"},
		Long: "serve opens a cache that ingest created, and serves it on a unix socket in the order of the job. SIGTERM or SIGINT\n" +
			"stops it cleanly (exit code 0). A second signal ends it at once; no data is lost. With --exit-idle it also stops,\n" +
			"cleanly, after that time without a client.\n\n" +
			"With --take-over it replaces the server that a training program started for itself. The training continues.",
		Example: "  lcache serve --cache /nvme/train\n  LCACHE_MEMORY=2GB lcache serve --cache /nvme0/c,/nvme1/c --socket /run/user/1000/train.sock",
	}
	addServeFlags(cmd.Flags(), &o)
	addClusterFlags(cmd.Flags(), &machines)
	addDiskFlags(cmd.Flags(), &facts)
	cmd.Flags().BoolVar(&g.json, "json", false, "the first line as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.finish(cmd.Flags()); err != nil {
			return err
		}
		without, err := o.metrics.finish(o.isEmbedded())
		if err != nil {
			return err
		}
		disk, err := facts.disk(o.engine.IO)
		if err != nil {
			return err
		}
		o.engine.Disk = disk(cmd.Context(), false, o.engine.Dirs)
		out, logs := cmd.OutOrStdout(), cmd.ErrOrStderr()
		o.server.Diagnose = g.diagnose(nil)
		serve := launch.ServeOptions{Engine: o.engine, Server: o.server, Metrics: o.metrics.Metrics, Registry: attach.Dir(), Version: cmd.Version, Logger: newLogger(g, logs, slog.LevelInfo), Embedded: o.isEmbedded(), TakeOver: o.over}
		if without != "" {
			serve.Logger.Warn(without)
		}
		if serve.Cluster, err = machines.options(cmd.Flags(), cmd.Version, serve.Logger); err != nil {
			return err
		}
		return launch.Serve(cmd.Context(), serve, func(s launch.Served) error {
			switch {
			case g.quiet:
			case g.logs == "json":
				for _, d := range s.Defaults {
					serve.Logger.Info("default", "setting", d.Name, "value", d.Value, "from", d.From)
				}
			default:
				writeDefaults(logs, s.Defaults)
			}
			if g.json {
				return writeJSON(out, servingLine{Socket: s.Socket, Pid: os.Getpid(), Metrics: s.Metrics, Page: s.Page, Warning: cmp.Or(s.Warning, without)})
			}
			_, err := fmt.Fprintln(out, servingText(s, o.engine.Dirs))
			return err
		})
	}
	return cmd
}

func addServeFlags(f *pflag.FlagSet, o *serveOptions) {
	addCacheFlag(f, &o.engine.Dirs)
	addSocketFlags(f, o, "socket `PATH` to listen on (default: in the cache)")
	f.Var(size{&o.engine.Memory}, "memory", "maximum memory of the server (default: computed, at most a quarter)")
	f.DurationVar(&o.server.Idle, "exit-idle", 0, "stop after this time without a client, like 60s; 0: never")
	// For programs that start a server of their own: 0 is at once, and the first client has time to come.
	f.DurationVar(&o.last, "exit-last", -1, "stop this long after the last client has left")
	_ = f.MarkHidden("exit-last")
	f.BoolVar(&o.over, "take-over", false, "replace the server that a training program started for itself")
	addLayoutFlag(f, &o.engine.Layout)
	addMetricsFlags(f, &o.metrics, o.isEmbedded)
	addOnErrorFlag(f, &o.engine.OnError)
	addJobsMaxFlag(f, &o.engine.JobsMax)
	addLinkFlags(f, &o.engine.FollowLinks,
		"serve samples behind links that leave the source, even with --socket-group",
		"refuse samples behind links that leave the source")
	addRemoteFlags(f, &o.engine.Remote)
	addIOFlags(f, &o.engine.IO)
}

// isEmbedded reports whether a program started the server for itself.
func (o *serveOptions) isEmbedded() bool { return o.last >= 0 }

func addJobsMaxFlag(f *pflag.FlagSet, jobs *int) {
	f.IntVar(jobs, "jobs-max", 8, "maximum number of jobs with read-ahead; others are served on demand")
}

func checkJobsMax(jobs int) error {
	if jobs < 1 {
		return usagef("--jobs-max %d: give 1 or more", jobs)
	}
	return nil
}

// finish checks the options, and completes them.
func (o *serveOptions) finish(f *pflag.FlagSet) error {
	if err := checkJobsMax(o.engine.JobsMax); err != nil {
		return err
	}
	if err := needCache(o.engine.Dirs); err != nil {
		return err
	}
	if err := finishIO(&o.engine.IO); err != nil {
		return err
	}
	if o.server.Idle < 0 {
		return usagef("--exit-idle %v: give 0 (never) or a time like 60s", o.server.Idle)
	}
	switch {
	case o.last >= 0 && o.server.Idle > 0:
		return usagef("--exit-last and --exit-idle: give one of them")
	case o.last >= 0:
		o.server.Idle, o.server.First = max(o.last, 1), time.Minute
	case f.Changed("exit-last"):
		return usagef("--exit-last %v: give 0 (at once) or a time like 60s", o.last)
	}
	if own := attach.SocketOf(o.engine.Dirs); o.over && o.server.Path != "" && !isSamePath(o.server.Path, own) {
		return usagef("--take-over and --socket %s: the training connects to %s: leave out --socket", o.server.Path, own)
	}
	return o.finishSocket(f.Changed("socket-mode"))
}

func isSamePath(a, b string) bool {
	a, errA := filepath.Abs(a)
	b, errB := filepath.Abs(b)
	return errA == nil && errB == nil && a == b
}

// servingLine is the document of --json.
type servingLine struct {
	Socket  string `json:"socket"`
	Pid     int    `json:"pid"`
	Metrics string `json:"metrics,omitempty"` // their URL
	Page    string `json:"page,omitempty"`    // URL for a browser
	Warning string `json:"warning,omitempty"` // why there are none
}

func servingText(s launch.Served, cache []string) string {
	name := strings.Join(cache, ",")
	if jobs := s.Status.Jobs; len(jobs) > 0 && jobs[0].Name != "" {
		name = jobs[0].Name
	}
	direct := "buffered"
	if s.Status.Direct {
		direct = "O_DIRECT"
	}
	return fmt.Sprintf("serving %s on %s", usage.Name(name), joined(usage.Name(s.Socket), "pid "+strconv.Itoa(os.Getpid()), s.Status.IOEngine, direct, s.Metrics))
}
