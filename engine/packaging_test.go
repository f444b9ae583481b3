package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/logfile"
	"lcache/sample"
)

// lowText has the options of a job whose L-samples may be substituted for each other.
const lowText = `{"batch_size":64,"cache":%d,"seed":5,"method":"impact","substitute":"low","params":{"s_share":0,"warmup":1}}`

// lowBed is a cache of samples of about 13 KB in blocks of 128 KiB, and a job over it with memory for a fifth.
func lowBed(t *testing.T, n int, in ingest.Options) (*dataset, Options, string) {
	t.Helper()
	d := photos(t, n)
	o, text := lowBedOf(t, d, in)
	return d, o, text
}

func lowBedOf(t *testing.T, d *dataset, in ingest.Options) (Options, string) {
	t.Helper()
	givesBack(t)
	if in.Block == 0 {
		in.Block = 128 << 10
	}
	in.Job, in.Memory = schedule.Job{World: 1}, 64<<20
	o, _ := ingested(t, d, in)
	cache := d.total / 5
	o.Patience, o.Memory = 20*time.Second, 112<<20+cache
	return o, fmt.Sprintf(lowText, cache)
}

// countPlaces counts the samples in Logfiles, in packages and in neither. loose counts the L-samples outside packages that are at least half full of L-samples.
func countPlaces(e *Engine, high func(sample.Index) bool) (logs, packed, absent, loose int) {
	c := e.cache
	low := map[int]int64{} // bytes of L-samples, by package
	each := func(do func(index sample.Index, num, pkg int, ok bool)) {
		for i := range c.Manifest.Len() {
			num, pkg, _, ok := c.Locations.Split(c.Locations.Get(sample.Index(i)))
			do(sample.Index(i), num, pkg, ok)
		}
	}
	each(func(index sample.Index, num, pkg int, ok bool) {
		if ok && num == logfile.PackagesNum && !high(index) {
			low[pkg] += c.Padded(index)
		}
	})
	each(func(index sample.Index, num, pkg int, ok bool) {
		switch {
		case !ok:
			absent++
			return
		case num == logfile.PackagesNum:
			packed++
			l := c.Logfile(num)
			if !high(index) && 2*low[pkg] < int64(l.Blocks(pkg)-l.Gone(pkg))*int64(c.Format.Block) {
				loose++
			}
			return
		}
		logs++
		if !high(index) {
			loose++
		}
	})
	return logs, packed, absent, loose
}

// isHigh reports whether a sample is an H-sample of the job that owns the log.
func isHigh(e *Engine) func(sample.Index) bool {
	return func(i sample.Index) bool { high, _ := e.packer().IsHigh(i); return high }
}

// TestPackagesFill: after some drawn epochs the L-samples are in dense packages. Meanwhile no Logfile is begun, nothing is read from the source, and no more is written than delivered. In
// the end almost nothing is written.
func TestPackagesFill(t *testing.T) {
	inLayouts(t, func(t *testing.T, layout string) {
		d, o, text := lowBed(t, 3000, ingest.Options{})
		o.Layout = layout
		e := open(t, o)
		defer func() { closeEngine(t, e) }()
		l := losing{d: d, e: e, world: 1}
		l.ask(t, 0, text)
		c := attach(t, e)
		for epoch, filled := 0, false; !filled; epoch++ { // how much is packed in an epoch depends on how fast the machine is
			before := e.Status().Jobs[0]
			samples, bytes := l.steady(t, c, epoch)
			now := e.Status().Jobs[0]
			written := float64(now.LogWriteBytes-before.LogWriteBytes) / float64(bytes)
			logs, packed, absent, loose := countPlaces(e, isHigh(e))
			t.Logf("epoch %d: %d samples, written %.2f, read %.2f of each byte delivered, %.0f bytes a read; %d samples in Logfiles, %d in packages, %d nowhere, %d loose; %d of %d places free", epoch, samples,
				written, float64(now.LogReadBytes-before.LogReadBytes)/float64(bytes), float64(now.LogReadBytes-before.LogReadBytes)/float64(max(1, now.LogReadOps-before.LogReadOps)), logs, packed, absent, loose, e.cache.Store.Free(), e.cache.Format.Places)
			filled = epoch >= 4 && loose <= 300 && written <= 0.2
			switch {
			case epoch >= 2 && written > 1.1:
				t.Errorf("epoch %d: %.2f bytes are written for each byte delivered", epoch, written)
			case epoch == 20:
				t.Fatalf("after %d epochs %d L-samples are in no package, and %.2f bytes are written for each byte delivered", epoch, loose, written)
			case absent > 0:
				t.Errorf("epoch %d: %d samples are nowhere", epoch, absent)
			}
		}
		noSource(t, e)
		if s := e.Status(); s.Jobs[0].Divergences != 0 {
			t.Errorf("%d divergences", s.Jobs[0].Divergences)
		}
		c.Disconnected()
	})
}

// TestPackagesAreReadWhole: if memory holds several units at once, packages are read in large pieces, each once an epoch.
func TestPackagesAreReadWhole(t *testing.T) {
	d, o, text := lowBed(t, 6000, ingest.Options{Block: 256 << 10})
	o.Side = 40 << 20
	e := open(t, o)
	defer func() { closeEngine(t, e) }()
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, text)
	c := attach(t, e)
	for epoch, packed := 0, 0; packed < 3; epoch++ {
		before := e.Status().Jobs[0]
		_, bytes := l.steady(t, c, epoch)
		now := e.Status().Jobs[0]
		read, ops := now.LogReadBytes-before.LogReadBytes, now.LogReadOps-before.LogReadOps
		t.Logf("epoch %d: %.2f read of each byte delivered, %d bytes a read, %d in Logfiles", epoch, float64(read)/float64(bytes), read/max(ops, 1), e.cur.Log.Held())
		if e.cur.Log.Held() == 0 {
			packed++
		}
		if packed == 3 && (read/max(ops, 1) < 80<<10 || float64(read) > 1.1*float64(bytes)) {
			t.Errorf("%d reads of %d bytes for %d that were delivered", ops, read, bytes)
		}
		if epoch == 60 {
			t.Fatal("not all samples are in packages")
		}
	}
	noSource(t, e)
	c.Disconnected()
}

// TestPackagesGoBack: when a job that reads all samples in order owns the log again, samples in packages move to Logfiles, and the packages' journal is removed. Nothing is read from the
// source, in the same server and after a restart, compressed and not.
func TestPackagesGoBack(t *testing.T) {
	for k, compress := range []string{"", cache.LZ4} {
		for _, restart := range testenv.One([]bool{false, true}, k) {
			t.Run(fmt.Sprint(compress, restart), func(t *testing.T) {
				d, o, text := lowBed(t, 1500, ingest.Options{Compress: compress})
				e := open(t, o)
				token, err := e.Join("drawn")
				if err != nil {
					t.Fatal(err)
				}
				l := losing{d: d, e: e, world: 1, job: token}
				l.ask(t, 0, text)
				c := attach(t, e)
				for epoch := range 6 {
					l.steady(t, c, epoch)
				}
				_, packed, absent, _ := countPlaces(e, func(sample.Index) bool { return false })
				if packed < 600 || absent > 0 {
					t.Fatalf("%d samples are in packages, %d nowhere", packed, absent)
				}
				e.Leave(token)
				c.Disconnected()
				if restart {
					closeEngine(t, e)
					e = open(t, o)
				}
				c = attach(t, e)
				r := rand.New(rand.NewPCG(1, 2))
				for epoch := 0; ; epoch++ {
					for ahead := range 2 {
						order := make([]sample.Index, len(d.bytes))
						for i, k := range rand.New(rand.NewPCG(3, uint64(epoch+ahead))).Perm(len(order)) {
							order[i] = sample.Index(k)
						}
						if err := e.Push(schedule.Pusher{Pid: os.Getpid()}, epoch+ahead, 0, slices.Collect(slices.Chunk(order, 50))); err != nil {
							t.Fatal(err)
						}
					}
					if _, err := d.readPaced(e, c, epoch, 0, 0, func(int) { time.Sleep(time.Duration(r.IntN(4)) * time.Millisecond) /* the model computes */ }); err != nil {
						t.Fatal(err)
					}
					logs, packed, absent, _ := countPlaces(e, func(sample.Index) bool { return false })
					t.Logf("epoch %d: %d samples in Logfiles, %d in packages, %d nowhere", epoch, logs, packed, absent)
					if _, err := os.Stat(filepath.Join(e.cache.Dirs[0], "journal-packages")); packed == 0 && errors.Is(err, os.ErrNotExist) {
						break
					}
					if epoch == 20 {
						t.Fatalf("%d samples are in packages still", packed)
					}
				}
				noSource(t, e)
				c.Disconnected()
				closeEngine(t, e)
			})
		}
	}
}

// TestPackagesOfAnotherManifest: an ingest of a changed source empties the packages of the previous manifest, and reads only new samples. After that a job puts the L-samples into new packages.
func TestPackagesOfAnotherManifest(t *testing.T) {
	inLayouts(t, func(t *testing.T, layout string) {
		in := ingest.Options{Layout: layout}
		d := makeDatasetOf(t, 1500, sizeOfPhoto, noisy) // its own: it changes
		o, text := lowBedOf(t, d, in)
		train := func() (packed int) {
			e := open(t, o)
			l := losing{d: d, e: e, world: 1}
			l.ask(t, 0, text)
			c := attach(t, e)
			for epoch := range 6 {
				l.observed(t, c, epoch, func(int) {})
			}
			_, packed, absent, _ := countPlaces(e, func(sample.Index) bool { return false })
			if absent > 0 {
				t.Errorf("%d samples are nowhere", absent)
			}
			noSource(t, e)
			c.Disconnected()
			closeEngine(t, e)
			return packed
		}
		if packed := train(); packed < 600 {
			t.Fatalf("%d samples are in packages", packed)
		}
		d.write(t, "class-0/new.bin", pseudo(2, 13_000))
		d.reload(t)
		in.Source, in.Dirs, in.IO, in.Job, in.Block, in.Memory = d.dir, o.Dirs, testIO(), schedule.Job{World: 1}, 128<<10, 64<<20
		rep, err := ingest.Run(context.Background(), in)
		if err != nil {
			t.Fatal(err)
		}
		if rep.ReadSamples > 30 {
			t.Errorf("%d samples were read from the source, want the new one and few others", rep.ReadSamples)
		}
		if _, err := os.Stat(filepath.Join(o.Dirs[0], "journal-packages")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the packages of the manifest before are there: %v", err)
		}
		if packed := train(); packed < 600 {
			t.Errorf("after the ingest %d samples are in packages", packed)
		}
	})
}
