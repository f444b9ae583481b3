package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"lcache/engine"
	"lcache/internal/store/cachedir"
	"lcache/internal/store/ingest"
)

// servable is a cache, and the options of a server of it.
func servable(t *testing.T) ServeOptions {
	t.Helper()
	o, _ := options(t, "true")
	dir := filepath.Join(t.TempDir(), "cache")
	o.Ingest.Source, o.Ingest.Dirs = o.Sources[0].Path, []string{dir}
	if _, err := ingest.Run(t.Context(), o.Ingest); err != nil {
		t.Fatal(err)
	}
	return ServeOptions{Engine: engine.Options{Dirs: []string{dir}, IO: o.Engine.IO, OnError: "fail"}, Registry: o.Registry, Version: "test"}
}

// TestTakeOverBesideAClient: a client that waits for a server, or is about to start one, has the clients' lock. That keeps no server from starting where none runs.
func TestTakeOverBesideAClient(t *testing.T) {
	o := servable(t)
	o.TakeOver = true
	lock, err := cachedir.TakeClientLock(o.Engine.Dirs[0], "waiting")
	if err != nil || lock == nil {
		t.Fatal(lock, err)
	}
	defer lock.Close()
	done := errors.New("it serves")
	if err := Serve(t.Context(), o, func(Served) error { return done }); !errors.Is(err, done) {
		t.Errorf("got %v", err)
	}
}

// TestTakeOverRefuses: --take-over does not replace a process that is not a training's server; the process continues.
func TestTakeOverRefuses(t *testing.T) {
	o := servable(t)
	pid, dir := os.Getpid(), o.Engine.Dirs[0]
	refused := func(o ServeOptions, want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // a process without a server may be just ending
		defer cancel()
		o.TakeOver = true
		err := Serve(ctx, o, func(Served) error { return errors.New("it serves") })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	silent := o
	silent.Engine.Dirs = []string{heldCache(t)}
	refused(silent, fmt.Sprintf("process %d has %s open and answers on no socket: it may be an ingest", pid, silent.Engine.Dirs[0]))

	done := errors.New("tried")
	byHand := o
	if err := Serve(t.Context(), byHand, func(Served) error {
		refused(o, fmt.Sprintf("%s is in use by process %d, a server that no training started: stop it first, with lcache stop %d", dir, pid, pid))
		return done
	}); !errors.Is(err, done) {
		t.Error(err)
	}

	held, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	embedded := o
	embedded.Embedded, embedded.Metrics.Addr = true, held.Addr().String()
	var said Served
	if err := Serve(t.Context(), embedded, func(s Served) error {
		said = s
		skipping, other := o, o
		skipping.Engine.OnError = "skip"
		refused(skipping, dir+" is served with --on-error fail, which the training relies on: give the same flag")
		other.Metrics.Addr = "192.0.2.1:9400" // of another machine
		refused(other, "192.0.2.1:9400")
		err := Serve(t.Context(), o, func(Served) error { return errors.New("it serves") })
		want := fmt.Sprintf("%s is in use by process %d, the server that a training started: put this one in its place with lcache serve --take-over --cache %s", dir, pid, dir)
		if err == nil || err.Error() != want {
			t.Errorf("without the flag: %v, want %s", err, want)
		}
		return done
	}); !errors.Is(err, done) {
		t.Error(err)
	}
	if want := fmt.Sprintf("no metrics at %s: process %d listens there: give LCACHE_METRICS another address, or leave it out", held.Addr(), pid); said.Warning != want || said.Metrics != "" {
		t.Errorf("warning %q, metrics %q, want %q", said.Warning, said.Metrics, want)
	}
}
