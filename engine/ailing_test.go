package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/store/ingest"
)

// thorough makes tests that draw some of many cases run all of them.
func thorough() bool { return os.Getenv("LCACHE_FAULTS") == "all" }

// everyNth calls run with n = 1, 2, 3 …, or in larger steps unless the test is thorough, until run reports that n was past the end.
func everyNth(t *testing.T, step int64, run func(n int64) bool) {
	t.Helper()
	if thorough() {
		step = 1
	}
	for n := 1 + rand.Int64N(step); run(n) && !t.Failed(); n += step {
	}
}

const forever = 1 << 60

// ailing makes a cache's disk, or one of its disks, fail for a while.
type ailing struct {
	dir     string // of the device; "": all
	fault   func(op *blockio.Op) blockio.Fault
	ops     atomic.Int64 // of this device
	faulted atomic.Int64

	mu       sync.Mutex // guards the fields that follow
	from, to int64      // its operations in trouble: [from, to)
}

func (a *ailing) inject(io *blockio.IO) {
	blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
		if a.dir != "" && filepath.Dir(op.File.Name()) != a.dir {
			return blockio.Fault{}
		}
		n := a.ops.Add(1)
		a.mu.Lock()
		defer a.mu.Unlock()
		if n < a.from || n >= a.to {
			return blockio.Fault{}
		}
		f := a.fault(op)
		if f != (blockio.Fault{}) {
			a.faulted.Add(1)
		}
		return f
	})
}

// end ends the failure.
func (a *ailing) end() {
	a.mu.Lock()
	a.to = 0
	a.mu.Unlock()
}

// survives makes a cache on a healthy disk, and reads four epochs from the failing one, with a clean stop and a recovery in the middle.
// Every byte must be right, and nothing may fail or hang. It calls cure before each stop, and reports whether the
// failure happened.
func (d *dataset) survives(t *testing.T, a *ailing, in ingest.Options, o Options, cure func()) bool {
	t.Helper()
	in.Job, in.Source, in.Block, in.IO = samplerJob(4, 8, 1, true), d.dir, 128<<10, testIO()
	if _, err := ingest.Run(context.Background(), in); err != nil {
		t.Fatal(err)
	}
	io := testIO()
	io.Inject, io.Deadline, io.ProbeAfter = a.inject, o.IO.Deadline, o.IO.ProbeAfter
	o.Dirs, o.Memory, o.IO, o.Patience = in.Dirs, in.Memory, io, 50*time.Millisecond
	for half := range 2 {
		e, err := Open(context.Background(), o)
		if err != nil {
			t.Errorf("operation %d: open number %d: %v", a.from, half, err)
			return true
		}
		c := attach(t, e)
		for epoch := 2 * half; epoch < 2*half+2; epoch++ {
			if _, err := d.readRank(e, c, epoch, 0, 0); err != nil {
				t.Errorf("operation %d: %v", a.from, err)
			}
		}
		cure()
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		err = e.Close(ctx)
		cancel()
		if err != nil && (a.faulted.Load() == 0 || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "deadline")) {
			t.Errorf("operation %d: close: %v", a.from, err)
		}
	}
	return a.faulted.Load() > 0
}
