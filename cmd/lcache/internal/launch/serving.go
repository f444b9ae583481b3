package launch

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"time"

	"lcache/cmd/lcache/internal/attach"
	"lcache/engine"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/store/cachedir"
	"lcache/internal/verdict"
	"lcache/server"
)

// serving is one source that is being served, by this process or by another one.
type serving struct {
	Source
	local *local    // nil: by another process
	other *attached // nil: by this one

	disk  cache.Disk       // known facts of the devices below the cache
	last  status.Document  // after the last client has left; of an attached server, after the command has ended
	ready map[string]*mean // by job: batches that were ready while the command ran
}

func (s *serving) socket() string {
	if s.other != nil {
		return s.other.client.Path()
	}
	return s.local.server.Path()
}

// status may be called concurrently.
func (s *serving) status() (status.Document, error) {
	if s.other != nil {
		return s.other.status()
	}
	return s.local.engine.Status(), nil
}

// stop stops a server of this process cleanly, or closes the connection to a server of another one.
func (s *serving) stop(ctx context.Context) (err error) {
	if s.other != nil {
		s.last, err = s.other.leave()
		return err
	}
	s.local.engine.SetStopped()
	err = s.local.end(ctx)
	s.last = s.local.engine.Status()
	return errors.Join(err, s.local.engine.Close(ctx))
}

// sample counts the batches that are ready. It does not count at a server that does not answer.
func (s *serving) sample() {
	if now, err := s.status(); err == nil {
		s.count(now)
	}
}

func (s *serving) count(now status.Document) {
	if s.ready == nil {
		s.ready = map[string]*mean{}
	}
	for _, j := range now.Jobs {
		if j.Ended || j.SamplesDelivered == 0 {
			continue
		}
		if s.ready[j.ID] == nil {
			s.ready[j.ID] = &mean{}
		}
		s.ready[j.ID].add(float64(j.ReadyBatches))
	}
}

// result returns the source's part of the Result, after stop.
func (s *serving) result(diskLimit float64) SourceResult {
	r := SourceResult{Source: s.Source, Status: s.last}
	var began status.Document
	if s.other != nil {
		r.AttachedTo, began = s.other.pid, s.other.began
	}
	r.Part = since(s.last, began)
	for k, j := range r.Part.Jobs {
		r.Verdicts = append(r.Verdicts, verdict.Judge(factsOf(k, r.Part, s.ready[j.ID].value(), diskLimit, s.disk)))
	}
	if len(r.Verdicts) == 0 {
		r.Verdicts = append(r.Verdicts, verdict.Judge(factsOf(0, r.Part, 0, diskLimit, s.disk)))
	}
	r.Verdict = r.Verdicts[0]
	return r
}

// stop stops the servers cleanly: it ends the connections, takes the last status, and closes the caches. Before that it ends the metrics,
// because a scrape reads the engines.
func (r *run) stop() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), StopTime)
	defer cancel()
	err = r.metrics.Shutdown(ctx)
	for _, s := range r.serving {
		err = errors.Join(err, s.stop(ctx))
	}
	last := map[string]status.Document{}
	for _, s := range r.serving {
		last[s.Name] = s.last
	}
	return errors.Join(err, r.Metrics.write(last), r.member.leave())
}

// local is a server of this process.
type local struct {
	engine   *engine.Engine
	server   *server.Server
	entry    *attach.Entry   // nil: Register failed
	defaults []cache.Default // settings that the engine chose where the options leave the choice
	chosen   []cache.Default // the socket, if start chose it
	served   chan error      // of Serve, once
	link     *link           // to the other machines of the cluster; nil: none
}

// start opens a cache and listens. Without a path, the socket is in the cache's directory.
func start(ctx context.Context, o ServeOptions) (*local, error) {
	o.Engine.Logger, o.Engine.Version = o.Logger, o.Version
	o.Server.Logger, o.Server.Version = o.Logger, o.Version
	var chosen []cache.Default
	if o.Server.Path == "" {
		o.Server.Path = attach.SocketOf(o.Engine.Dirs)
		chosen = []cache.Default{{Name: "socket", Value: o.Server.Path, From: "in the cache"}}
	}
	cachedir.WarnOfFolders(o.Logger, o.Engine.Dirs)
	l := &local{chosen: chosen, served: make(chan error, 1)}
	if o.member != nil {
		o.Engine.Join = func(s engine.Share) engine.Peers {
			l.link = o.member.link(s, cmp.Or(o.name, o.member.o.Dataset), o.Logger)
			return l.link
		}
		o.Engine.PeerMemory = o.member.o.memory()
		o.Engine.Cluster = func() status.Cluster { return l.link.status() }
	}
	e, err := engine.Open(ctx, o.Engine)
	if err != nil {
		l.endLink()
		return nil, err
	}
	if limit := e.HeapLimit(); limit < debug.SetMemoryLimit(-1) { // GOMEMLIMIT may be less
		debug.SetMemoryLimit(limit)
	}
	l.engine, l.defaults = e, e.Defaults()
	o.Server.Ends = e.SetEnds
	if l.link != nil {
		hadClient := false
		o.Server.Ends = func(at time.Time) { // one call at a time
			e.SetEnds(at)
			if at.IsZero() {
				hadClient = true
			} else if hadClient {
				l.link.rest(at)
			}
		}
	}
	if l.server, err = server.Listen(e, o.Server); err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTime)
		defer cancel()
		l.endLink()
		return nil, errors.Join(err, e.Close(stop))
	}
	if l.link != nil {
		l.link.loads = e.PeerLoads
		if err = l.link.begin(e.Home()); err != nil {
			o.Logger.Warn("this cache takes no part in the cluster", "cache", o.Engine.Dirs, "err", err)
		} else {
			l.link.await(ctx)
		}
	}
	if l.entry, err = attach.Register(o.Registry, l.server.Path(), o.Engine.Dirs); err != nil {
		o.Logger.Warn("lcache status will need --socket for this server", "reason", err)
	}
	go func() {
		err := l.server.Serve()
		if err != nil {
			o.Logger.Error("the server ended", "cache", o.Engine.Dirs, "err", err)
		}
		l.served <- err
	}()
	return l, nil
}

// end ends the server and joins it. The engine stays open.
func (l *local) end(ctx context.Context) error {
	err := l.server.Shutdown(ctx)
	<-l.served
	l.endLink()
	l.entry.Remove()
	return err
}

// endLink disconnects the cache from the other machines, if it is connected.
func (l *local) endLink() {
	if l.link != nil {
		l.link.end()
	}
}

// mean is the mean of some values.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float64) { m.sum, m.n = m.sum+v, m.n+1 }

func (m *mean) value() float64 {
	if m == nil || m.n == 0 {
		return 0
	}
	return m.sum / float64(m.n)
}
