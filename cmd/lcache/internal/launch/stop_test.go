package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lcache/cmd/lcache/internal/attach"
	"lcache/internal/usage"
	"lcache/logfile"
)

// heldCache is a directory that looks like a cache, with its lock held by this process.
func heldCache(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "job.json"), []byte(`{"schema": 1, "source": "/data"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := logfile.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return dir
}

// enter puts a file of a server into a registry, of any pid.
func enter(t *testing.T, registry string, pid int, cache string) {
	t.Helper()
	if err := os.MkdirAll(registry, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"pid": %d, "socket": "/nowhere/s", "cache": [%q]}`, pid, cache)
	if err := os.WriteFile(filepath.Join(registry, filepath.Base(cache)+".json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestStopRefuses: a process is stopped only if it holds the lock of the cache that it is said to have. A pid that another process has taken over stops nothing.
func TestStopRefuses(t *testing.T) {
	cache, other := heldCache(t), heldCache(t)
	free := t.TempDir()
	if err := os.WriteFile(filepath.Join(free, "job.json"), []byte(`{"schema": 1, "source": "/data"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	parent := os.Getppid() // a live process that is not a server
	self := os.Getpid()
	registry := filepath.Join(t.TempDir(), "lcache")
	for _, c := range []struct {
		name    string
		prepare func()
		o       StopOptions
		want    string
	}{
		{"no server", func() {}, StopOptions{}, "no server of this user runs: there is nothing to stop"},
		{"another process has the number", func() { enter(t, registry, parent, cache) }, StopOptions{Pid: parent}, fmt.Sprintf("process %d is not an lcache server of this user: lcache ls lists running servers", parent)},
		{"no process has the cache", func() {}, StopOptions{Dir: free}, fmt.Sprintf("no process has %s open: there is nothing to stop", free)},
		{"it answers on no socket", func() { enter(t, registry, self, cache) }, StopOptions{Pid: self}, fmt.Sprintf("process %d has %s open and answers on no socket: it may be an ingest, or just ending; wait, or end that program", self, cache)},
		{"by its cache", func() {}, StopOptions{Dir: cache}, "answers on no socket"},
		{"several", func() { enter(t, registry, self, other) }, StopOptions{}, fmt.Sprintf("several servers run: say which one to stop, %d (", self)},
	} {
		c.prepare()
		c.o.Registry = registry
		_, err := Stop(t.Context(), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
		if wrong := new(usage.Error); (c.name == "several") != errors.As(err, &wrong) {
			t.Errorf("%s: is it wrong usage? %v", c.name, err)
		}
	}
	if _, err := openProcess(1 << 30); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("no such process: %v", err)
	}
	if found, err := attach.Registered(registry); err != nil || len(found) != 2 {
		t.Errorf("the registry has %v, %v", found, err)
	}
}
