package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lcache/internal/disk/offheap"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
)

// A layout whose Logfile can't be begun is given back, and the status says so: it is made again later.
func TestLayoutThatFails(t *testing.T) {
	d, o := small(t, samplerJob(3, 16, 1, false))
	var later atomic.Int64 // nanoseconds that the clock is ahead
	o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	o.Logger = nil // it is to fail
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	defer c.Disconnected()
	var obstacles []string
	for half := range 2 {
		obstacles = append(obstacles, filepath.Join(o.Dirs[0], fmt.Sprintf("journal-%d.new", half))) // as which the journal of a Logfile is written
		if err := os.MkdirAll(filepath.Join(obstacles[half], "full"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	before := int64(0)
	for attempt := range 3 {
		d.readChunk(t, e, c, 0, 0, attempt)
		logsBecome(t, e, "a Logfile can't be begun", func(l logfiles) bool {
			failures, _ := e.logged("cannot begin the next epoch's log; samples stay where they are")
			return len(failures) > attempt && l.waits
		})
		if state := e.Status().Cache.State; !strings.HasPrefix(state, "degraded: cannot begin the next epoch's log: ") {
			t.Errorf("attempt %d: the cache is %s", attempt, state)
		}
		if attempt == 0 {
			before = offheap.Mapped()
		} else if n := offheap.Mapped() - before; n != 0 {
			t.Errorf("attempt %d: %d bytes of layouts are left", attempt, n)
		}
		if attempt < 2 {
			later.Add(int64(layOutAgain + time.Second))
		}
	}
	for _, obstacle := range obstacles {
		if err := os.RemoveAll(obstacle); err != nil {
			t.Fatal(err)
		}
	}
	later.Add(int64(layOutAgain + time.Second))
	d.readChunk(t, e, c, 0, 0, 3)
	logsBecome(t, e, "the next epoch's log is begun", goesTo(1))
	if state := e.Status().Cache.State; state != "normal" {
		t.Errorf("the cache is %s", state)
	}
}

// An offline sort, for another order and from a full log, frees all layouts. So does an ingest that changes nothing.
func TestSortGivesBack(t *testing.T) {
	d := makeDataset(t, 300, func(r *rand.Rand, _ int) int { return r.IntN(20_000) })
	in := ingest.Options{Job: samplerJob(3, 8, 1, false), Block: 128 << 10, Memory: 24 << 20}
	o, _ := ingested(t, d, in)
	in.Dirs = o.Dirs
	before := mapped()
	for i, seed := range []string{"8", "9", "9"} {
		in.Job.Seed = seed
		if _, report := ingested(t, d, in); report.Resorted != (i < 2) {
			t.Errorf("seed %s: resorted is %v", seed, report.Resorted)
		}
		if n := mapped() - before; n > 0 {
			t.Fatalf("%d bytes are left when the log was sorted for seed %s", n, seed)
		}
	}
}

// An engine whose assembly fails at a late step leaves nothing behind: no goroutine, no memory, and the cache can be opened again.
func TestAssembleThatFails(t *testing.T) {
	_, o := small(t, samplerJob(3, 16, 1, false))
	for range 3 {
		c, err := cache.Open(cache.Options{Dirs: o.Dirs, IO: o.IO, Memory: o.Memory, Logger: testLogger(t)})
		if err != nil {
			t.Fatal(err)
		}
		before, running := offheap.Mapped(), goleak.IgnoreCurrent()
		block := c.Format.Block
		c.Format.Block = 1 // so that no sample fits a segment of the Logfile that is found
		if e, err := newEngine(c, o.withDefaults()); err == nil {
			t.Error("it was put together")
			closeEngine(t, e)
		}
		if err := goleak.Find(running); err != nil {
			t.Errorf("goroutines are left: %v", err)
		}
		if n := offheap.Mapped() - before; n != 0 {
			t.Errorf("%d bytes are left", n)
		}
		c.Format.Block = block
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	closeEngine(t, open(t, o))
}

// failedLately changes nothing.
func TestFailedLatelyChangesNothing(t *testing.T) {
	e := &Engine{now: time.Now, cache: &cache.Cache{}, opts: Options{knobs: knobs{LateEpoch: time.Second}}}
	for _, since := range []time.Duration{0, layOutAgain / 2, 2 * layOutAgain} {
		e.broken, e.brokenAt = errors.New("no space"), time.Now().Add(-since)
		for range 2 {
			if failed := e.failedLately(); failed != (since <= layOutAgain) {
				t.Errorf("%v after a failure: %v", since, failed)
			}
			if e.broken == nil {
				t.Fatalf("%v after a failure it is forgotten", since)
			}
		}
	}
	e.retryLayout()
	if e.broken != nil || e.failedLately() {
		t.Error("a failure long ago is not forgotten by the next try")
	}
}
