package launch

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"lcache/engine"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/server"
)

// ServeOptions of Serve.
type ServeOptions struct {
	Engine   engine.Options // but for its Logger and Version
	Server   server.Options // except its Logger and Version. Without a path the socket is in the cache
	Metrics  Metrics
	Registry string // folder of this user's servers: see package attach
	Version  string // of this program
	Logger   *slog.Logger

	Cluster *ClusterOptions // nil: this machine alone

	Embedded bool // a training started this server for itself: it serves without metrics if they can't be had
	TakeOver bool // if an embedded server has the cache, it is stopped

	member *joined // that the server belongs to; nil: none
	name   string  // of the dataset in the cluster; "": that of Cluster
}

// Served is a server that clients can connect to.
type Served struct {
	Socket   string // as it was given, else absolute
	Metrics  string // URL; "": none
	Page     string // URL for a browser; "": none
	Warning  string // why metrics are not served; "" if they are, or were not requested
	Status   status.Document
	Defaults []cache.Default // settings that were chosen where ServeOptions leave the choice
}

// Serve opens a cache and serves it until ctx ends, or no client is left. Then it stops cleanly, without an error. It calls ready when clients
// can connect; an error of ready ends the server.
func Serve(ctx context.Context, o ServeOptions, ready func(Served) error) (err error) {
	if o.Logger == nil {
		o.Logger = discard
	}
	o.Server.Stoppable, o.Server.Embedded = true, o.Embedded
	member, err := join(ctx, o.Cluster)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, member.leave()) }()
	o.member = member
	l, m, warning, err := o.open(ctx)
	if err != nil {
		return err
	}
	m.Add("", func() (status.Document, error) { return l.engine.Status(), nil })
	m.SetReady()
	if err = ready(Served{Socket: cmp.Or(o.Server.Path, l.server.Path()), Metrics: m.URL(), Page: m.PageURL(), Warning: warning, Status: l.engine.Status(), Defaults: append(l.chosen, l.defaults...)}); err == nil {
		err = l.wait(ctx, o)
	}
	within := func(stop func(context.Context) error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTime)
		defer cancel()
		err = errors.Join(err, stop(ctx))
	}
	within(l.end)
	err = errors.Join(err, o.Metrics.write(map[string]status.Document{"": l.engine.Status()}))
	within(func(ctx context.Context) error {
		return errors.Join(m.Shutdown(ctx), l.engine.Close(ctx)) // in this order: a scrape reads the engine
	})
	return err
}

// wait returns when the server should stop. It returns the error of a server that has ended on its own.
func (l *local) wait(ctx context.Context, o ServeOptions) error {
	select {
	case <-ctx.Done():
		l.engine.SetStopped()
	case <-l.server.Idle():
		o.Logger.Info("no client is left, ending", "waited", o.Server.Idle)
	case <-l.server.Asked():
		l.engine.SetStopped()
	case err := <-l.served:
		l.served <- nil // for end, which joins it
		return err
	}
	return nil
}
