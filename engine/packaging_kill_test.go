package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"lcache/internal/disk/durable/durabletest"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
)

// kills copies the files of a cache at random steps, as a kill of its server would leave them.
type kills struct {
	t    *testing.T
	r    *rand.Rand
	disk *durabletest.Disk
	dirs []string
	e    *Engine // whose samples' places are noted
	next int     // steps until the next kill
	all  []kill

	reading sync.Mutex // guards the field that follows; held where the training must not go on
	epoch   int        // that is read
}

type kill struct {
	image durabletest.Image
	epoch int
	lay   []metaindex.Loc // each sample's place when the server was killed
}

// The disk calls step, with its lock held, before each change.
func (k *kills) step() {
	if k.next--; k.next >= 0 || k.e == nil {
		return
	}
	k.reading.Lock()
	defer k.reading.Unlock()
	k.next = k.r.IntN(40)
	one := kill{image: k.disk.Kill(k.r), epoch: k.epoch}
	for i := range k.e.cache.Manifest.Len() {
		one.lay = append(one.lay, k.e.cache.Locations.Get(sample.Index(i)))
	}
	for _, entry := range list(k.t, k.dirs[0]) { // files that the log does not write
		name := entry.Name()
		if name != "arena" && !strings.HasPrefix(name, "journal") && !strings.HasSuffix(name, ".new") {
			path := filepath.Join(k.dirs[0], name)
			if data, err := os.ReadFile(path); err == nil { // else it was removed just now
				one.image[path] = data
			}
		}
	}
	if k.all = append(k.all, one); len(k.all) > 12 { // any of them
		i := k.r.IntN(len(k.all))
		k.all = append(k.all[:i], k.all[i+1:]...)
	}
}

// TestKilledWhilePacking kills a server at random steps while a job fills packages, and Logfiles and packages are emptied and begun again. A check of the remaining files finds no damage: each sample is right, or in no log. A sample
// whose newest copy is in a package is found in packages, whatever older records say, or in the last block of a segment, which is written again as it grows. The same holds for a server that starts over these files and is killed in turn, and so on. LCACHE_SEED replays a chain of kills, except for the timing of the I/O.
func TestKilledWhilePacking(t *testing.T) {
	testenv.Long(t)
	seed, _ := drawSeed(t)
	for _, dirs := range []int{1, 2} {
		t.Run(fmt.Sprintf("directories=%d,LCACHE_SEED=%d", dirs, seed), func(t *testing.T) {
			d, o, text := lowBed(t, 500, ingest.Options{Dirs: twoDirs(t)[:dirs]})
			o.Logger = nil
			checked, packed, epoch := 0, 0, 0
			for life := range 6 {
				k := &kills{t: t, r: rand.New(rand.NewPCG(seed, uint64(life))), disk: durabletest.New(), dirs: o.Dirs, epoch: epoch, next: 20}
				k.live(o, d, text)
				for i, one := range k.all {
					dirs := one.write(t, o.Dirs, filepath.Join(t.TempDir(), fmt.Sprint("kill-", i)))
					packed += one.check(t, o, dirs)
					if checked++; t.Failed() {
						t.Fatalf("life %d, kill %d of %d", life, i, len(k.all))
					}
					if i < len(k.all)-1 {
						os.RemoveAll(filepath.Dir(dirs[0]))
					} else {
						o.Dirs, epoch = dirs, one.epoch
					}
				}
			}
			if packed == 0 || checked == 0 {
				t.Errorf("%d kills, %d samples lay in packages: nothing was put to the test", checked, packed)
			}
			t.Logf("%d kills, %d samples lay in packages", checked, packed)
		})
	}
}

// live trains some epochs.
func (k *kills) live(o Options, d *dataset, text string) {
	k.disk.Load(k.t, o.Dirs...)
	k.disk.Step = k.step
	o.IO.Trace, o.IO.Inject = k.disk.Trace, k.disk.Watch
	e, first := open(k.t, o), k.epoch
	k.disk.Locked(func() { k.e = e })
	l := losing{d: d, e: e, world: 1}
	l.ask(k.t, 0, text)
	c := attach(k.t, e)
	for epoch := k.epoch; epoch < first+3; epoch++ {
		l.observed(k.t, c, epoch, func(batch int) {
			k.reading.Lock()
			defer k.reading.Unlock()
			if batch == 1 {
				k.epoch = epoch
			}
		})
	}
	c.Disconnected()
	k.disk.Locked(func() { k.e = nil })
	closeEngine(k.t, e)
}

// write writes the remaining files into directories below root.
func (one kill) write(t *testing.T, old []string, root string) (dirs []string) {
	one.image.Write(t, filepath.Dir(old[0]), root)
	for _, dir := range old {
		dirs = append(dirs, filepath.Join(root, filepath.Base(dir)))
	}
	return dirs
}

// check compares each sample with its checksum, and its location with that before the kill. It returns the number of samples in packages.
func (one kill) check(t *testing.T, o Options, dirs []string) (packed int) {
	t.Helper()
	report, err := cache.Verify(context.Background(), cache.VerifyOptions{Dirs: dirs, IO: cache.IO{Engine: o.IO.Engine, Direct: o.IO.Direct}})
	if err != nil {
		t.Fatal(err)
	}
	if report.Corrupt+report.Unreadable > 0 {
		t.Errorf("%d samples of %d in the log are corrupt, %d unreadable", report.Corrupt, report.InLog, report.Unreadable)
	}
	c, err := cache.OpenReadOnly(dirs, o.Logger)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	p, older := c.Store.Packages(), 0
	if p == nil {
		return 0
	}
	for number := range int(p.Log().Header().Segments) {
		p.Log().Arrivals(number, func(_ int, index sample.Index, off uint64) bool {
			packed++
			at := c.Locations.At(logfile.PackagesNum, number, off)
			num, seg, now, ok := c.Locations.Split(c.Locations.Get(index))
			isTail := func() bool {
				l := c.Logfile(num)
				return int(now/uint64(l.Header().Block)) == l.Blocks(seg)-1
			}
			if one.lay[index] == at && (!ok || num != logfile.PackagesNum && !isTail()) {
				older++
			}
			return true
		})
	}
	if older > 0 {
		t.Errorf("of %d samples in packages %d are looked for where they lay before", packed, older)
	}
	return packed
}
