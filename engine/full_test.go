package engine

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"lcache/internal/plan"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

// TestFullCacheReadsNoSource runs one job after the other over a complete cache. Each has its own seed or that of the previous job. Each ends early, between
// two epochs, or soon after its last one, followed by a clean stop. No sample comes from the source. LCACHE_SEED replays a run.
func TestFullCacheReadsNoSource(t *testing.T) { inLayouts(t, testFullCacheReadsNoSource) }

func testFullCacheReadsNoSource(t *testing.T, layout string) {
	cases := []struct {
		name           string
		samples, least int
		most, world    int
		prefill        bool
		dirs           int
		compress       string
	}{
		{"small samples", 1200, 1, 30_000, 1, true, 1, ""},
		{"not prefilled", 1200, 1, 30_000, 1, false, 1, ""},
		{"large samples", 160, 1, 300_000, 1, true, 1, ""},
		{"ranks and devices", 1200, 1, 30_000, 3, true, 2, ""},
		{"compressed", 1200, 1, 30_000, 1, true, 1, "lz4"},
		{"dropped last batches", 1195, 1, 30_000, 2, true, 1, ""},
	}
	for _, c := range testenv.Some(cases, 2) {
		t.Run(c.name, func(t *testing.T) {
			seed, _ := drawSeed(t)
			r := rand.New(rand.NewPCG(seed, 3))
			t.Logf("LCACHE_SEED=%d", seed)
			content := noisy
			if c.compress != "" {
				content = mostlyWords
			}
			d := makeDatasetOf(t, c.samples, func(r *rand.Rand, _ int) int { return c.least + r.IntN(c.most) }, content)
			in := ingest.Options{Job: schedule.Job{World: c.world}, Block: 128 << 10, Memory: 24 << 20, NoPrefill: !c.prefill, Compress: c.compress}
			if c.compress != "" {
				in.Memory = 40 << 20
			}
			if c.dirs > 1 {
				in.Dirs = twoDirs(t)
			}
			o, _ := ingested(t, d, in)
			o.Layout, o.Patience, o.BlockTimeout, o.LogTimeout = layout, 20*time.Second, 20*time.Second, 20*time.Second // second reads on a slow machine must not count here
			if !c.prefill {
				d.runOf(t, o, 1, c.world, 2, 0, false)
			}
			order := uint64(1)
			for run := range 10 {
				if run == 0 || r.IntN(4) > 0 {
					order = uint64(10 + run)
				}
				epochs, part := r.IntN(3), r.Float64()
				if r.IntN(3) == 0 {
					part = 0
				}
				t.Run(fmt.Sprintf("run %d, order %d, %d epochs and %.2f of one", run, order, epochs, part), func(t *testing.T) {
					d.runOf(t, o, order, c.world, epochs, part, true)
				})
			}
		})
	}
}

// runOf opens a cache for one run, reads some epochs and a part of another one in the orders of a seed, and closes it. The orders of two more epochs are known, as a loader pushes them ahead.
func (d *dataset) runOf(t *testing.T, o Options, seed uint64, world, epochs int, part float64, full bool) {
	t.Helper()
	e := open(t, o)
	defer closeEngine(t, e)
	drawn := func(epoch int) (byRank [][][]sample.Index) {
		for _, batches := range d.drawn(100*seed+uint64(epoch), world) {
			if last := len(batches) - 1; world == 2 && len(batches[last]) < len(batches[0]) {
				batches = batches[:last] // left out, other samples in each epoch
			}
			byRank = append(byRank, batches)
		}
		return byRank
	}
	for epoch := range epochs + 3 {
		for rank, batches := range drawn(epoch) {
			push(t, e, epoch, rank, batches)
		}
	}
	for epoch := range epochs + 1 {
		var wg sync.WaitGroup
		for rank, batches := range drawn(epoch) {
			if epoch == epochs {
				batches = batches[:int(part*float64(len(batches)))]
			}
			wg.Go(func() { d.readAsked(t, e, epoch, rank, batches) })
		}
		wg.Wait()
	}
	if s := e.Status().Totals; full && (s.SourceReads != 0 || s.Misses != 0) {
		t.Errorf("%d samples came from the source, %d misses: want none", s.SourceReads, s.Misses)
	}
	if !e.cache.IsComplete(0, 1) {
		t.Error("the log does not hold every sample")
	}
}

// TestPackagesOfALogfileNeedNoMemory: a cache opens with the --memory that was enough before its second Logfile became packages.
func TestPackagesOfALogfileNeedNoMemory(t *testing.T) {
	d := makeDataset(t, 1200, func(r *rand.Rand, _ int) int { return 1 + r.IntN(30_000) })
	o, _ := ingested(t, d, ingest.Options{Block: 128 << 10, Memory: 24 << 20})
	d.leaveTwoLogfiles(t, o)
	least := func() string {
		c, err := cache.Open(cache.Options{Dirs: o.Dirs, IO: o.IO, Memory: 1 << 20, Logger: o.Logger})
		if err == nil {
			t.Fatalf("1 MiB is enough: %v", c.Close())
		}
		return err.Error() // it names the number
	}
	before := least()
	newerUnordered(t, o)
	if after := least(); after != before {
		t.Errorf("with packages: %s; before: %s", after, before)
	}
	if report, err := cache.Verify(t.Context(), cache.VerifyOptions{Dirs: o.Dirs, IO: o.IO}); err != nil || report.Good != report.Samples {
		t.Errorf("verify: %+v, %v", report, err)
	}
	d.runOf(t, o, 2, 1, 0, 1, true)
}

// leaveTwoLogfiles reads one and a half epochs, and leaves two Logfiles: one that was read, and the next epoch's.
func (d *dataset) leaveTwoLogfiles(t *testing.T, o Options) {
	t.Helper()
	o.Begin = func(plan.Beginning) plan.Choice { return plan.InPlace } // the next epoch is begun at once
	e := open(t, o)
	for epoch := range 4 {
		push(t, e, epoch, 0, d.drawn(uint64(epoch), 1)[0])
	}
	d.readAsked(t, e, 0, 0, d.drawn(0, 1)[0])
	half := d.drawn(1, 1)[0]
	d.readAsked(t, e, 1, 0, half[:len(half)/2])
	waitFor(t, "the log of the next epoch is being filled", func() bool { return len(e.cache.Store.HoldingByAge()) == 2 })
	closeEngine(t, e)
}

// newerUnordered makes packages of the newer of two Logfiles.
func newerUnordered(t *testing.T, o Options) {
	t.Helper()
	c, err := cache.Open(cache.Options{Dirs: o.Dirs, IO: o.IO, Memory: o.Memory, Logger: o.Logger})
	if err != nil {
		t.Fatal(err)
	}
	logs := c.Store.HoldingByAge()
	if len(logs) != 2 {
		t.Fatalf("%d Logfiles hold samples, want 2: the run has not begun the next epoch", len(logs))
	}
	if ok, err := c.Unorder(t.Context(), logs[1].Num()); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestPackagesOfALogfileAreFilledOn: another Logfile became packages, and a job whose L-samples may be substituted for each other also packs the L-samples of the current Logfile. H-samples may stay in the Logfile: they
// come from memory. An L-sample is packed when it is read, and in most epochs others are substituted for it.
func TestPackagesOfALogfileAreFilledOn(t *testing.T) {
	d, o, text := lowBed(t, 2000, ingest.Options{})
	o.Layout = cache.LayoutLog
	d.leaveTwoLogfiles(t, o)
	newerUnordered(t, o)
	e := open(t, o)
	defer func() { closeEngine(t, e) }()
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, text)
	c := attach(t, e)
	for epoch := 0; ; epoch++ {
		l.steady(t, c, epoch)
		logs, packed, absent, loose := countPlaces(e, isHigh(e))
		t.Logf("epoch %d: %d samples in Logfiles, %d in packages, %d nowhere, %d loose", epoch, logs, packed, absent, loose)
		if loose == 0 && absent == 0 {
			break
		}
		if epoch == 20 {
			t.Fatal("not all L-samples are in packages")
		}
	}
	noSource(t, e)
	c.Disconnected()
}
