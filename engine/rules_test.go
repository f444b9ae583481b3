package engine

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
	"lcache/sample"
)

func TestMain(m *testing.M) {
	if said := os.Getenv(childEnv); said != "" {
		os.Exit(child(said))
	}
	code := testenv.Run(m, testenv.Count{What: "bytes outside the heap", Now: mapped}, testenv.Count{What: "registered bytes", Now: blockio.Registered})
	removeShared()
	os.Exit(code)
}

// small is a job over data that is many times larger than the window, so that the rules have visible effects. Tests must not change its
// source.
func small(t *testing.T, j schedule.Job) (*dataset, Options) {
	t.Helper()
	givesBack(t)
	d := sharedDataset(t, "small", 1200, func(r *rand.Rand, _ int) int { return r.IntN(30_000) }, noisy)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20})
	return d, o
}

// inLayouts runs a test in each layout, because the promises are the same.
func inLayouts(t *testing.T, test func(t *testing.T, layout string)) {
	for _, layout := range []string{cache.LayoutLog, cache.LayoutStatic} {
		t.Run(layout, func(t *testing.T) { test(t, layout) })
	}
}

func (d *dataset) readOne(t testing.TB, e *Engine, c *deliver.Client, j schedule.Job, epoch, rank, start int) {
	t.Helper()
	got, err := d.readRank(e, c, epoch, rank, start)
	if err != nil {
		t.Fatal(err)
	}
	if want := d.want(t, j, epoch, rank)[start*j.BatchSize:]; !slices.Equal(got, want) {
		t.Fatalf("epoch %d rank %d from batch %d: order differs from the recipe's", epoch, rank, start)
	}
}

// noSource fails if anything was read from the source.
func noSource(t testing.TB, e *Engine) status.Job {
	t.Helper()
	status := e.Status()
	if s := status.Totals; s.SourceReads != 0 || s.Misses != 0 {
		t.Errorf("%d reads from the source, %d misses: want none", s.SourceReads, s.Misses)
	}
	s := status.Jobs[0]
	if s.CorruptSamples != 0 || s.ReorderDropped != 0 {
		t.Errorf("%d corrupt, %d dropped: want none", s.CorruptSamples, s.ReorderDropped)
	}
	return s
}

func TestRanksOneAfterTheOther(t *testing.T) { inLayouts(t, testRanksOneAfterTheOther) }

func testRanksOneAfterTheOther(t *testing.T, layout string) {
	j := samplerJob(3, 16, 2, false)
	d, o := small(t, j)
	o.Layout = layout
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	for epoch := range 3 {
		for rank := range 2 {
			d.readOne(t, e, c, j, epoch, rank, 0)
		}
	}
	noSource(t, e)
}

func TestRankNeverAttaches(t *testing.T) { inLayouts(t, testRankNeverAttaches) }

func testRankNeverAttaches(t *testing.T, layout string) {
	j := samplerJob(3, 16, 2, false)
	d, o := small(t, j)
	o.Layout = layout
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	for epoch := range 3 {
		d.readOne(t, e, c, j, epoch, 1, 0)
	}
	s := noSource(t, e)
	if int(s.RandomReads) > len(d.bytes)/2 {
		t.Errorf("%d samples read by index: the absent rank holds up the window", s.RandomReads)
	}
}

func TestClientHoldsManyBatches(t *testing.T) { inLayouts(t, testClientHoardsBatches) }

func testClientHoardsBatches(t *testing.T, layout string) {
	j := samplerJob(2, 16, 2, false)
	d, o := small(t, j)
	o.Layout = layout
	o.Timeout = 2 * time.Second
	e := open(t, o)
	defer closeEngine(t, e)
	hoarder, other := attach(t, e), attach(t, e)
	var hoard []*deliver.Batch
	var full error
	for b := 0; ; b++ {
		batch, err := hoarder.Chunk(context.Background(), 0, 0, b)
		if err != nil {
			full = err
			break
		}
		hoard = append(hoard, batch)
	}
	var timeout *deliver.TimeoutError
	if !errors.Is(full, io.EOF) && !errors.As(full, &timeout) {
		t.Fatalf("a client that releases nothing got %v, want a TimeoutError that names it, or the end", full)
	}
	for _, b := range hoard {
		if err := d.check(e, b); err != nil {
			t.Fatalf("a batch that is still held: %v", err)
		}
	}
	// When one client holds all of side memory, the others get an error that says so. When it releases, they continue.
	for _, b := range hoard {
		hoarder.Release(b.Lease)
	}
	d.readOne(t, e, other, j, 0, 1, 0)
	d.readOne(t, e, other, j, 1, 1, 0)
	noSource(t, e)
}

func TestGetAnythingMidEpoch(t *testing.T) { inLayouts(t, testGetAnythingMidEpoch) }

func testGetAnythingMidEpoch(t *testing.T, layout string) {
	j := samplerJob(2, 16, 1, false)
	d, o := small(t, j)
	o.Layout = layout
	e := open(t, o)
	defer closeEngine(t, e)
	c, other := attach(t, e), attach(t, e)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		r := rand.New(rand.NewPCG(3, 3))
		for {
			select {
			case <-stop:
				return
			default:
			}
			want := make([]sample.Index, 1+r.IntN(40))
			for i := range want {
				want[i] = r.Uint32N(uint32(len(d.bytes)))
			}
			b, err := other.Get(context.Background(), want, nil)
			if err != nil {
				t.Errorf("get: %v", err)
				return
			}
			if !slices.Equal(b.Indices, want) {
				t.Errorf("get answered with other indices")
			}
			if err := d.check(e, b); err != nil {
				t.Error(err)
			}
			other.Release(b.Lease)
		}
	}()
	for epoch := range 2 {
		d.readOne(t, e, c, j, epoch, 0, 0)
	}
	close(stop)
	wg.Wait()
	if s := noSource(t, e); s.Divergences != 0 {
		t.Errorf("%d divergences: requests without a position are none", s.Divergences)
	}
	if _, err := other.Get(context.Background(), []sample.Index{uint32(len(d.bytes))}, nil); err == nil {
		t.Error("an index beyond the dataset was answered")
	}
}

func TestBreakAndStart(t *testing.T) { inLayouts(t, testBreakAndStart) }

func testBreakAndStart(t *testing.T, layout string) {
	j := samplerJob(4, 16, 1, true)
	d, o := small(t, j)
	o.Layout = layout
	e := open(t, o)
	c := attach(t, e)
	// Leave the first epoch, begin the second in its middle, restart the server there, and continue.
	for b := range 20 {
		batch, err := c.Chunk(context.Background(), 0, 0, b)
		if err != nil {
			t.Fatal(err)
		}
		c.Release(batch.Lease)
	}
	d.readOne(t, e, c, j, 1, 0, 40)
	for b := range 10 {
		batch, err := c.Chunk(context.Background(), 2, 0, b)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.check(e, batch); err != nil {
			t.Fatal(err)
		}
		c.Release(batch.Lease)
	}
	noSource(t, e)
	closeEngine(t, e)
	e = open(t, o)
	defer closeEngine(t, e)
	c = attach(t, e)
	d.readOne(t, e, c, j, 2, 0, 10)
	d.readOne(t, e, c, j, 3, 0, 0)
	noSource(t, e)
}

func TestEpochsAnyOrder(t *testing.T) { inLayouts(t, testEpochsAnyOrder) }

func testEpochsAnyOrder(t *testing.T, layout string) {
	j := samplerJob(12, 16, 2, false)
	d, o := small(t, j)
	o.Layout = layout
	o.LateEpoch = 200 * time.Millisecond
	e := open(t, o)
	defer closeEngine(t, e)
	for _, epoch := range []int{0, 1, 4, 4, 5, 2, 3, 11, 0, 1} {
		var wg sync.WaitGroup
		for rank := range 2 {
			wg.Add(1)
			c := attach(t, e)
			go func() {
				defer wg.Done()
				got, err := d.readRank(e, c, epoch, rank, 0)
				if err != nil {
					t.Error(err)
				} else if !slices.Equal(got, d.want(t, j, epoch, rank)) {
					t.Errorf("epoch %d rank %d: order differs", epoch, rank)
				}
			}()
		}
		wg.Wait()
	}
	noSource(t, e)
	if c := attach(t, e); true {
		if _, err := c.Chunk(context.Background(), 12, 0, 0); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("an epoch that does not exist gave %v, want an error", err)
		}
		if _, err := c.Chunk(context.Background(), 0, 2, 0); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a rank that is not here gave %v, want an error", err)
		}
	}
}

// TestBackAndForward: a job goes back before the epoch of the log, and comes to the next epoch before that is laid out. The scan once kept
// the segments that it had loaded for the later epoch. So it could not continue to the requested one until the request lost its patience.
func TestBackAndForward(t *testing.T) {
	j := samplerJob(3, 16, 1, false)
	d, o := small(t, j)
	o.Patience = 10 * time.Second
	hold := make(chan struct{})
	disk := &ailing{fault: func(op *blockio.Op) (f blockio.Fault) {
		if op.Write {
			f.Hold = hold
		}
		return f
	}}
	o.IO.Inject = disk.inject
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	await := func(what string, is func(l logfiles) bool) {
		if !e.comesTo(is) {
			t.Errorf("waited in vain for %s", what)
		}
	}
	for epoch := range 2 {
		d.readOne(t, e, c, j, epoch, 0, 0)
	}
	await("some of epoch 2 to be read ahead", func(l logfiles) bool { return l.read == 2 && e.Status().Jobs[0].ReadyBatches > 0 })
	disk.mu.Lock()
	disk.from, disk.to = 0, forever
	disk.mu.Unlock()
	for batch := range e.cache.Schedule.Batches(0, 0)/4 + 1 { // nothing is appended before a quarter is delivered
		b, err := c.Chunk(context.Background(), 0, 0, batch)
		if err != nil {
			t.Fatal(err)
		}
		c.Release(b.Lease)
	}
	await("epoch 1 to be laid out again", func(l logfiles) bool { return l.target == 1 })
	before := e.Status().Jobs[0].RandomReads
	go func() {
		await("a request of epoch 1", func(logfiles) bool { return e.Status().Jobs[0].Ranks[0].Epoch == 1 })
		disk.end()
		close(hold)
	}()
	d.readOne(t, e, c, j, 1, 0, 0)
	if byIndex := int(e.Status().Jobs[0].RandomReads - before); byIndex > len(d.bytes)/4 {
		t.Errorf("%d of %d samples read by index, want hardly any", byIndex, len(d.bytes))
	}
	noSource(t, e)
}

// Without prefill the first epoch fills the log with the samples that were not read before.
func TestNoPrefillReadsSourceOnce(t *testing.T) {
	testenv.Long(t)
	d := makeDatasetOf(t, 1200, func(r *rand.Rand, _ int) int { return r.IntN(30_000) }, mostlyWords)
	for _, compress := range []string{"none", cache.LZ4} {
		t.Run(compress, func(t *testing.T) {
			inLayouts(t, func(t *testing.T, layout string) { d.noPrefillReadsSourceOnce(t, layout, compress) })
		})
	}
}

func (d *dataset) noPrefillReadsSourceOnce(t *testing.T, layout, compress string) {
	j := samplerJob(3, 16, 2, true)
	in := ingest.Options{Job: j, Block: 128 << 10, Memory: 24 << 20, NoPrefill: true, Compress: compress}
	if compress == cache.LZ4 {
		in.Memory = 60 << 20
	}
	o, rep := ingested(t, d, in)
	o.Layout = layout
	o.Patience, o.LogTimeout = 20*time.Second, 20*time.Second // a slow machine must not cause more reads of the source
	if rep.ReadBytes != 0 || rep.StoredBytes != 0 || (rep.Saves != nil) != (compress == cache.LZ4) {
		t.Errorf("ingest read %d bytes and stored %d, saves %v; want none", rep.ReadBytes, rep.StoredBytes, rep.Saves)
	}
	e := open(t, o)
	defer closeEngine(t, e)
	d.readEpochs(t, e, j, 0, 3)
	s := e.Status().Jobs[0]
	if s.SourceBytes != d.total {
		t.Errorf("%d bytes read from the source in 3 epochs, want each sample once: %d", s.SourceBytes, d.total)
	}
	if got := s.EpochsDone[2].Misses; got != 0 || s.ReorderDropped != 0 || s.CorruptSamples != 0 {
		t.Errorf("%d misses in the last epoch, %d dropped, %d corrupt: want none", got, s.ReorderDropped, s.CorruptSamples)
	}
	if compress == cache.LZ4 && s.LogReadBytes > 2*d.total*3/4 {
		t.Errorf("%d bytes read from the log in 2 epochs of %d that lz4 halves", s.LogReadBytes, d.total)
	}
}

// TestLateBlock delays the reads of some blocks until their samples were served from the source, then lets the old bytes arrive.
// Delivered bytes must not change.
func TestLateBlock(t *testing.T) {
	j := samplerJob(2, 16, 1, false)
	d, o := small(t, j)
	o.BlockTimeout, o.LogTimeout = 100*time.Millisecond, 100*time.Millisecond
	gate := make(chan struct{})
	held := 0
	var mu sync.Mutex
	o.IO.Inject = func(io *blockio.IO) {
		blockio.Inject(io, func(n int64, op *blockio.Op) blockio.Fault {
			mu.Lock()
			defer mu.Unlock()
			if !op.Write && len(op.Buf) >= 64<<10 && held < 3 {
				held++
				return blockio.Fault{Hold: gate}
			}
			return blockio.Fault{}
		})
	}
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	want := d.want(t, j, 0, 0)
	var kept []*deliver.Batch
	for b := 0; b*16 < len(want); b++ {
		batch, err := c.Chunk(context.Background(), 0, 0, b)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.check(e, batch); err != nil {
			t.Fatal(err)
		}
		if b < 10 {
			kept = append(kept, batch)
			continue
		}
		if b == 40 {
			close(gate) // the late bytes land now
		}
		if b > 40 {
			for _, k := range kept {
				if err := d.check(e, k); err != nil {
					t.Fatalf("a batch that was delivered before the late block came: %v", err)
				}
			}
		}
		c.Release(batch.Lease)
	}
	for _, k := range kept {
		c.Release(k.Lease)
	}
	s := e.Status().Jobs[0]
	if s.LateBlocks == 0 || s.SourceReads == 0 {
		t.Errorf("%d late blocks, %d reads from the source: want both above 0: the fault had no effect", s.LateBlocks, s.SourceReads)
	}
	d.readOne(t, e, c, j, 1, 0, 0)
}

// TestWorkersFinishOutOfOrder: an epoch is over when all its batches are delivered, in whatever order a rank's workers request them. A first batch
// that was requested after the second had been delivered once held the window at the second, for as long as requests have patience.
func TestWorkersFinishOutOfOrder(t *testing.T) { inLayouts(t, testWorkersFinishOutOfOrder) }

func testWorkersFinishOutOfOrder(t *testing.T, layout string) {
	j := samplerJob(2, 16, 1, false)
	d, o := small(t, j)
	o.Layout = layout
	o.Patience = 2 * time.Minute // on a starved machine all requests together wait half a minute for a processor
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	last := e.cache.Schedule.Batches(0, 0) - 1
	for b := range last + 1 {
		b ^= 1 // pairs, the later one first
		if b > last {
			b = last
		}
		batch, err := c.Chunk(context.Background(), 0, 0, b)
		if err != nil {
			t.Fatal(err)
		}
		c.Release(batch.Lease)
		if b == last && last%2 == 1 {
			if done := e.Status().Jobs[0].EpochsDone; len(done) != 0 {
				t.Errorf("the epoch counts as done while batch %d is still to come", last-1)
			}
		}
	}
	d.readOne(t, e, c, j, 1, 0, 0)
	s := e.Status().Jobs[0]
	if s.StallSeconds >= o.Patience.Seconds() {
		t.Errorf("requests waited %.0f s: somebody lost patience", s.StallSeconds)
	}
	done := s.EpochsDone
	if len(done) != 2 || done[0].Hits != int64(len(d.bytes)) {
		t.Errorf("epochs done: %+v, want two, each of %d samples", done, len(d.bytes))
	}
}

// TestReaderOfAnEpochKeepsItsWindow: a log that fits in memory is scanned faster than it is read. The scan once went on to the
// epochs after the next. The rank then counted as late, and its samples that had been read ahead were dropped and read again.
func TestReaderOfAnEpochKeepsItsWindow(t *testing.T) {
	testenv.Long(t)
	d := makeDataset(t, 1200, func(r *rand.Rand, _ int) int { return 1 + r.IntN(30_000) })
	inLayouts(t, d.readerOfAnEpochKeepsItsWindow)
}

func (d *dataset) readerOfAnEpochKeepsItsWindow(t *testing.T, layout string) {
	for _, world := range []int{1, 4} {
		j := samplerJob(6, 16, world, true)
		o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 32 << 20, Budget: int64(d.total)/10 + 6<<20})
		o.Layout = layout
		o.Patience = 5 * time.Second
		e := open(t, o)
		clients := make([]*deliver.Client, world)
		for r := range clients {
			clients[r] = attach(t, e)
		}
		ctx := context.Background()
		for epoch := range j.Epochs {
			for b := range e.cache.Schedule.Batches(epoch, 0) {
				for r, c := range clients {
					batch, err := c.Chunk(ctx, epoch, r, b)
					if err != nil {
						t.Fatal(err)
					}
					if err := d.check(e, batch); err != nil {
						t.Fatal(err)
					}
					c.Release(batch.Lease)
				}
				if b%20 == 5 { // during a long step the scan and the prefetcher, which logs nothing, load as much as they may
					time.Sleep(20 * time.Millisecond)
				}
			}
		}
		s := e.Status().Jobs[0]
		t.Logf("world %d: %d misses, %d reads from the source, %d samples from the log by index", world, s.Misses, s.SourceReads, s.RandomReads)
		if s.SourceReads != s.Misses {
			t.Errorf("world %d: %d misses took %d reads from the source", world, s.Misses, s.SourceReads)
		}
		if s.RandomReads != 0 {
			t.Errorf("world %d: %d samples were read by index", world, s.RandomReads)
		}
		closeEngine(t, e)
	}
}
