package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/logfile"
)

// twoDirs are directories for a cache over two devices.
func twoDirs(t testing.TB) []string {
	root := t.TempDir()
	return []string{filepath.Join(root, "a"), filepath.Join(root, "b")}
}

// TestOneOfTwoDevices makes one of two devices fail at its n-th operation, for several n, permanently or for a while, in a
// run over four epochs and a restart. Every byte is right, nothing fails or hangs, and the device's samples come
// from the source. When the device works again, it gets blocks again.
func TestOneOfTwoDevices(t *testing.T) {
	step := testenv.Pick[int64](40, 120) // every n takes minutes: LCACHE_FAULTS=all
	d := makeDataset(t, 90, func(r *rand.Rand, i int) int {
		if i%30 == 0 {
			return 300 << 10
		}
		return r.IntN(60_000)
	})
	eio := func(*blockio.Op) blockio.Fault { return blockio.Fault{Err: syscall.EIO} }
	readOnly := func(op *blockio.Op) blockio.Fault {
		if op.Write && op.Buf != nil {
			return blockio.Fault{Err: syscall.EROFS}
		}
		return blockio.Fault{}
	}
	for _, c := range []struct {
		name  string
		ops   int64 // in trouble, from the n-th on
		fault func(*blockio.Op) blockio.Fault
		hangs bool
	}{
		{"fails for good", forever, eio, false},
		{"turns read-only", forever, readOnly, false},
		{"fails for a while", 20, eio, false},
		{"hangs for a while", forever, nil, true},
	} {
		for _, which := range []int{0, 1} {
			t.Run(c.name+"/"+[]string{"first", "second"}[which], func(t *testing.T) {
				t.Parallel()
				everyNth(t, step, func(n int64) bool {
					return d.withAiling(t, &ailing{from: n, to: n + c.ops, fault: c.fault}, which, c.hangs)
				})
			})
		}
	}
}

// withAiling is one run. It reports whether the failure happened.
func (d *dataset) withAiling(t *testing.T, a *ailing, which int, hangs bool) bool {
	t.Helper()
	release := func() {}
	if hangs {
		hold := make(chan struct{})
		release = sync.OnceFunc(func() { close(hold) })
		a.fault = func(*blockio.Op) blockio.Fault { return blockio.Fault{Hold: hold} }
	}
	defer release()
	dirs := twoDirs(t)
	defer func() { os.RemoveAll(filepath.Dir(dirs[0])) }()
	a.dir = dirs[which]
	o := Options{knobs: knobs{BlockTimeout: 200 * time.Millisecond, LogTimeout: 200 * time.Millisecond}}
	o.IO.Deadline, o.IO.ProbeAfter = 100*time.Millisecond, 5*time.Millisecond
	return d.survives(t, a, ingest.Options{Dirs: dirs, Memory: 28 << 20}, o, func() {
		if hangs { // nothing of a device that still hangs could be given back
			a.end()
			release()
		}
	})
}

// A quarantined device is not read, its samples become misses, and the status shows it.
func TestDeviceIsQuarantined(t *testing.T) {
	d := makeDataset(t, 1200, func(r *rand.Rand, _ int) int { return 4096 + r.IntN(50_000) }) // more than memory
	j := samplerJob(5, 16, 1, false)
	dirs := twoDirs(t)
	o, _ := ingested(t, d, ingest.Options{Job: j, Dirs: dirs, Block: 128 << 10, Memory: 28 << 20})
	a := &ailing{dir: dirs[1], fault: func(*blockio.Op) blockio.Fault { return blockio.Fault{Err: syscall.EIO} }, from: forever, to: forever}
	o.IO.Inject = a.inject
	o.IO.Deadline, o.IO.ProbeAfter = time.Hour, time.Hour
	o.Logger = nil
	e := open(t, o)
	defer e.Close(context.Background()) // its error is that the arena could not be made durable
	c := attach(t, e)
	d.readOne(t, e, c, j, 0, 0, 0)
	s := e.Status()
	if s.Cache.State != "normal" || s.Jobs[0].Misses != 0 || len(s.Cache.Devices) != 2 || s.Cache.Devices[1].Blocks == 0 || s.Cache.Devices[0].Blocks == 0 {
		t.Fatalf("%+v, %d misses: want two devices that are well and take blocks", s.Cache, s.Jobs[0].Misses)
	}
	a.mu.Lock()
	a.from, a.to = 0, forever
	a.mu.Unlock()
	var atAside int64 // operations of the device until it was quarantined
	_, err := d.readPaced(e, c, 1, 0, 0, func(int) {
		if atAside == 0 && e.Status().Cache.Devices[1].State == logfile.DeviceAside {
			atAside = a.ops.Load()
			a.end() // it would answer, if it were asked
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	d.readOne(t, e, c, j, 2, 0, 0)
	s = e.Status()
	if got := s.Cache.Devices[1]; got.State != logfile.DeviceAside || got.Errors < 3 || !strings.Contains(got.LastError, "input/output error") {
		t.Errorf("%+v", got)
	}
	if want := "degraded: " + dirs[1] + " is aside"; s.Cache.State != want || s.Cache.Devices[0].State != logfile.DeviceNormal {
		t.Errorf("%q, want %q; %+v", s.Cache.State, want, s.Cache.Devices[0])
	}
	if s.Jobs[0].Misses == 0 || s.Jobs[0].CorruptSamples != 0 {
		t.Errorf("%d misses, %d corrupt", s.Jobs[0].Misses, s.Jobs[0].CorruptSamples)
	}
	d.readOne(t, e, c, j, 3, 0, 0) // operations in flight when the device was quarantined have ended by then
	asked := a.ops.Load()
	d.readOne(t, e, c, j, 4, 0, 0)
	if n := a.ops.Load() - asked; n != 0 || atAside == 0 {
		t.Errorf("the device was asked %d times while it is aside, and %d times before that", n, atAside)
	}
}

// With all devices quarantined everything comes from the source, until they work again.
func TestAllDevicesQuarantined(t *testing.T) {
	d := makeDataset(t, 200, func(r *rand.Rand, _ int) int { return 4096 + r.IntN(20_000) })
	j := samplerJob(6, 16, 1, false)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20})
	a := &ailing{dir: o.Dirs[0], fault: func(*blockio.Op) blockio.Fault { return blockio.Fault{Err: syscall.EIO} }, to: forever}
	o.IO.Inject = a.inject
	o.IO.Deadline, o.IO.ProbeAfter = time.Second, 5*time.Millisecond
	o.Logger = nil
	e := open(t, o)
	defer e.Close(context.Background()) // its error is that the arena could not be made durable
	c := attach(t, e)
	d.readOne(t, e, c, j, 0, 0, 0)
	d.readOne(t, e, c, j, 1, 0, 0)
	s := e.Status()
	if s.Cache.State != "aside" || s.Jobs[0].Misses == 0 || a.faulted.Load() == 0 {
		t.Errorf("state %q, %d misses", s.Cache.State, s.Jobs[0].Misses)
	}
	a.end()
	waitFor(t, "the devices are taken back", func() bool { return e.Status().Cache.State == "normal" })
	d.readEpochs(t, e, j, 2, 6)
	if before := s.Jobs[0].Hits; e.Status().Jobs[0].Hits == before {
		t.Error("no hit after the device was taken back")
	}
}

// A cache is served without its second directory: samples there are read from the source, and stored again as far as the first directory
// has room. Without its first directory the cache does not open, and the error says so.
func TestServesWithoutADirectory(t *testing.T) {
	d := makeDataset(t, 300, func(r *rand.Rand, _ int) int { return 4096 + r.IntN(30_000) })
	j := samplerJob(4, 16, 1, false)
	for _, lose := range []struct {
		name string
		do   func(dir string) error
	}{
		{"gone", os.RemoveAll},
		{"empty", func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) }},
	} {
		t.Run(lose.name, func(t *testing.T) {
			dirs := twoDirs(t)
			o, _ := ingested(t, d, ingest.Options{Job: j, Dirs: dirs, Block: 128 << 10, Memory: 28 << 20})
			o.Logger = nil
			if err := lose.do(dirs[1]); err != nil {
				t.Fatal(err)
			}
			e := open(t, o)
			d.readEpochs(t, e, j, 0, 2)
			s := e.Status()
			js := s.Jobs[0]
			if js.Hits == 0 || js.Misses == 0 || js.CorruptSamples+js.StaleSamples != 0 || s.Cache.State != "degraded: "+dirs[1]+" is aside" {
				t.Errorf("%d hits, %d misses, %d corrupt, %d stale, %q", js.Hits, js.Misses, js.CorruptSamples, js.StaleSamples, s.Cache.State)
			}
			closeEngine(t, e)
			if list, err := os.ReadDir(dirs[1]); err == nil && len(list) > 0 {
				t.Errorf("%v was made in the lost directory", list)
			}
			if err := os.RemoveAll(dirs[0]); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), dirs[0]) || !strings.Contains(err.Error(), "lcache ingest") {
				t.Errorf("without the first directory: %v", err)
			}
		})
	}
}

func TestCacheState(t *testing.T) {
	dev := func(states ...string) (list []status.Device) {
		for i, s := range states {
			list = append(list, status.Device{Dir: "/" + string(rune('a'+i)), State: s})
		}
		return list
	}
	for _, c := range []struct {
		devices []status.Device
		other   error
		want    string
	}{
		{dev("normal"), nil, "normal"},
		{dev("aside"), nil, "aside"},
		{dev("aside", "aside"), errors.New("x"), "aside"},
		{dev("read-only"), nil, "degraded: /a is read-only"},
		{dev("normal", "aside", "read-only"), nil, "degraded: /b is aside, /c is read-only"},
		{dev("normal"), errors.New("no room"), "degraded: no room"},
	} {
		if got := cacheState(c.devices, c.other); got != c.want {
			t.Errorf("%+v, %v: %q, want %q", c.devices, c.other, got, c.want)
		}
	}
}

// The cache's other files may be truncated under a running server. Samples are served from the log or the source, and no
// signal ends the process.
func TestMetadataCutUnderTheServer(t *testing.T) {
	d := makeDataset(t, 300, func(r *rand.Rand, _ int) int { return 1 + r.IntN(20_000) })
	j := samplerJob(3, 16, 1, false)
	for _, name := range []string{cache.SumsName, cache.ManifestName} {
		o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20})
		o.Logger = nil
		e := open(t, o)
		if err := os.Truncate(filepath.Join(o.Dirs[0], name), 4096); err != nil {
			t.Fatal(err)
		}
		d.readEpochs(t, e, j, 0, 3)
		s := e.Status()
		if name == cache.SumsName && (s.Jobs[0].Misses == 0 || !strings.Contains(s.Cache.State, filepath.Join(o.Dirs[0], name))) {
			t.Errorf("%d misses, %q: want the sums' samples from the source, and the file named", s.Jobs[0].Misses, s.Cache.State)
		}
		if name == cache.ManifestName && (s.Jobs[0].Misses != 0 || s.Cache.State != "normal") {
			t.Errorf("%d misses, %q: want everything from the log", s.Jobs[0].Misses, s.Cache.State)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		if err := e.Close(ctx); errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
	}
}

// Close does not wait forever for a device that accepts writes and never ends them.
func TestCloseWithAHungDevice(t *testing.T) {
	d := makeDataset(t, 200, func(r *rand.Rand, _ int) int { return 4096 + r.IntN(30_000) })
	j := samplerJob(4, 16, 1, false)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20})
	hold := make(chan struct{})
	a := &ailing{dir: o.Dirs[0], to: forever, fault: func(op *blockio.Op) blockio.Fault {
		if op.Write {
			return blockio.Fault{Hold: hold}
		}
		return blockio.Fault{}
	}}
	o.IO.Inject = a.inject
	o.IO.CloseTimeout, o.IO.Deadline = 50*time.Millisecond, 200*time.Millisecond
	o.Logger = nil
	e := open(t, o)
	d.readOne(t, e, attach(t, e), j, 0, 0, 0)
	if a.faulted.Load() == 0 {
		t.Fatal("nothing was written on: this tests nothing")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := e.Close(ctx); err == nil || !strings.Contains(err.Error(), "in flight") {
		t.Errorf("got %v, want that transfers are in flight", err)
	}
	close(hold)
	if err := e.cache.IO.Close(); err != nil { // joins the remaining operations
		t.Error(err)
	}
	takeBack(e)
	if err := closeLearnt(e); err != nil {
		t.Error(err)
	}
}
