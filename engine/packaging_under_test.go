package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/store/ingest"
	"lcache/sample"
)

// TestDiskInTroubleUnderPackages: the disk hangs, or the cache's directory is removed, while a job reads and fills packages. Each batch arrives by its deadline with the right bytes, from the source if necessary.
// Packing continues when the disk works again.
func TestDiskInTroubleUnderPackages(t *testing.T) {
	for _, c := range []struct {
		name string
		dirs int
		in   func(op *blockio.Op) bool // what hangs; nil: nothing, the directory is removed
	}{
		{"reads hang", 1, func(op *blockio.Op) bool { return !op.Write }},
		{"writes hang", 1, func(op *blockio.Op) bool { return op.Write }},
		{"all hangs in one of two directories", 2, func(*blockio.Op) bool { return true }},
		{"the directory is removed", 1, nil},
		{"two directories are removed", 2, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dirs := twoDirs(t)[:c.dirs]
			d, o, text := lowBed(t, 600, ingest.Options{Dirs: dirs})
			o.BlockTimeout, o.LogTimeout = 200*time.Millisecond, 200*time.Millisecond
			o.IO.Deadline, o.IO.ProbeAfter = 100*time.Millisecond, 5*time.Millisecond
			gate := make(chan struct{})
			release := sync.OnceFunc(func() { close(gate) })
			defer release()
			var on atomic.Bool
			var held atomic.Int64
			last := filepath.Join(dirs[c.dirs-1], "arena")
			o.IO.Inject = func(io *blockio.IO) {
				blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
					if !on.Load() || c.in == nil || op.Buf == nil || op.File.Name() != last || !c.in(op) {
						return blockio.Fault{}
					}
					held.Add(1)
					return blockio.Fault{Hold: gate}
				})
			}
			e := open(t, o)
			l := losing{d: d, e: e, world: 1}
			l.ask(t, 0, text)
			client := attach(t, e)
			began, slowest := time.Now(), time.Duration(0)
			timed := func(int) { began, slowest = time.Now(), max(slowest, time.Since(began)) }
			for epoch := range 3 {
				l.observed(t, client, epoch, func(int) {})
			}
			if _, packed, _, _ := countPlaces(e, func(sample.Index) bool { return false }); packed < 100 {
				t.Fatalf("%d samples are in packages", packed)
			}
			before := e.Status().Jobs[0]
			on.Store(true)
			if c.in == nil {
				for _, dir := range dirs {
					if err := os.RemoveAll(dir); err != nil {
						t.Fatal(err)
					}
				}
			}
			timed(0)
			slowest = 0
			for epoch := 3; epoch < 5; epoch++ {
				l.observed(t, client, epoch, timed)
			}
			in := e.Status().Jobs[0]
			on.Store(false)
			release()
			l.observed(t, client, 5, func(int) {})
			after := e.Status().Jobs[0]
			t.Logf("%d operations held; the slowest batch took %v; %d reads from the source, %d after that", held.Load(), slowest, in.SourceReads-before.SourceReads, after.SourceReads-in.SourceReads)
			if slowest > 5*time.Second || c.in != nil && held.Load() == 0 {
				t.Errorf("%d operations hung, the slowest batch took %v", held.Load(), slowest)
			}
			switch n := in.SourceReads - before.SourceReads; {
			case c.in == nil && n > 0:
				t.Errorf("%d reads from the source, and the arena can be read", n)
			case (c.name == "reads hang" || c.dirs == 2) && c.in != nil && n == 0:
				t.Error("no read from the source, and some samples could not be had from the disk")
			}
			if after.Divergences != 0 || after.CorruptSamples != 0 {
				t.Errorf("%d divergences, %d corrupt samples", after.Divergences, after.CorruptSamples)
			}
			client.Disconnected()
			closeEngine(t, e)
			if _, err := os.Stat(dirs[0]); c.in == nil && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory was made again behind its owner's back: %v", err)
			}
		})
	}
}

// TestPackagesWithoutADirectory: a cache with packages in two directories is served without the second one. Its samples are read from the source, and packed again as far as there is room.
func TestPackagesWithoutADirectory(t *testing.T) {
	dirs := twoDirs(t)
	d, o, text := lowBed(t, 600, ingest.Options{Dirs: dirs})
	var order []sample.Index
	for restart := range 2 {
		e := open(t, o)
		l := losing{d: d, e: e, world: 1}
		l.ask(t, 0, text)
		c := attach(t, e)
		if restart == 1 {
			if got := l.observed(t, c, 3, func(int) {}); !slices.Equal(got, order) {
				t.Error("epoch 3 has another order without the second directory")
			}
			l.observed(t, c, 4, func(int) {})
		} else {
			for epoch := range 4 {
				order = l.observed(t, c, epoch, func(int) {})
			}
		}
		_, packed, absent, _ := countPlaces(e, func(sample.Index) bool { return false })
		s := e.Status()
		if lost := restart == 1; packed < []int{100, 20}[restart] ||
			lost != (s.Jobs[0].SourceReads > 0) || lost != (s.Cache.State != "normal") || s.Jobs[0].Divergences != 0 || !lost && absent > 0 {
			t.Errorf("server %d: %d samples are in packages, %d nowhere, %d were read from the source, %d divergences, %q", restart, packed, absent, s.Jobs[0].SourceReads, s.Jobs[0].Divergences, s.Cache.State)
		}
		c.Disconnected()
		closeEngine(t, e)
		if err := os.RemoveAll(dirs[1]); err != nil {
			t.Fatal(err)
		}
		o.Logger = nil
	}
}
