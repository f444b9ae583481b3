// Package server lets client processes of the same machine use an engine. It owns the unix socket, checks the credentials of each client,
// and speaks the protocol of docs/protocol.md.
//
// A Server is made by Listen, works in Serve and ends with Shutdown, which joins every goroutine. Each connection has two goroutines: one
// reads frames and carries out the requests that have no answer (RELEASE, CANCEL, REPORT, BYE), the other answers the other requests in
// their order. The engine and package deliver decide the meaning of a request; sample bytes never pass through this package. A frame that
// breaks the protocol ends its own connection and no other. All methods may be called concurrently.
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
	"lcache/internal/memquota"
	"lcache/internal/serve/status"
)

// Options configure Listen.
type Options struct {
	Path       string      // path of the socket; may be longer than 107 bytes. Listen creates its directory (0700, or 0710 for AllowGroup), but no parents
	Mode       fs.FileMode // of the socket file; 0: 0600
	AllowGroup int         // group that owns the socket file and whose members may connect; 0: none
	Logger     *slog.Logger
	Version    string // of this program, for the log

	// Idle is how long the server may be without a client before the channel Idle() is closed; 0: it is never closed. A client counts while its connection
	// is open, which it is while the client maps the shared memory.
	Idle time.Duration
	// First is the minimum time from Serve until Idle() is closed, if no client has connected yet; 0: Idle.
	First time.Duration
	// Ends is called with the time at which Idle() will be closed unless a client comes. It is called with the zero time when a client is connected. It may
	// be nil.
	Ends func(at time.Time)
	// Stoppable lets clients of the same user request a stop, which closes the channel Asked(). Without it such requests are refused.
	Stoppable bool
	// Diagnose returns the process's diagnosis, of at most maxDiagnosis bytes as JSON. nil: the server does not offer it.
	Diagnose func() status.Diagnosis
	// Embedded is part of the answer to HELLO: a training process started the server for its own use.
	Embedded bool
}

// limits bound a connection. Only tests change them.
type limits struct {
	hello   time.Duration // from connecting until HELLO is complete
	frame   time.Duration // from a frame's first byte until it is complete
	write   time.Duration // of one frame
	waiting int           // unanswered requests of one connection
	bytes   int           // of the unanswered requests of one connection
}

var defaultLimits = limits{hello: 10 * time.Second, frame: 10 * time.Second, write: 30 * time.Second, waiting: 1024, bytes: 32 << 20}

// A Server serves one engine on one socket.
type Server struct {
	engine   *engine.Engine
	opts     Options
	limits   limits
	place    *place
	listener *net.UnixListener
	closed   chan struct{}   // closed when Shutdown begins
	idle     chan struct{}   // closed when the server was without a client for opts.Idle
	asked    chan struct{}   // closed when a client requests a stop
	asking   sync.Once       // closes asked
	removed  sync.Once       // removes the socket file
	running  sync.WaitGroup  // connections, and Serve
	received *memquota.Share // frames that are being received, and unanswered requests
	answers  *memquota.Share // unread answers
	document atomic.Int64    // bytes of the last status document

	reporting sync.Mutex // held while opts.Ends is called, so that the newest time comes last; mu is taken under it

	mu        sync.Mutex // guards the fields that follow
	conns     map[*conn]struct{}
	closing   bool
	cancelAll context.CancelFunc // cancels every request
	noMore    context.CancelFunc // ends waits for memory for frames
	alone     *time.Timer        // runs while no connection is open; nil without opts.Idle
	isIdle    bool               // idle is closed
	began     time.Time          // start of Serve
	met       bool               // a client has attached
	ends      time.Time          // when alone fires; zero: a client is connected, or opts.Idle is 0
}

// Listen creates the socket, and first removes the socket file of a server that has died. The caller holds the cache's lock. If another process listens
// on the socket, the error names it.
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
		o.Logger.Warn("members of the group can't reach the socket: give them execute permission for this directory, or choose another --socket", "group", o.AllowGroup, "dir", dir)
	}
	each := max(leastFrames, e.MemoryLimit()/shareFrames) / 2
	return &Server{engine: e, opts: o, received: e.Account().Share(maxFrame, each), answers: e.Account().Share(maxFrame, each), limits: defaultLimits, place: p, listener: l,
		closed: make(chan struct{}), idle: make(chan struct{}), asked: make(chan struct{}), conns: map[*conn]struct{}{}, cancelAll: func() {}, noMore: func() {}}, nil
}

// Path returns the absolute path of the socket.
func (s *Server) Path() string { return s.place.path }

// Idle returns a channel that is closed when the server was without a client for Options.Idle, counted from Serve on. The caller then calls Shutdown. A
// client that connects in between gets the error that the server closes.
func (s *Server) Idle() <-chan struct{} { return s.idle }

// Asked returns a channel that is closed when a client requests a stop. The caller then calls Shutdown.
func (s *Server) Asked() <-chan struct{} { return s.asked }

func (s *Server) askToStop(pid int) {
	s.asking.Do(func() {
		s.opts.Logger.Info("asked to stop", "pid", pid)
		close(s.asked)
	})
}

// wait starts the timer of a server without clients. The caller holds mu, and calls tell after it has released it.
func (s *Server) wait(timer func(time.Duration)) {
	after := s.idleAfter()
	s.ends = time.Now().Add(after)
	timer(after)
}

// reportEnds reports to opts.Ends when the server ends, or that it does not. The caller does not hold mu.
func (s *Server) reportEnds() {
	if s.opts.Ends == nil {
		return
	}
	s.reporting.Lock()
	defer s.reporting.Unlock()
	s.mu.Lock()
	at := s.ends
	s.mu.Unlock()
	s.opts.Ends(at)
}

// idleAfter returns how long the server may be without a client from now on. The caller holds mu.
func (s *Server) idleAfter() time.Duration {
	if s.met {
		return s.opts.Idle
	}
	return max(s.opts.Idle, s.opts.First-time.Since(s.began))
}

// attached notes that a client has completed its HELLO.
func (s *Server) attached() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.met = true
}

// left closes idle, unless a client has connected meanwhile.
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
	ctx, cancelAll := context.WithCancel(context.Background()) // Shutdown ends it: requests outlast Serve
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		cancelAll()
		return nil
	}
	s.cancelAll = cancelAll
	reading, noMore := context.WithCancel(ctx)
	s.noMore = noMore
	s.running.Add(1)
	if s.opts.Idle > 0 {
		s.began = time.Now()
		s.wait(func(after time.Duration) { s.alone = time.AfterFunc(after, s.left) })
	}
	s.mu.Unlock()
	s.reportEnds()
	defer s.running.Done()
	s.opts.Logger.Info("listening", "socket", s.place.path, "version", s.opts.Version)
	for {
		c, err := s.listener.AcceptUnix()
		switch {
		case err == nil:
			s.add(ctx, reading, c)
		case s.isClosing():
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on %s: %w", s.place.path, err)
		default:
			// Most likely descriptors or memory are exhausted: clients in the backlog are served when some are free again.
			s.opts.Logger.Warn("cannot accept a client", "err", err)
			pause := time.NewTimer(50 * time.Millisecond)
			select {
			case <-pause.C:
			case <-s.closed:
				pause.Stop()
			}
		}
	}
}

// add starts a connection, unless Shutdown has begun, which would not join it.
func (s *Server) add(ctx, reading context.Context, c *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		c.Close()
		return
	}
	x := newConn(s, c)
	s.conns[x] = struct{}{}
	first := !s.ends.IsZero()
	if s.alone != nil {
		s.alone.Stop()
		s.ends = time.Time{}
	}
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		if first {
			s.reportEnds()
		}
		x.serve(ctx, reading)
		s.mu.Lock()
		delete(s.conns, x)
		last := len(s.conns) == 0 && s.alone != nil && !s.closing
		if last {
			s.wait(func(after time.Duration) { s.alone.Reset(after) })
		}
		s.mu.Unlock()
		if last {
			s.reportEnds()
		}
	}()
}

func (s *Server) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// Shutdown stops accepting, lets each connection finish the request in flight, notifies the clients that the server closes, and returns when all
// goroutines have ended. It cancels a request that is still in flight after a third of ctx's time, because it may wait for memory that a client holds.
// If ctx ends first, Shutdown closes the connections, and returns the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	cancelAll, noMore := s.cancelAll, s.noMore
	if s.alone != nil {
		s.alone.Stop()
	}
	s.mu.Unlock()
	defer cancelAll()
	if first {
		close(s.closed)
		s.listener.Close()
		noMore()
		for _, c := range conns {
			c.c.CloseRead() // its reader reads the frames that have arrived, and then sees that the server closes
		}
	}
	joined := make(chan struct{})
	go func() {
		s.running.Wait()
		close(joined)
	}()
	if until, is := ctx.Deadline(); is {
		defer time.AfterFunc(time.Until(until)/3, cancelAll).Stop()
	}
	var err error
	select {
	case <-joined:
	case <-ctx.Done():
		err = fmt.Errorf("requests were still running: %w", ctx.Err())
		cancelAll()
		for _, c := range conns {
			c.c.Close()
		}
		<-joined
	}
	s.removed.Do(s.place.remove)
	return err
}
