package launch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"lcache/cache"
	"lcache/engine"
	"lcache/internal/serve/status"
	"lcache/server"
)

// ServeOptions of Serve.
type ServeOptions struct {
	Engine   engine.Options // but for its Logger and Version
	Server   server.Options // but for its Logger and Version. Without a path the socket lies in the cache
	Metrics  string         // host:port to listen on for scrapes; "": none
	Registry string         // folder of this user's servers: see package attach
	Version  string         // of this program
	Logger   *slog.Logger
}

// Served is a server that clients can connect to.
type Served struct {
	Socket   string // as it was given, else absolute
	Metrics  string // URL; "": none
	Status   status.Document
	Defaults []cache.Default // settings that were chosen where ServeOptions leave the choice
}

// Serve opens a cache and serves it until ctx ends, or no client is left. Then it stops cleanly, without an error. It calls ready when clients
// can connect; an error of ready ends the server.
func Serve(ctx context.Context, o ServeOptions, ready func(Served) error) error {
	if o.Logger == nil {
		o.Logger = discard
	}
	m, err := listenMetrics(o.Metrics, o.Logger)
	if err != nil {
		return err
	}
	o.Server.Stoppable = true
	l, err := start(ctx, o)
	if err != nil {
		return errors.Join(err, m.Shutdown(ctx))
	}
	m.Add("", func() (status.Document, error) { return l.engine.Status(), nil })
	if err = ready(Served{Socket: cmp.Or(o.Server.Path, l.server.Path()), Metrics: m.URL(), Status: l.engine.Status(), Defaults: append(l.chosen, l.defaults...)}); err == nil {
		err = l.wait(ctx, o)
	}
	within := func(stop func(context.Context) error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTime)
		defer cancel()
		err = errors.Join(err, stop(ctx))
	}
	within(l.end)
	within(func(ctx context.Context) error {
		return errors.Join(m.Shutdown(ctx), l.engine.Close(ctx)) // in this order: a scrape reads the engine
	})
	return err
}

// wait returns when the server should stop. Its error is that of a server that has ended by itself.
func (l *local) wait(ctx context.Context, o ServeOptions) error {
	select {
	case <-ctx.Done():
	case <-l.server.Idle():
		o.Logger.Info("no client is left, ending", "waited", o.Server.Idle)
	case <-l.server.Asked():
	case err := <-l.served:
		l.served <- nil // for end, which joins it
		return err
	}
	return nil
}
