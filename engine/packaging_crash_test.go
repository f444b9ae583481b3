package engine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"lcache/internal/disk/durable/durabletest"
	"lcache/internal/serve/deliver"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// powerCuts copies a cache as power cuts would leave it, at random steps of a server's life.
type powerCuts struct {
	t    *testing.T
	r    *rand.Rand
	disk *durabletest.Disk
	dir  string
	next int // steps until the next cut
	cuts []powerCut

	reading sync.Mutex // guards the field that follows; held where the training must not go on
	epoch   int        // that is read
}

type powerCut struct {
	image durabletest.Image
	epoch int
	keep  float64
}

// The disk calls step, with its lock held, before each change.
func (p *powerCuts) step() {
	if p.next--; p.next < 0 {
		p.next = p.r.IntN(25)
		p.cut()
	}
}

// cut makes a random state that a power cut could leave now. Files other than the log's are replaced as a whole before anything depends on them, so they are unchanged.
func (p *powerCuts) cut() {
	p.reading.Lock()
	defer p.reading.Unlock()
	c := powerCut{epoch: p.epoch, keep: []float64{0, 0.3, 0.5, 0.9, 1}[p.r.IntN(5)]}
	c.image = p.disk.Crash(p.r, c.keep)
	for _, entry := range list(p.t, p.dir) {
		if name := entry.Name(); name != "arena" && !strings.HasPrefix(name, "journal") && !strings.HasSuffix(name, ".new") {
			path := filepath.Join(p.dir, name)
			if data, err := os.ReadFile(path); err == nil { // else it was removed just now
				c.image[path] = data
			}
		}
	}
	p.cuts = append(p.cuts, c)
}

// TestPowerCutsWithPackages cuts the power at random steps while a job fills packages and Logfiles are emptied. Writes that no sync covers are present, lost or torn. A server that starts over these files gives the
// right bytes in the same order, continues to pack, and stays within its budget. LCACHE_CRASH_CLONES is the number of starts (8). LCACHE_SEED replays one run, except for the timing of the I/O.
func TestPowerCutsWithPackages(t *testing.T) {
	testenv.Long(t)
	most := 8
	if n, err := strconv.Atoi(os.Getenv("LCACHE_CRASH_CLONES")); err == nil {
		most = n
	}
	first, replay := drawSeed(t)
	started, packed, source := 0, 0, int64(0)
	for seed := first; started < most && !t.Failed() && (seed == first || !replay); seed++ {
		t.Run(fmt.Sprintf("LCACHE_SEED=%d", seed), func(t *testing.T) {
			d, o, text := lowBed(t, 500, ingest.Options{})
			o.Logger = nil
			p := &powerCuts{t: t, r: rand.New(rand.NewPCG(seed, 5)), disk: durabletest.New(), dir: o.Dirs[0], next: 40}
			p.disk.Load(t, p.dir)
			p.disk.Step = p.step
			orders := p.live(o, d, text)
			slices.Reverse(p.cuts) // the one after the stop comes first
			p.r.Shuffle(len(p.cuts)-1, func(i, j int) { p.cuts[i+1], p.cuts[j+1] = p.cuts[j+1], p.cuts[i+1] })
			for i, c := range p.cuts[:min(len(p.cuts), 8, most-started)] {
				root := filepath.Join(t.TempDir(), fmt.Sprint("cut-", i))
				c.image.Write(t, filepath.Dir(p.dir), root)
				dir := filepath.Join(root, filepath.Base(p.dir))
				restarted(t, o, d, text, map[string]int{dir: c.epoch}, func(_ string, epoch int, l losing, client *deliver.Client) {
					_, there, _, _ := countPlaces(l.e, func(sample.Index) bool { return false })
					packed, source = packed+there, source+l.packsOn(t, dir, client, epoch, orders[epoch])
				})
				if started++; t.Failed() {
					t.Logf("cut %d, in epoch %d, pages kept with %v", i, c.epoch, c.keep)
				}
				os.RemoveAll(root)
			}
		})
	}
	t.Logf("%d servers started: %d samples were found in packages, %d read from the source", started, packed, source)
	if packed == 0 || source == 0 && started > 30 {
		t.Error("the cuts were too kind, or too cruel, to show anything")
	}
}

// live trains some epochs, and returns the order of each.
func (p *powerCuts) live(o Options, d *dataset, text string) (orders [][]sample.Index) {
	o.IO.Trace, o.IO.Inject = p.disk.Trace, p.disk.Watch
	e := open(p.t, o)
	l := losing{d: d, e: e, world: 1}
	l.ask(p.t, 0, text)
	c := attach(p.t, e)
	for epoch := range 8 {
		orders = append(orders, l.observed(p.t, c, epoch, func(batch int) {
			p.reading.Lock()
			defer p.reading.Unlock()
			if batch == 1 {
				p.epoch = epoch
			}
		}))
	}
	c.Disconnected()
	closeEngine(p.t, e)
	p.disk.Locked(p.cut)
	return orders
}
