package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lcache/blockio"
)

// fault is a kind of disk trouble, for the n-th operation or from it on.
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

// TestNthFault lets the n-th operation fail, for n = 1, 2, 3 … until a run is over before it comes to that, through an epoch that
// reorders, a clean stop, a recovery and the next epochs. Whatever happens on the disk, every byte delivered is right, nothing
// fails and nothing hangs: the worst is a miss.
func TestNthFault(t *testing.T) {
	step := 7 // every n takes minutes: LCACHE_FAULTS=all
	if slow {
		step = 17
	}
	if os.Getenv("LCACHE_FAULTS") == "all" {
		step = 1
	}
	d := makeDataset(t, 90, func(r *rand.Rand, i int) int {
		if i%30 == 0 {
			return 300 << 10
		}
		return r.IntN(30_000)
	})
	for _, layout := range []string{layoutLog, layoutStatic} {
		for _, f := range faults {
			t.Run(layout+", "+f.name, func(t *testing.T) {
				t.Parallel()
				for n := int64(1 + rand.IntN(step)); ; n += int64(step) {
					if !d.withFault(t, layout, f, n, "") || t.Failed() {
						return
					}
				}
			})
		}
	}
}

// TestNthFaultPacked is TestNthFault with compression, for the faults that leave other bytes behind or none.
func TestNthFaultPacked(t *testing.T) {
	step := 29 // TestNthFault is the thorough one
	if os.Getenv("LCACHE_FAULTS") == "all" {
		step = 1
	}
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
				for n := int64(1 + rand.IntN(step)); ; n += int64(step) {
					if !d.withFault(t, layoutLog, f, n, "lz4") || t.Failed() {
						return
					}
				}
			})
		}
	}
}

// withFault is one run; it reports whether the fault happened.
func (d *dataset) withFault(t *testing.T, layout string, f fault, n int64, compress string) bool {
	t.Helper()
	j := samplerJob(4, 8, 1, true)
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	quiet := IngestOptions{Job: j, Source: d.dir, Dirs: []string{dir}, Block: 128 << 10, Memory: 24 << 20, IO: testIO(), Compress: compress}
	if compress != "" {
		quiet.Memory *= 2
	}
	if _, err := Ingest(context.Background(), quiet); err != nil {
		t.Fatal(err)
	}
	var ops, hit atomic.Int64
	io := testIO()
	io.Inject = func(io *blockio.IO) {
		blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
			if k := ops.Add(1); k == n || f.persistent && k > n {
				hit.Add(1)
				return f.fault
			}
			return blockio.Fault{}
		})
	}
	o := Options{Dirs: []string{dir}, IO: io, Memory: quiet.Memory, Layout: layout, Patience: 50 * time.Millisecond, BlockTimeout: time.Second}
	for half := range 2 {
		e, err := Open(context.Background(), o)
		if err != nil {
			if half == 0 {
				t.Fatalf("operation %d: open: %v", n, err)
			}
			t.Errorf("operation %d: open again: %v", n, err)
			return true
		}
		c := attach(t, e)
		for epoch := 2 * half; epoch < 2*half+2; epoch++ {
			if _, err := d.readRank(e, c, epoch, 0, 0); err != nil {
				t.Errorf("operation %d: %v", n, err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		err = e.Close(ctx)
		cancel()
		if err != nil && hit.Load() == 0 {
			t.Errorf("operation %d: close: %v", n, err)
		}
		if err != nil && strings.Contains(fmt.Sprint(err), "deadline") {
			t.Errorf("operation %d: close hung: %v", n, err)
		}
	}
	return hit.Load() > 0
}

// TestIngestNthFault does the same for ingest: it ends with an error that says what failed, or makes a cache that is right; run again
// without the fault it completes.
func TestIngestNthFault(t *testing.T) {
	step := 5
	if os.Getenv("LCACHE_FAULTS") == "all" {
		step = 1
	}
	d := makeDataset(t, 90, func(r *rand.Rand, i int) int { return r.IntN(60_000) })
	j := samplerJob(1, 8, 1, false)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			for n := int64(1 + rand.IntN(step)); ; n += int64(step) {
				dir, err := os.MkdirTemp(t.TempDir(), "")
				if err != nil {
					t.Fatal(err)
				}
				var ops, hit atomic.Int64
				in := IngestOptions{Job: j, Source: d.dir, Dirs: []string{dir}, Block: 128 << 10, Memory: 24 << 20, IO: testIO()}
				in.IO.Inject = func(io *blockio.IO) {
					blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
						if k := ops.Add(1); k == n || f.persistent && k > n {
							hit.Add(1)
							return f.fault
						}
						return blockio.Fault{}
					})
				}
				if _, err := Ingest(context.Background(), in); err != nil && hit.Load() == 0 {
					t.Fatalf("operation %d: %v", n, err)
				}
				in.IO = testIO()
				if _, err := Ingest(context.Background(), in); err != nil {
					t.Fatalf("operation %d: ingest again: %v", n, err)
				}
				e := open(t, Options{Dirs: in.Dirs, IO: testIO(), Memory: in.Memory})
				c := attach(t, e)
				if _, err := d.readRank(e, c, 0, 0, 0); err != nil {
					t.Errorf("operation %d: %v", n, err)
				}
				closeEngine(t, e)
				os.RemoveAll(dir)
				if hit.Load() == 0 || t.Failed() {
					return
				}
			}
		})
	}
}
