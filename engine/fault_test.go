package engine

import (
	"context"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
)

// fault is a kind of disk failure, at the n-th operation or from it on.
type fault struct {
	name       string
	fault      blockio.Fault
	persistent bool
}

var faults = []fault{
	{name: "EIO", fault: blockio.Fault{Err: syscall.EIO}},
	{name: "EIO for good", fault: blockio.Fault{Err: syscall.EIO}, persistent: true},
	{name: "ENOSPC for good", fault: blockio.Fault{Err: syscall.ENOSPC}, persistent: true},
	{name: "short", fault: blockio.Fault{Short: 4096}},
	{name: "again", fault: blockio.Fault{Again: 3}},
	{name: "torn", fault: blockio.Fault{Torn: 4096}},
	{name: "misplaced", fault: blockio.Fault{Misplace: 128 << 10}},
	{name: "bit flip", fault: blockio.Fault{Flip: 1 + 8*5000}},
}

// at is a disk with this failure at its n-th operation, or from there on.
func (f fault) at(n int64) *ailing {
	a := &ailing{fault: func(*blockio.Op) blockio.Fault { return f.fault }, from: n, to: n + 1}
	if f.persistent {
		a.to = forever
	}
	return a
}

// TestNthFault makes the n-th operation fail, for n = 1, 2, 3 … until a run has fewer operations. A run has an epoch that
// reorders, a clean stop, a recovery and the next epochs. Every delivered byte is right, and nothing
// fails or hangs: the worst result is a miss.
func TestNthFault(t *testing.T) {
	step := testenv.Pick[int64](7, 37) // every n takes minutes: LCACHE_FAULTS=all
	d := makeDataset(t, 90, func(r *rand.Rand, i int) int {
		if i%30 == 0 {
			return 300 << 10
		}
		return r.IntN(30_000)
	})
	for _, layout := range []string{cache.LayoutLog, cache.LayoutStatic} {
		for _, f := range faults {
			t.Run(layout+", "+f.name, func(t *testing.T) {
				t.Parallel()
				everyNth(t, step, func(n int64) bool { return d.withFault(t, layout, f, n, "") })
			})
		}
	}
}

// TestNthFaultPacked is TestNthFault with compression, for faults that leave wrong bytes or no bytes.
func TestNthFaultPacked(t *testing.T) {
	step := testenv.Pick[int64](29, 97) // TestNthFault is the thorough one
	d := makeDatasetOf(t, 90, func(r *rand.Rand, i int) int {
		if i%30 == 0 {
			return 600 << 10
		}
		return r.IntN(60_000)
	}, mostlyWords)
	for _, f := range faults {
		switch f.name {
		case "EIO", "EIO for good", "torn", "misplaced", "bit flip":
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				everyNth(t, step, func(n int64) bool { return d.withFault(t, cache.LayoutLog, f, n, "lz4") })
			})
		}
	}
}

// withFault is one run. It reports whether the fault happened.
func (d *dataset) withFault(t *testing.T, layout string, f fault, n int64, compress string) bool {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	in := ingest.Options{Dirs: []string{dir}, Memory: 24 << 20, Compress: compress}
	if compress != "" {
		in.Memory *= 2
	}
	return d.survives(t, f.at(n), in, Options{Layout: layout, knobs: knobs{BlockTimeout: time.Second}}, func() {})
}

// TestIngestNthFault does the same for ingest: it ends with an error that says what failed, or makes a correct cache. Another run
// without the fault completes it.
func TestIngestNthFault(t *testing.T) {
	d := makeDataset(t, 90, func(r *rand.Rand, i int) int { return r.IntN(60_000) })
	j := samplerJob(1, 8, 1, false)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			everyNth(t, 5, func(n int64) bool {
				dir, err := os.MkdirTemp(t.TempDir(), "")
				if err != nil {
					t.Fatal(err)
				}
				defer os.RemoveAll(dir)
				a := f.at(n)
				in := ingest.Options{Job: j, Source: d.dir, Dirs: []string{dir}, Block: 128 << 10, Memory: 24 << 20, IO: testIO()}
				in.IO.Inject = a.inject
				if _, err := ingest.Run(context.Background(), in); err != nil && a.faulted.Load() == 0 {
					t.Fatalf("operation %d: %v", n, err)
				}
				in.IO = testIO()
				if _, err := ingest.Run(context.Background(), in); err != nil {
					t.Fatalf("operation %d: ingest again: %v", n, err)
				}
				e := open(t, Options{Dirs: in.Dirs, IO: testIO(), Memory: in.Memory})
				c := attach(t, e)
				if _, err := d.readRank(e, c, 0, 0, 0); err != nil {
					t.Errorf("operation %d: %v", n, err)
				}
				closeEngine(t, e)
				return a.faulted.Load() > 0
			})
		})
	}
}
