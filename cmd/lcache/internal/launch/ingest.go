package launch

import (
	"context"
	"errors"
	"log/slog"

	"lcache/engine"
	"lcache/internal/store/ingest"
)

// IngestOptions of Ingest.
type IngestOptions struct {
	Ingest  ingest.Options
	Cluster *ClusterOptions // not nil
	Version string
	Logger  *slog.Logger
}

// IngestReport is what Ingest did on this machine.
type IngestReport struct {
	*ingest.Report
	Machines int           // of the roster
	Filled   engine.Filled // of this machine's part
}

// Ingest makes a cache on each machine of a cluster that runs it, and fills each with that machine's part of the source. One machine lists the source.
func Ingest(ctx context.Context, o IngestOptions) (r IngestReport, err error) {
	m, err := join(ctx, o.Cluster)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, m.leave()) }()
	fill := !o.Ingest.NoPrefill
	o.Ingest.NoPrefill, o.Ingest.Lister, o.Ingest.Dataset = true, m.lister, o.Cluster.Dataset
	if r.Report, err = ingest.Run(ctx, o.Ingest); err != nil {
		return r, err
	}
	defer m.lister.HandOver(ctx)
	if !fill {
		return r, nil
	}
	var l *link
	e, err := engine.Open(ctx, engine.Options{Dirs: r.Dirs, IO: o.Ingest.IO, Memory: o.Ingest.Memory, PeerMemory: o.Cluster.memory(), Remote: o.Ingest.Remote, Logger: o.Logger, Version: o.Version,
		FollowLinks: o.Ingest.FollowLinks, Join: func(s engine.Share) engine.Peers {
			l = m.link(s, o.Cluster.Dataset, o.Logger)
			return l
		}})
	if err != nil {
		if l != nil {
			l.end()
		}
		return r, err
	}
	defer func() {
		l.end()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTime)
		defer cancel()
		err = errors.Join(err, e.Close(closing))
	}()
	if err = l.begin(e.Home()); err != nil {
		return r, err
	}
	if err = l.awaitRoster(ctx, meetFill); err != nil {
		return r, err
	}
	r.Machines = l.machines()
	r.Filled, err = e.FillShare(ctx, o.Ingest.Jobs, o.Ingest.Progress)
	return r, err
}
