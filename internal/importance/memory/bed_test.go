package memory

import (
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/offheap"
	"lcache/internal/testenv"
	"lcache/sample"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: offheap.Mapped}))
}

// samples are 40 samples of 3000 bytes with known checksums.
type samples struct {
	Dataset
	bytes [][]byte
	log   logged
}

const size = 3000

func newSamples(t *testing.T) *samples {
	t.Helper()
	s := &samples{}
	r := rand.New(rand.NewPCG(3, 4))
	var entries []sample.Entry
	for i := range 40 {
		b := make([]byte, size)
		for k := range b {
			b[k] = byte(r.Uint32())
		}
		s.bytes = append(s.bytes, b)
		entries = append(entries, sample.Entry{Name: string(rune('A' + i)), Size: size})
	}
	dir := t.TempDir()
	print, err := sample.WriteManifest(filepath.Join(dir, "manifest"), nil, entries)
	if err != nil {
		t.Fatal(err)
	}
	if s.Manifest, err = sample.OpenManifest(filepath.Join(dir, "manifest")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Manifest.Close() })
	if s.Sums, err = sample.OpenSums(filepath.Join(dir, "sums"), print, len(entries)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Sums.Close() })
	for i, b := range s.bytes {
		s.Sums.Set(sample.Index(i), sample.Sum(b))
	}
	s.Logger = slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return s
}

// opportunistic returns memory for four samples, and the bytes that each takes.
func (s *samples) opportunistic(t *testing.T) (a *Opportunistic, each int64) {
	t.Helper()
	each = newCells(s.Manifest).round(size)
	a, err := NewOpportunistic(4*each+tableBytes*40, s.Dataset, func(_ int, of []sample.Index) []sample.Index { return of })
	if err != nil || a == nil {
		t.Fatalf("%v, %v", a, err)
	}
	t.Cleanup(a.Close)
	return a, each
}

// newBytes returns a Bytes for the samples.
func (s *samples) newBytes(t *testing.T) *Bytes {
	t.Helper()
	h, err := newBytes(s.Dataset)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	return h
}

// logged collects log messages at WARN and above.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// lines counts the log messages that contain a text.
func (l *logged) lines(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// returns calls f and fails the test if f does not return.
func returns(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal(what + " waits")
	}
}
