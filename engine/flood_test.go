package engine

import (
	"context"
	"math"
	"runtime"
	"testing"

	"lcache/internal/disk/offheap"
	"lcache/internal/plan"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/testenv"
	"lcache/sample"
)

// keptBytes returns the process's memory after garbage collection.
func keptBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) + offheap.Mapped()
}

// keepsLittle runs a request n times, each time with other contents. It fails as soon as the requests have left more than limit bytes behind.
func keepsLittle(t *testing.T, n int, limit int64, request func(i int)) {
	t.Helper()
	request(0) // memory that is allocated once
	before := keptBytes()
	for i := range n {
		request(i)
		if i&(i-1) == 0 || i == n-1 {
			if kept := keptBytes() - before; kept > limit {
				t.Fatalf("%d requests left %d bytes behind, want at most %d", i+1, kept, limit)
			}
		}
	}
}

// floodLimit is far more than a test's garbage changes the measurement, and far less than each flood tested here once left behind.
const floodLimit = 256 << 10

// A position is only a hint: if the schedule does not have it, nothing is kept for it. A valid one still counts.
func TestHintsKeepNothing(t *testing.T) {
	testenv.Long(t)
	const n = 500
	positions := map[string]func(i int) deliver.Position{
		"batches without end":           func(i int) deliver.Position { return position(0, 0, i<<20) },
		"the last batch there could be": func(i int) deliver.Position { return position(i, 0, math.MaxUint32-1) },
		"epochs going up":               func(i int) deliver.Position { return position(i, 0, 0) },
		"epochs going down":             func(i int) deliver.Position { return position(math.MaxUint32-1-i, 0, 1) },
		"epochs far apart":              func(i int) deliver.Position { return position(i*2147483%math.MaxUint32, 0, 2) },
		"ranks without end":             func(i int) deliver.Position { return position(0, i, 0) },
		"everything":                    func(i int) deliver.Position { return position(math.MaxUint32-i, 1<<31-i, 1<<31+i) },
	}
	epochs := samplerJob(3, 16, 2, false)
	endless := epochs
	endless.Epochs = 0
	for _, tt := range testenv.Some([]struct {
		name, layout string
		job          schedule.Job
	}{
		{"three epochs", cache.LayoutLog, epochs},
		{"no known end", cache.LayoutLog, endless},
		{"no known end, static", cache.LayoutStatic, endless},
		{"no recipe", cache.LayoutLog, schedule.Job{World: 2}},
	}, 2) {
		t.Run(tt.name, func(t *testing.T) {
			job := tt.job
			d, o := small(t, job)
			o.Layout = tt.layout
			e := open(t, o.chosen(plan.InPlace)) // a sort that begins meanwhile takes write buffers
			defer closeEngine(t, e)
			c := attach(t, e)
			defer c.Disconnected()
			read := func(at deliver.Position, indices []sample.Index) {
				b, err := c.Get(context.Background(), indices, &at)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.check(e, b); err != nil {
					t.Fatal(err)
				}
				c.Release(b.Lease)
			}
			if job.Recipe == "" {
				for rank, batches := range d.drawn(1, 2) {
					push(t, e, 0, rank, batches)
				}
			}
			first, err := e.samplesAt(context.Background(), position(0, 0, 0))
			if err != nil {
				t.Fatal(err)
			}
			read(position(0, 0, 0), first.Indices)
			for name, at := range positions {
				t.Run(name, func(t *testing.T) {
					keepsLittle(t, n, floodLimit, func(i int) { read(at(i), []sample.Index{sample.Index(i % len(d.bytes))}) })
				})
			}
			// The rank that reads by the schedule is where it was, and goes on.
			for b := 1; b < 4; b++ {
				want, err := e.samplesAt(context.Background(), position(0, 0, b))
				if err != nil {
					t.Fatal(err)
				}
				read(position(0, 0, b), want.Indices)
			}
			if s := e.Status().Jobs[0]; s.Epoch != 0 || s.Ranks[0].Position != 4 || len(s.Ranks) != 2 {
				t.Errorf("epoch %d, ranks %+v: want rank 0 at batch 4 of epoch 0", s.Epoch, s.Ranks)
			}
		})
	}
}
