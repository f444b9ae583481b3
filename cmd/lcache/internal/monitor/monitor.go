// Package monitor answers HTTP requests about running servers: a page for people at /, metrics for Prometheus at /metrics, and health at /healthz and /readyz.
//
// Listen makes a Server, Add gives it the status of one more cache, SetReady says that all of them are there, and Shutdown ends it and joins its goroutines. All requests share one
// status of each cache, which is at most a moment old: however many there are, an engine is asked a few times a second. If a
// token is set, all answers need it except for those about health. All methods may be called concurrently, and a nil Server does nothing.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"lcache/cmd/lcache/internal/prometheus"
	"lcache/internal/serve/status"
)

// Paths of the answers.
const (
	MetricsPath = "/metrics"
	HealthPath  = "/healthz"
	ReadyPath   = "/readyz"
)

// Options of Listen.
type Options struct {
	Addr   string // host:port; without a host, this machine alone
	Token  Token  // "": everybody who reaches the address may read
	Logger *slog.Logger
}

// A Server answers requests until Shutdown.
type Server struct {
	listener net.Listener
	http     *http.Server
	served   chan error
	metrics  prometheus.Collector
	page     *page

	mu      sync.Mutex // guards the fields that follow
	caches  []*cached
	isReady bool
}

// Listen opens an address and answers requests until Shutdown. Port 0 takes a free port, which URL names. The error of an address that is in use
// wraps an *InUseError.
func Listen(o Options) (*Server, error) {
	l, err := net.Listen("tcp", withHost(o.Addr))
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w: choose another --metrics", explain(err))
	}
	s := &Server{listener: l, served: make(chan error, 1)}
	registry := client.NewRegistry()
	registry.MustRegister(&s.metrics)
	errorLog := slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn)
	mux := http.NewServeMux()
	guard := guard{token: o.Token, isLocal: isLoopback(l.Addr())}
	// A cache that does not answer must not hide the others.
	mux.Handle(MetricsPath, guard.wrap(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, ErrorLog: errorLog, MaxRequestsInFlight: 8})))
	s.page = newPage(s)
	mux.Handle(PagePath+"{$}", guard.forPeople(s.page))
	mux.Handle(streamPath, guard.forPeople(http.HandlerFunc(s.page.stream)))
	mux.HandleFunc(HealthPath, s.health)
	mux.HandleFunc(ReadyPath, s.ready)
	s.http = &http.Server{Handler: mux, ErrorLog: errorLog, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 16 << 10}
	var once sync.Once
	s.http.RegisterOnShutdown(func() { once.Do(func() { close(s.page.stop) }) })
	go s.page.watch()
	go func() { s.served <- s.http.Serve(l) }()
	return s, nil
}

// withHost returns an address whose host is this machine alone if it has none.
func withHost(addr string) string {
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// Add shows one more server's status. The label name tells the series of several servers apart; "" takes the job's name in the document. The Server calls
// status from one goroutine at a time, and never after Shutdown.
func (s *Server) Add(name string, status func() (status.Document, error)) {
	if s == nil {
		return
	}
	c := &cached{name: name, ask: status}
	s.metrics.Add(name, c.status)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caches = append(s.caches, c)
}

// SetReady says that all caches are listed and served.
func (s *Server) SetReady() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isReady = true
}

// all returns the caches, and whether all of them are there.
func (s *Server) all() ([]*cached, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.caches), s.isReady
}

// URL returns the address of the metrics for a program on this machine; "" of a nil Server.
func (s *Server) URL() string {
	if s == nil {
		return ""
	}
	return s.base() + MetricsPath
}

// PageURL returns the address of the page for a browser on this machine; "" of a nil Server.
func (s *Server) PageURL() string {
	if s == nil {
		return ""
	}
	return s.base() + PagePath
}

func (s *Server) base() string {
	host, port, _ := net.SplitHostPort(s.listener.Addr().String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Shutdown stops listening, and returns when the requests in flight have ended. When ctx ends first, Shutdown cuts them off, and the error is the error
// of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	if s == nil {
		return nil
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("a request for metrics was still running: %w", err), s.http.Close())
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve metrics: %w", served))
	}
	s.served <- http.ErrServerClosed // for a second call
	select {
	case <-s.page.done:
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("the page's last look at a server: %w", ctx.Err()))
	}
	caches, _ := s.all()
	for _, c := range caches {
		err = errors.Join(err, c.close(ctx))
	}
	return err
}
