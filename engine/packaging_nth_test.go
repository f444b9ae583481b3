package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/importance/state"
	"lcache/internal/serve/deliver"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// TestNthFaultWithPackages makes the n-th transfer or sync of the arena fail, or the n-th step of a journal, for n = 1, 2, 3 … until a run has fewer of them, while a job fills packages and Logfiles are
// emptied, and through a clean stop. A server that starts over the result, on a healthy disk, delivers the epoch again. Every delivered byte is right, and nothing fails or
// hangs. By default a few of each kind; LCACHE_FAULTS=all takes every n.
func TestNthFaultWithPackages(t *testing.T) {
	testenv.Long(t)
	d, o, text := lowBed(t, 300, ingest.Options{})
	o.Logger, o.BlockTimeout = nil, time.Second
	b := &damageBed{dataset: d, opts: o}
	b.take(t)
	t.Run("faults", func(t *testing.T) {
		for _, f := range faults {
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				everyNth(t, 300, func(n int64) bool {
					a := f.at(n)
					b.packsThrough(t, text, n, a.inject, &a.faulted)
					return a.faulted.Load() > 0
				})
			})
		}
		for name, forever := range map[string]bool{"a journal": false, "journals for good": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				everyNth(t, 60, func(n int64) bool {
					var faulted atomic.Int64
					b.packsThrough(t, text, n, func(io *blockio.IO) {
						var steps atomic.Int64
						blockio.InjectPlain(io, func(_ int64, path, _ string) (f blockio.Fault) {
							if strings.HasPrefix(filepath.Base(path), state.FilePrefix) { // after it was not written a restart draws other orders
								return f
							}
							if at := steps.Add(1); at == n || forever && at > n {
								faulted.Add(1)
								f.Err = syscall.EIO
							}
							return f
						})
					}, &faulted)
					return faulted.Load() > 0
				})
			})
		}
	})
}

// packsThrough trains some epochs on a copy of the cache whose n-th operation fails or hangs, and starts a server over the remaining files.
func (b *damageBed) packsThrough(t *testing.T, text string, n int64, inject func(*blockio.IO), faulted *atomic.Int64) {
	t.Helper()
	root, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	well := b.spoiled(t, filepath.Join(root, "copy"), "", nil)
	sick := well
	sick.IO.Inject = inject
	e := open(t, sick)
	l := losing{d: b.dataset, e: e, world: 1}
	l.ask(t, 0, text)
	c := attach(t, e)
	var order []sample.Index
	const last = 3
	for epoch := range last + 1 {
		order = l.observed(t, c, epoch, func(int) {})
	}
	if s := e.Status().Jobs[0]; s.Divergences != 0 {
		t.Errorf("operation %d: %d divergences", n, s.Divergences)
	}
	c.Disconnected()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := e.Close(ctx); err != nil && (faulted.Load() == 0 || errors.Is(err, context.DeadlineExceeded)) {
		t.Errorf("operation %d: close: %v", n, err)
	}
	restarted(t, well, b.dataset, text, map[string]int{well.Dirs[0]: last}, func(dir string, epoch int, l losing, c *deliver.Client) {
		l.packsOn(t, dir, c, epoch, order)
	})
	if t.Failed() {
		t.Logf("operation %d", n)
	}
}
