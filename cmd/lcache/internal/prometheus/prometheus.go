// Package prometheus shows status documents to Prometheus, over HTTP at /metrics, in its text format.
//
// Listen makes a Server, Add gives it the status of one more cache, and Shutdown ends it and joins its goroutines. The metrics have the names
// of the status document, prefixed lcache_; names.go has their kinds and help texts. Every series has the job's name as its label "name",
// because Prometheus itself sets the label "job"; series of ranks have the label "rank" too. If a job has a token, it is the label "job" of the
// job's series. Series of the whole server have no such label, so that sums over jobs are right. A label must be UTF-8, but a file name may have
// any bytes: usage.Name writes the labels. Fields that are null give no series. Nothing is kept between two scrapes. All methods may be called concurrently.
package prometheus

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

	"lcache/internal/serve/status"
)

// Path is the URL path of the metrics.
const Path = "/metrics"

// A Server answers scrapes.
type Server struct {
	listener net.Listener
	http     *http.Server
	served   chan error

	mu      sync.Mutex // guards the fields that follow
	sources []source
}

// source gives the status of one server. name is the label of its series; "": the job's name in the document.
type source struct {
	name   string
	status func() (status.Document, error)
}

// Listen opens addr, host:port or :port, and answers scrapes until Shutdown. Port 0 takes a free port, which URL names. The error of an address that is in use
// wraps an *InUseError.
func Listen(addr string, logger *slog.Logger) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w: choose another --metrics", explain(err))
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

// Add shows one more server's status. The label name tells the series of several servers apart; "" takes the job's name in the document.
// The Server calls status at every scrape, from any goroutine, and never after Shutdown. A nil Server shows nothing.
func (s *Server) Add(name string, status func() (status.Document, error)) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources = append(s.sources, source{name, status})
}

// URL returns the address of the metrics for a program on this machine; "" of a nil Server.
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

// Shutdown stops listening, and returns when the scrapes in flight have ended. When ctx ends first, Shutdown cuts these scrapes off, and the
// error is the error of ctx. A nil Server has nothing to end.
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
	s.served <- http.ErrServerClosed // for a second call
	return err
}

// collector is a Server as a prometheus.Collector.
type collector Server

// Describe sends nothing: which metrics there are depends on the document's nulls.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect asks every source for its status once.
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
