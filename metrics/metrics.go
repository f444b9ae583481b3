// Package metrics shows status documents to Prometheus, over HTTP at /metrics, in its text format.
//
// A Server is made by Listen, is given a source of documents for each cache by Add, and ends with Shutdown, which joins what it
// started. The metrics have the names of the status document, prefixed lcache_; names.go says which are counters and what they mean.
// Every series has the job's name as its label "name" ("job" is taken: Prometheus gives that one itself); those of ranks have "rank" too.
// What is null is absent. Nothing is kept between two scrapes. All methods may be called concurrently.
package metrics

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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"lcache/engine"
)

// Path is where the metrics are.
const Path = "/metrics"

// A Server answers scrapes.
type Server struct {
	listener net.Listener
	http     *http.Server
	served   chan error

	mu      sync.Mutex // guards the fields that follow
	sources []source
}

// source is one server's status, under the name that its series have; "": as the document names its job.
type source struct {
	name   string
	status func() (engine.Status, error)
}

// Listen opens addr, host:port or :port, and answers there until Shutdown. Port 0 is one that is free: see URL.
func Listen(addr string, logger *slog.Logger) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w: choose another --metrics", err)
	}
	s := &Server{listener: l, served: make(chan error, 1)}
	registry := prometheus.NewRegistry()
	registry.MustRegister((*collector)(s))
	errorLog := slog.NewLogLogger(logger.Handler(), slog.LevelWarn)
	mux := http.NewServeMux()
	// A source that does not answer must not hide the others.
	mux.Handle(Path, promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, ErrorLog: errorLog, MaxRequestsInFlight: 8}))
	s.http = &http.Server{Handler: mux, ErrorLog: errorLog, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 5 * time.Minute}
	go func() { s.served <- s.http.Serve(l) }()
	return s, nil
}

// Add shows one more server's status. Name tells series of several apart; "" takes the job's name out of the document. The function
// is called at every scrape, from any goroutine, and never after Shutdown. A nil Server shows nothing.
func (s *Server) Add(name string, status func() (engine.Status, error)) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources = append(s.sources, source{name, status})
}

// URL is where a program on this machine finds the metrics; "" of a nil Server.
func (s *Server) URL() string {
	if s == nil {
		return ""
	}
	host, port, _ := net.SplitHostPort(s.listener.Addr().String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port) + Path
}

// Shutdown stops listening, lets scrapes that have begun end, and returns when they have. When ctx ends first they are cut off, and the
// error is ctx's. A nil Server has nothing to end.
func (s *Server) Shutdown(ctx context.Context) error {
	if s == nil {
		return nil
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("a scrape of the metrics was still running: %w", err), s.http.Close())
	}
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve metrics: %w", served))
	}
	s.served <- http.ErrServerClosed // for whoever calls again
	return err
}

// collector is a Server as the Prometheus library sees it.
type collector Server

// Describe says nothing: which metrics there are depends on what is null.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect asks every source once.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	sources := slices.Clone(c.sources)
	c.mu.Unlock()
	for _, src := range sources {
		s, err := src.status()
		if err != nil {
			to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
			continue
		}
		write(to, src.name, s)
	}
}
