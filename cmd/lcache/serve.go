package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lcache/attach"
	"lcache/engine"
	"lcache/metrics"
	"lcache/server"
)

// stopTime is how long a clean stop may take: requests in flight end, tails are written, journals are synced.
const stopTime = 30 * time.Second

type serveOptions struct {
	engine  engine.Options
	server  server.Options
	group   group  // whose members may connect too
	metrics string // host:port; "": nowhere
}

func newServeCommand(g *globals) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:        "serve --cache DIR[,DIR…]",
		Short:      "Serve a cache to the training processes of this machine, until stopped",
		SuggestFor: []string{"server", "daemon"},
		Long: "serve opens a cache that ingest made and serves it on a unix socket, in the order of the job. It runs until\n" +
			"SIGTERM or SIGINT, which stop it cleanly (exit code 0); a second signal ends it at once, which loses no data.\n" +
			"With --exit-idle it also ends by itself, cleanly, when no client was there for that long.",
		Example: "  lcache serve --cache /nvme/train\n  LCACHE_MEMORY=2GB lcache serve --cache /nvme0/c,/nvme1/c --socket /run/user/1000/train.sock",
	}
	f := cmd.Flags()
	addCacheFlag(f, &o.engine.Dirs)
	addSocketFlags(f, &o, "the `PATH` to listen on (default: lcache.sock in the cache)")
	f.Var(size{&o.engine.Memory}, "memory", "memory the server may take (default: the need, at most a quarter)")
	f.DurationVar(&o.server.Idle, "exit-idle", 0, "end when there was no client for so long, like 60s; 0: never")
	// For who starts a server for itself: 0 is at once, and the first client has time to come.
	last := f.Duration("exit-last", -1, "end so long after the last client; 0: at once. It waits a minute for the first one")
	_ = f.MarkHidden("exit-last")
	addLayoutFlag(f, &o.engine.Layout)
	addMetricsFlag(f, &o.metrics)
	addOnErrorFlag(f, &o.engine.OnError)
	addLinkFlags(f, &o.engine.FollowLinks,
		"serve what was listed through links that leave the source, also where other users may connect",
		"serve nothing that is reached through a link that leaves the source")
	addIOFlags(f, &o.engine.IO)
	f.BoolVar(&g.json, "json", false, "the line that says where it serves as JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
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
		case *last >= 0 && o.server.Idle > 0:
			return usagef("--exit-last and --exit-idle: give one of them")
		case *last >= 0:
			o.server.Idle, o.server.First = max(*last, 1), time.Minute
		case cmd.Flags().Changed("exit-last"):
			return usagef("--exit-last %v: give 0 (at once) or a time like 60s", *last)
		}
		if err := o.finishSocket(cmd.Flags().Changed("socket-mode")); err != nil {
			return err
		}
		var defaults []engine.Default
		if o.server.Path == "" {
			o.server.Path = attach.SocketOf(o.engine.Dirs)
			defaults = append(defaults, engine.Default{Name: "socket", Value: o.server.Path, From: "in the cache"})
		}
		logger := newLogger(g, cmd.ErrOrStderr(), slog.LevelInfo)
		o.engine.Logger, o.server.Logger = logger, logger
		o.engine.Version, o.server.Version = cmd.Version, cmd.Version
		return serve(cmd.Context(), o, func(e *engine.Engine, m *metrics.Server) error {
			if !g.quiet {
				writeDefaults(cmd.ErrOrStderr(), append(defaults, e.Defaults()...))
			}
			if g.json {
				return writeJSON(cmd.OutOrStdout(), servingLine{Socket: o.server.Path, Pid: os.Getpid(), Metrics: m.URL()})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), servingText(e.Status(), o.server.Path, o.engine.Dirs, m.URL()))
			return err
		})
	}
	return cmd
}

// servingLine is what serve says of itself, for programs.
type servingLine struct {
	Socket  string `json:"socket"`
	Pid     int    `json:"pid"`
	Metrics string `json:"metrics,omitempty"` // their URL
}

// serve runs until ctx ends, which is a clean stop and no error. ready is called when clients can connect.
func serve(ctx context.Context, o serveOptions, ready func(*engine.Engine, *metrics.Server) error) (err error) {
	m, err := listenMetrics(o.metrics, o.engine.Logger)
	if err != nil {
		return err
	}
	e, err := engine.Open(ctx, o.engine)
	if err != nil {
		return errors.Join(err, m.Shutdown(ctx))
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		err = errors.Join(err, m.Shutdown(stop), e.Close(stop)) // a scrape reads the engine
	}()
	m.Add("", func() (engine.Status, error) { return e.Status(), nil })
	s, err := server.Listen(e, o.server)
	if err != nil {
		return err
	}
	entry, err := attach.Register(attach.Dir(), s.Path(), o.engine.Dirs)
	if err != nil {
		o.engine.Logger.Warn("lcache status will need --socket for this server", "reason", err)
	}
	defer entry.Remove()

	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	if err = ready(e, m); err == nil {
		select {
		case <-ctx.Done():
		case <-s.Idle():
			o.engine.Logger.Info("no client is left, ending", "waited", o.server.Idle)
		case err = <-served:
			served <- nil
		}
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	err = errors.Join(err, s.Shutdown(stop))
	return errors.Join(err, <-served)
}

func servingText(s engine.Status, socket string, cache []string, metrics string) string {
	name := strings.Join(cache, ",")
	if len(s.Jobs) > 0 && s.Jobs[0].Name != "" {
		name = s.Jobs[0].Name
	}
	direct := "buffered"
	if s.Direct {
		direct = "O_DIRECT"
	}
	return fmt.Sprintf("serving %s on %s", name, joined(socket, "pid "+strconv.Itoa(os.Getpid()), s.IOEngine, direct, metrics))
}
