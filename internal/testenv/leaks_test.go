package testenv

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// tests is a fake for the tests of a package.
type tests func() int

func (f tests) Run() int { return f() }

// stderrOf returns the output of f on stderr.
func stderrOf(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stderr
	os.Stderr = w
	f()
	os.Stderr = old
	w.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	return string(b)
}

// TestRun: a leaked goroutine, file or counted byte is reported. Failed tests keep their exit code, and tests without
// leaks pass.
func TestRun(t *testing.T) {
	patience = 50 * time.Millisecond
	var bytes atomic.Int64
	counts := []Count{{"bytes of something", bytes.Load}, {"others", func() int64 { return 0 }}}
	path := filepath.Join(t.TempDir(), "left-open")
	allowedPath := filepath.Join(t.TempDir(), "left-open")
	stop := make(chan struct{})
	var file *os.File
	for _, c := range []struct {
		name string
		run  func() int
		undo func()
		code int
		says string
	}{
		{"nothing", func() int { return 0 }, func() {}, 0, ""},
		{"goroutine", func() int { go func() { <-stop }(); return 0 }, func() { close(stop) }, 1, "TestRun"},
		{"file", func() int { file, _ = os.Create(path); return 0 }, func() { file.Close() }, 1, path},
		{"file that is allowed", func() int { Allow(filepath.Dir(allowedPath)); file, _ = os.Create(allowedPath); return 0 }, func() { file.Close() }, 0, ""},
		{"count", func() int { bytes.Store(7); return 0 }, func() { bytes.Store(0) }, 1, "7 bytes of something"},
		{"ends in time", func() int { bytes.Store(7); time.AfterFunc(time.Millisecond, func() { bytes.Store(0) }); return 0 }, func() {}, 0, ""},
		{"failed", func() int { bytes.Store(7); return 3 }, func() { bytes.Store(0) }, 3, ""},
	} {
		var code int
		said := stderrOf(t, func() { code = Run(tests(c.run), counts...) })
		c.undo()
		if code != c.code || !strings.Contains(said, c.says) || c.says == "" && said != "" {
			t.Errorf("%s: code %d, want %d, and says %q, want %q", c.name, code, c.code, said, c.says)
		}
		if strings.Contains(said, "others") {
			t.Errorf("%s: it reports a count that is zero: %q", c.name, said)
		}
	}
}

// recorder is a test that records its failure instead of failing.
type recorder struct {
	testing.TB
	cleanup func()
	failed  bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Cleanup(f func())      { r.cleanup = f }
func (r *recorder) Failed() bool          { return r.failed }
func (r *recorder) Errorf(string, ...any) { r.failed = true }

// TestCheck: Check compares with the count before the test, not with zero.
func TestCheck(t *testing.T) {
	patience = 50 * time.Millisecond
	bytes := int64(100)
	for _, left := range []int64{0, 1, -1} {
		r := &recorder{TB: t}
		Check(r, Count{"bytes", func() int64 { return bytes }})
		bytes += left
		r.cleanup()
		if want := left > 0; r.failed != want {
			t.Errorf("%d more: failed %v, want %v", left, r.failed, want)
		}
	}
}
