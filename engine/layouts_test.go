package engine

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"lcache/internal/disk/offheap"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/metaindex"
)

// A layout whose Logfile can't be begun is given back: it is made again later.
func TestLayoutThatFails(t *testing.T) {
	_, o := small(t, samplerJob(3, 16, 1, false))
	e := open(t, o)
	defer closeEngine(t, e)
	e.builders.Wait() // of the next epoch's layout; nothing is begun before the first request
	before := offheap.Mapped()
	for range 3 {
		order, err := e.cache.Schedule.Order(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		layout, err := e.cache.NewEpochLayout(order, nil)
		if err != nil {
			t.Fatal(err)
		}
		layout.Starts = make([]uint64, metaindex.MaxSegments+2)
		e.mu.Lock()
		e.layouts[2] = &laterLayout{epoch: 2, order: order, layout: layout}
		e.mu.Unlock()
		e.beginTarget(2)
	}
	if n := offheap.Mapped() - before; n != 0 {
		t.Errorf("%d bytes of layouts are left", n)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken == nil || e.tgt != nil {
		t.Errorf("the layout was begun: %v", e.broken)
	}
}

// Sorting offline, for another order and out of a full log, gives back all layouts; so does an ingest that changes nothing.
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

// An engine that can't be put together, late, leaves nothing behind: no goroutine, no memory, and the cache can be opened again.
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

// Whether laying out failed lately is a question: asking it changes nothing.
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
