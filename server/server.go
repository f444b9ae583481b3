// Package server lets client processes of the same machine use an engine: it owns the unix socket, checks who connects, and speaks
// the protocol of docs/protocol.md, frame by frame.
//
// A Server is made by Listen, works in Serve and ends with Shutdown, which joins every goroutine. Each connection has two: one reads
// frames and carries out at once what has no answer (RELEASE, CANCEL, REPORT, BYE), the other answers requests in their order. What
// a request means is the engine's and deliver's business; sample bytes never pass through here. Garbage from a client ends that
// client's connection and nothing else. All methods may be called concurrently.
package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"lcache/engine"
)

// Options of Listen.
type Options struct {
	Path       string      // of the socket; its directory is made (0700, or 0710 for AllowGroup) if only that is missing. Longer than 107 bytes is fine
	Mode       fs.FileMode // of the socket file; 0: 0600
	AllowGroup int         // gid whose members may connect too, and which the socket file gets; 0: none
	Logger     *slog.Logger
	Version    string // of this program, for the log

	// Idle is how long the server may be without a client before Idle() says so; 0: it never does. A client counts for as long as its
	// connection lasts, which is until nothing in it refers to the shared memory.
	Idle time.Duration
	// First is how long the first client may take: until one has attached, or so long after Serve, Idle says nothing. 0: no longer than any.
	First time.Duration
}

// limits are constants but for tests.
type limits struct {
	hello   time.Duration // from connecting until HELLO is complete
	frame   time.Duration // from a frame's first byte until it is complete
	write   time.Duration
	waiting int // requests of one connection that are not answered
	bytes   int // of those
}

var defaultLimits = limits{hello: 10 * time.Second, frame: 10 * time.Second, write: 30 * time.Second, waiting: 1024, bytes: 32 << 20}

// A Server serves one engine on one socket.
type Server struct {
	engine   *engine.Engine
	opts     Options
	limits   limits
	place    *place
	listener *net.UnixListener
	closed   chan struct{} // Shutdown has begun
	idle     chan struct{} // closed when no client was there for opts.Idle
	removed  sync.Once
	running  sync.WaitGroup // connections, and Serve
	pushing  atomic.Int64   // bytes of orders that have come in part, of all connections

	mu      sync.Mutex // guards the fields that follow
	conns   map[*conn]struct{}
	closing bool
	giveUp  context.CancelFunc // ends every request; of Serve
	alone   *time.Timer        // runs while there is no connection; nil without opts.Idle
	isIdle  bool
	began   time.Time // of Serve
	met     bool      // a client has attached
}

// Listen makes the socket, after removing one that a dead server left. The caller holds the cache's lock. It is an error, naming the
// process, if somebody listens there.
func Listen(e *engine.Engine, o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Mode == 0 {
		o.Mode = 0o600
	}
	p, err := openPlace(o.Path, o.AllowGroup)
	if err != nil {
		return nil, err
	}
	if err := p.clear(); err != nil {
		p.dir.Close()
		return nil, err
	}
	l, err := p.listen(o.Mode, o.AllowGroup)
	if err != nil {
		p.remove()
		return nil, err
	}
	if dir := p.closedTo(o.AllowGroup); o.AllowGroup > 0 && dir != "" {
		o.Logger.Warn("members of the group can't come to the socket: let them pass this directory, or choose another --socket", "group", o.AllowGroup, "directory", dir)
	}
	return &Server{engine: e, opts: o, limits: defaultLimits, place: p, listener: l,
		closed: make(chan struct{}), idle: make(chan struct{}), conns: map[*conn]struct{}{}, giveUp: func() {}}, nil
}

// Path is the socket's, absolute.
func (s *Server) Path() string { return s.place.path }

// Idle is closed when there was no client for Options.Idle, counted from Serve on. The caller then calls Shutdown; a client that comes
// between the two is told that the server closes.
func (s *Server) Idle() <-chan struct{} { return s.idle }

// idleAfter is how long the server may be without a client from now on. It needs mu.
func (s *Server) idleAfter() time.Duration {
	if s.met {
		return s.opts.Idle
	}
	return max(s.opts.Idle, s.opts.First-time.Since(s.began))
}

// attached notes that a client has come, and not only a connection.
func (s *Server) attached() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.met = true
}

// left notes that nobody came for opts.Idle.
func (s *Server) left() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) == 0 && !s.isIdle {
		s.isIdle = true
		close(s.idle)
	}
}

// Serve accepts clients until Shutdown; then it returns nil. It is called once.
func (s *Server) Serve() error {
	ctx, giveUp := context.WithCancel(context.Background()) // Shutdown ends it: requests outlast Serve
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		giveUp()
		return nil
	}
	s.giveUp = giveUp
	s.running.Add(1)
	if s.opts.Idle > 0 {
		s.began = time.Now()
		s.alone = time.AfterFunc(s.idleAfter(), s.left)
	}
	s.mu.Unlock()
	defer s.running.Done()
	s.opts.Logger.Info("listening", "socket", s.place.path, "version", s.opts.Version)
	for {
		c, err := s.listener.AcceptUnix()
		switch {
		case err == nil:
			s.add(ctx, c)
		case s.isClosing():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on %s: %w", s.place.path, err)
		default:
			// Out of descriptors or memory, most likely: those who wait in the backlog are served when there are some again.
			s.opts.Logger.Warn("accept a client", "err", err)
			pause := time.NewTimer(50 * time.Millisecond)
			select {
			case <-pause.C:
			case <-s.closed:
				pause.Stop()
			}
		}
	}
}

// add starts a connection, unless Shutdown has begun: it would not join this one.
func (s *Server) add(ctx context.Context, c *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		c.Close()
		return
	}
	x := newConn(s, c)
	s.conns[x] = struct{}{}
	if s.alone != nil {
		s.alone.Stop()
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		x.serve(ctx)
		s.mu.Lock()
		delete(s.conns, x)
		if len(s.conns) == 0 && s.alone != nil && !s.closing {
			s.alone.Reset(s.idleAfter())
		}
		s.mu.Unlock()
	}()
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// Shutdown stops accepting, lets the request that each connection is answering finish, tells the clients that the server closes, and
// returns when all goroutines have ended. When ctx ends first, the requests are given up; the error is then ctx's.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	giveUp := s.giveUp
	if s.alone != nil {
		s.alone.Stop()
	}
	s.mu.Unlock()
	defer giveUp()
	if first {
		close(s.closed)
		s.listener.Close()
		for _, c := range conns {
			c.c.CloseRead() // its reader comes to the end of what was sent, and finds the server closing
		}
	}
	joined := make(chan struct{})
	go func() {
		s.running.Wait()
		close(joined)
	}()
	var err error
	select {
	case <-joined:
	case <-ctx.Done():
		err = fmt.Errorf("requests were still running: %w", ctx.Err())
		giveUp()
		for _, c := range conns {
			c.c.Close()
		}
		<-joined
	}
	s.removed.Do(s.place.remove)
	return err
}
