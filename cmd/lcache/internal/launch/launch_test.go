package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"lcache/engine"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/usage"
)

func init() { os.Setenv("LCACHE_TMPFS", "1") } // so that caches can be in a temporary folder in memory

// options returns options of a run over a new source, with a shell command.
func options(t *testing.T, script string) (Options, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	for i := range 10 {
		path := filepath.Join(dir, "data", fmt.Sprint("class", i%2), fmt.Sprint(i))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, bytes.Repeat([]byte{byte(i)}, 100*i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	io := cache.IO{Engine: os.Getenv("LCACHE_IO"), Direct: os.Getenv("LCACHE_DIRECT")}
	return Options{Command: []string{"sh", "-c", script}, Sources: []Source{{Path: filepath.Join(dir, "data")}}, Roots: []string{filepath.Join(dir, "root")},
		Ingest: ingest.Options{NoPrefill: true, IO: io}, Engine: engine.Options{IO: io}, Stdout: &out, Stderr: t.Output(), Environ: os.Environ(), Version: "test", Registry: filepath.Join(dir, "servers")}, &out
}

// TestRun: a run needs no command line. Its servers are there while the command runs, and gone afterwards.
func TestRun(t *testing.T) {
	o, out := options(t, `test -S "$LCACHE_SOCKET" && ls "$REGISTRY" && echo $LCACHE_SOCKET && exit 3`)
	o.Environ = append(o.Environ, "REGISTRY="+o.Registry)
	var opened []*Opened
	o.Opened = func(n int, o *Opened) { opened = append(opened, o) }
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.ExitCode != 3 || r.Signal != 0 || r.Command != "sh" || r.Unclean != nil || len(r.Sources) != 1 {
		t.Errorf("result %+v", r)
	}
	if s := r.Sources[0]; s.Path != o.Sources[0].Path || s.AttachedTo != 0 || s.Status.Jobs[0].Samples != 10 || s.Verdict.Cause != "unknown" || s.Verdict.Change == "" {
		t.Errorf("source %+v", s)
	}
	if len(opened) != 1 || opened[0].Samples != 10 || opened[0].Bytes != 4500 || !slices.ContainsFunc(opened[0].Defaults, func(d cache.Default) bool { return d.Name == "socket" }) {
		t.Errorf("opened %+v", opened)
	}
	said := strings.Fields(out.String())
	if want := fmt.Sprintf("%d-1.json", os.Getpid()); len(said) != 2 || said[0] != want || filepath.Dir(said[1]) != opened[0].Dirs[0] {
		t.Errorf("said %q, want %s and a socket in %s", said, want, opened[0].Dirs)
	}
	if left, err := os.ReadDir(o.Registry); err != nil || len(left) != 0 {
		t.Errorf("left in the registry: %v, %v", left, err)
	}
	if _, err := os.Stat(said[1]); err == nil {
		t.Error("the socket is left")
	}
	// Again without a source: that of the only cache.
	o.Sources, o.Command = nil, []string{"sh", "-c", "kill -9 $$"}
	if r, err = Run(context.Background(), o); err != nil || r.ExitCode != 128+9 || r.Signal != syscall.SIGKILL || len(r.Sources) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRunRefuses: a wrong option is an error with its exit code, and leaves nothing behind.
func TestRunRefuses(t *testing.T) {
	o, _ := options(t, "")
	ended := new(ExitError)
	for code, command := range map[int]string{exitNotFound: "there-is-none", exitNotExecutable: filepath.Join(o.Sources[0].Path, "class0", "0")} {
		bad := o
		bad.Command = []string{command}
		if _, err := Run(context.Background(), bad); !errors.As(err, &ended) || ended.Code != code {
			t.Errorf("%s: got %v, want exit code %d", command, err, code)
		}
	}
	empty := o
	empty.Sources = nil
	wrong := new(usage.Error)
	if _, err := Run(context.Background(), empty); !errors.As(err, &wrong) {
		t.Errorf("no source: got %v", err)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(over, o); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: got %v", err)
	}
	if _, err := os.Stat(o.Roots[0]); err == nil {
		t.Error("a cache was begun")
	}
}

// TestServe: a server is there when ready is called, and gone when Serve returns, which a run that attached to it does not hinder.
func TestServe(t *testing.T) {
	o, out := options(t, "test -S $LCACHE_SOCKET && echo $LCACHE_SOCKET")
	if _, err := Run(context.Background(), o); err != nil { // makes the cache
		t.Fatal(err)
	}
	cache, err := filepath.Glob(filepath.Join(o.Roots[0], "data-*"))
	if err != nil || len(cache) != 1 {
		t.Fatal(cache, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	serve := ServeOptions{Engine: engine.Options{Dirs: cache, IO: o.Engine.IO}, Metrics: Metrics{Addr: "127.0.0.1:0"}, Registry: o.Registry, Version: "test"}
	var url string
	err = Serve(ctx, serve, func(s Served) error {
		defer stop()
		url = s.Metrics
		answer, err := http.Get(url)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if text, err := io.ReadAll(answer.Body); err != nil || !strings.Contains(string(text), "\nlcache_samples{name=\"data\"} 10\n") {
			t.Errorf("%v: %s", err, text)
		}
		if s.Socket != filepath.Join(cache[0], "lcache.sock") || len(s.Defaults) == 0 || s.Defaults[0].Name != "socket" {
			t.Errorf("served %+v", s)
		}
		out.Reset()
		r, err := Run(context.Background(), o)
		if err != nil {
			return err
		}
		if got := r.Sources[0]; got.AttachedTo != os.Getpid() || r.ExitCode != 0 || strings.TrimSpace(out.String()) != s.Socket {
			t.Errorf("attached to %d, ended with %d: %s", got.AttachedTo, r.ExitCode, out)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := http.Get(url); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the metrics afterwards: %v", err)
	}
	refused := errors.New("no listener")
	if err := Serve(context.Background(), serve, func(Served) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("got %v, want what ready said", err)
	}
}
