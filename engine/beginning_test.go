package engine

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/plan"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/prefetch"
	"lcache/internal/serve/staging"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/sample"
)

// A gate blocks a disk's writes of blocks, from a given number on, until it is opened. So a sort stays unfinished.
type gate struct {
	mu   sync.Mutex // guards the fields that follow
	shut chan struct{}
	pass int // number of writes to let through
	held int
}

// newGate makes a gate that lets some writes through and then blocks. The disk behind it is not quarantined.
func newGate(t *testing.T, o *Options, pass int) *gate {
	t.Helper()
	g := &gate{shut: make(chan struct{}), pass: pass}
	t.Cleanup(g.open)
	o.IO.Inject, o.IO.Deadline, o.BlockTimeout, o.LogTimeout = g.inject, time.Hour, time.Hour, time.Hour
	return g
}

func (g *gate) inject(io *blockio.IO) {
	blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.pass--; !op.Write || op.Buf == nil {
			g.pass++
		}
		if g.shut == nil || g.pass >= 0 || !op.Write || op.Buf == nil {
			return blockio.Fault{}
		}
		g.held++
		return blockio.Fault{Hold: g.shut}
	})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *gate) holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held > 0
}

// secondRun is a cache without a recipe, larger than the window, after a job has read two epochs of it. A fifth of the samples are empty, tiny or large.
func secondRun(t *testing.T, in ingest.Options) (*dataset, Options) {
	t.Helper()
	name, content := "second run", noisy
	if in.Compress != "" {
		name, content = "second run, of words", mostlyWords
	}
	d := sharedDataset(t, name, 2000, func(r *rand.Rand, i int) int {
		switch i % 20 {
		case 3:
			return 0
		case 9:
			return 1 + r.IntN(8)
		case 15:
			return 100_000 + r.IntN(100_000)
		}
		return r.IntN(20_000)
	}, content)
	in.Block = 128 << 10
	if in.Memory == 0 {
		in.Memory = 24 << 20
	}
	if in.Budget < 0 { // a percentage
		in.Budget = -in.Budget*d.total/100 + 6<<20
	}
	if in.Dirs != nil {
		return d, firstRun(t, d, in)
	}
	return d, sharedCache(t, in, func(in ingest.Options) Options { return firstRun(t, d, in) })
}

// firstRun makes the cache of a second run.
func firstRun(t *testing.T, d *dataset, in ingest.Options) Options {
	t.Helper()
	o, _ := ingested(t, d, in)
	o.Layout, o.Patience = cache.LayoutLog, 20*time.Second // a slow machine must not cause reads by index here
	world := max(1, in.Job.World)
	if world > 1 {
		o.Patience = 200 * time.Millisecond // after which a rank that does not come holds up no other
	}
	e := open(t, o)
	for rank := range world {
		d.push(t, e, rank, 0, 2, shuffled(1, len(d.bytes), 2, world, rank))
	}
	for epoch := range 2 {
		for rank := range world {
			d.readOrder(t, e, attach(t, e), epoch, rank, 0, shuffled(1, len(d.bytes), 2, world, rank)[epoch], nil)
		}
	}
	closeEngine(t, e)
	return o
}

// readOrder reads an epoch from a batch on, in a pushed order. It calls turn before each batch.
func (d *dataset) readOrder(t *testing.T, e *Engine, c *deliver.Client, epoch, rank, start int, order [][]sample.Index, turn func(batch int)) {
	t.Helper()
	if turn == nil {
		turn = func(int) {}
	}
	got, err := d.readPaced(e, c, epoch, rank, start, func(batch int) {
		if batch == start+1 {
			e.looksAtBeginning(t)
		}
		turn(batch)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, slices.Concat(order[start:]...)) {
		t.Fatalf("epoch %d rank %d: order differs from the one pushed", epoch, rank)
	}
}

// readSome reads batches [from, to) of a pushed order.
func (d *dataset) readSome(t *testing.T, e *Engine, c *deliver.Client, epoch, rank, from, to int, order [][]sample.Index) {
	t.Helper()
	for batch := from; batch < to; batch++ {
		if batch == from+1 {
			e.looksAtBeginning(t)
		}
		b, err := c.Chunk(t.Context(), epoch, rank, batch)
		if err != nil {
			t.Fatalf("epoch %d rank %d batch %d: %v", epoch, rank, batch, err)
		}
		if !slices.Equal(b.Indices, order[batch]) {
			t.Fatalf("epoch %d rank %d batch %d: other samples than the order has", epoch, rank, batch)
		}
		if err := d.check(e, b); err != nil {
			t.Fatal(err)
		}
		c.Release(b.Lease)
	}
}

// looksAtBeginning waits until the mover has looked at the log that the epoch begins over. Tests that determine the choice need this: the mover counts batches from there on, and
// a test reads only a few.
func (e *Engine) looksAtBeginning(t *testing.T) {
	if e.opts.Begin == nil {
		return
	}
	t.Helper()
	becomes(t, e, "the mover looks at the beginning", func() bool {
		if e.cur == nil || e.tgt != nil || e.relayout.inPlace || e.isSparse() {
			return true
		}
		v := e.view()
		return v.inWindow() || e.beginning.isOf(e.readEpoch, e.cur.ID)
	})
}

// becomes waits for a condition that the mover does not log. It calls is with e.mu held.
func becomes(t *testing.T, e *Engine, what string, is func() bool) {
	t.Helper()
	logsBecome(t, e, what, func(logfiles) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return is()
	})
}

// chosen returns the options with a fixed choice about a log in another order.
func (o Options) chosen(choice plan.Choice) Options {
	o.Begin = func(plan.Beginning) plan.Choice { return choice }
	return o
}

// byPlace returns how many bytes the prefetcher has read with random reads.
func (e *Engine) byPlace() int64 {
	place, _ := e.prefetcher.Work(prefetch.AllJobs)
	return place.Bytes
}

// TestBeginsAndSorts: a second run with another seed is served with random reads until the log is sorted into its first epoch. The remainder of that epoch,
// and the next one, come from the window.
func TestBeginsAndSorts(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	e := open(t, o.chosen(plan.Sort))
	defer closeEngine(t, e)
	orders := shuffled(2, len(d.bytes), 3, 1, 0)
	d.push(t, e, 0, 0, 3, orders)
	c := attach(t, e)
	var ahead int64
	d.readOrder(t, e, c, 0, 0, 0, orders[0], func(batch int) {
		switch batch {
		case fewBatches:
			if got := e.Status().Jobs[0].LogWriteBytes; got != 0 {
				t.Errorf("%d bytes were written before the decision", got)
			}
		case 2 * fewBatches:
			logsBecome(t, e, "the log is sorted into the epoch that is read", func(l logfiles) bool { return l.read == 0 && l.inWindow > 0 })
			ahead = e.byPlace()
		}
	})
	if ahead == 0 || ahead > d.total*3/4 {
		t.Errorf("%d of %d bytes were read with random reads before the window took over, want at most 3/4 and more than 0", ahead, d.total)
	}
	if more := e.byPlace() - ahead; more > d.total/20 {
		t.Errorf("%d bytes were read with random reads after the sort, want none: the window takes over", more)
	}
	ahead = e.byPlace()
	s := noSource(t, e)
	if s.SortBytes < d.total*9/10 || s.SortBytes > d.total*11/10 {
		t.Errorf("the sort counts %d bytes, want the %d that the log holds", s.SortBytes, d.total)
	}
	d.readOrder(t, e, c, 1, 0, 0, orders[1], nil)
	if more := e.byPlace() - ahead; more > d.total/20 {
		t.Errorf("%d bytes of the next epoch were read with random reads, want the window to serve it", more)
	}
	if s = noSource(t, e); s.RandomReads != 0 || s.SortBytes > d.total*11/10 || s.Divergences != 0 {
		t.Errorf("%d samples read by index, %d bytes sorted, %d divergences", s.RandomReads, s.SortBytes, s.Divergences)
	}
}

// TestBeginsWithRandomReads: if a sort does not pay, the first epoch is read with random reads to its end, and the next epoch's log is laid out meanwhile.
func TestBeginsWithRandomReads(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	e := open(t, o.chosen(plan.InPlace))
	defer closeEngine(t, e)
	orders := shuffled(2, len(d.bytes), 3, 1, 0)
	d.push(t, e, 0, 0, 3, orders)
	c := attach(t, e)
	d.readOrder(t, e, c, 0, 0, 0, orders[0], func(batch int) {
		if batch == len(orders[0])-1 {
			logsBecome(t, e, "the next epoch's log is ready", func(l logfiles) bool { return l.read == 1 || l.target == 1 && l.scanned })
		}
	})
	first := e.byPlace()
	if first < d.total*3/4 {
		t.Errorf("%d of %d bytes were read with random reads, want at least 3/4: all except the segments in slots", first, d.total)
	}
	d.readOrder(t, e, c, 1, 0, 0, orders[1], nil)
	if more := e.byPlace() - first; more > d.total/20 {
		t.Errorf("%d bytes of the next epoch were read with random reads, want the window to serve it", more)
	}
	if s := noSource(t, e); s.RandomReads != 0 || s.SortBytes != 0 || s.LogWriteBytes < d.total*9/10 {
		t.Errorf("%d samples read by index, %d bytes sorted, %d written", s.RandomReads, s.SortBytes, s.LogWriteBytes)
	}
}

// TestBeginsAndWaits: nothing is written before the decision. If an epoch ends before it, the log is laid out for the next one.
func TestBeginsAndWaits(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	e := open(t, o.chosen(plan.Wait))
	defer closeEngine(t, e)
	orders := shuffled(2, len(d.bytes), 2, 1, 0)
	d.push(t, e, 0, 0, 2, orders)
	c := attach(t, e)
	last := len(orders[0]) - 1
	d.readOrder(t, e, c, 0, 0, 0, orders[0], func(batch int) {
		if s := noSource(t, e); batch == last && (s.RandomReads != 0 || s.LogWriteBytes != 0 || e.byPlace() < d.total*8/10) {
			t.Errorf("%d samples read by index, %d bytes written, %d read with random reads, want 0, 0 and the epoch", s.RandomReads, s.LogWriteBytes, e.byPlace())
		}
	})
	logsBecome(t, e, "the next epoch's log is begun", goesTo(1))
	d.readOrder(t, e, c, 1, 0, 0, orders[1], nil)
	noSource(t, e)
}

// TestLookWritesNothing: by the real rule, reading three batches writes nothing, and neither does a consumer that is slower than the disk in the first quarter of its epoch. After that
// the next epoch is laid out.
func TestLookWritesNothing(t *testing.T) {
	d, o := secondRun(t, ingest.Options{})
	orders := shuffled(2, len(d.bytes), 2, 1, 0)
	e := open(t, o)
	d.push(t, e, 0, 0, 2, orders)
	d.readSome(t, e, attach(t, e), 0, 0, 0, 3, orders[0])
	if s := noSource(t, e); s.LogWriteBytes != 0 {
		t.Errorf("a look at three batches wrote %d bytes", s.LogWriteBytes)
	}
	closeEngine(t, e)

	e = open(t, o)
	defer closeEngine(t, e)
	d.push(t, e, 0, 0, 2, orders)
	quarter := len(orders[0]) / 4
	late := false
	d.readOrder(t, e, attach(t, e), 0, 0, 0, orders[0], func(batch int) {
		if s := e.Status().Jobs[0]; batch < quarter && s.LogWriteBytes > 0 {
			late = late || s.StallSeconds >= plan.WaitedEnough.Seconds()
			if !late {
				t.Errorf("%d bytes were written before batch %d, and the consumer has waited %.3f s", s.LogWriteBytes, batch, s.StallSeconds)
			}
		}
		if batch > 0 && batch < len(orders[0])-20 { // the consumer takes longer than the disk
			logsBecome(t, e, "a batch is ready", func(l logfiles) bool { return l.inWindow > 0 || e.Status().Jobs[0].ReadyBatches > 0 })
		}
		if batch == quarter+fewBatches {
			logsBecome(t, e, "the next epoch is laid out", func(l logfiles) bool { return l.hasTarget || l.read >= 0 })
		}
	})
	if s := noSource(t, e); s.LogWriteBytes == 0 || s.SortBytes != 0 && !late {
		t.Errorf("%d bytes written, %d of them for a sort, want the next epoch's log and no sort", s.LogWriteBytes, s.SortBytes)
	}
}

// TestSequentialRate: the speed of sequential reads is also measured if the log's first blocks were moved before the last stop, and if it is almost read to its end.
func TestSequentialRate(t *testing.T) {
	_, o := secondRun(t, ingest.Options{})
	e := open(t, o)
	defer closeEngine(t, e)
	l := e.cur.Log
	for seg := range int(l.Header().Segments) {
		if err := l.FreeBlocks(seg, l.Blocks(seg)/2); err != nil {
			t.Fatal(err)
		}
	}
	slot, ok := e.staging.Acquire(staging.Segment{Log: ^uint64(0)})
	if !ok {
		t.Fatal("no slot is free")
	}
	defer e.staging.Ready(slot)
	began := time.Now()
	if rate := e.readBlocks(l, slot); rate == 0 {
		t.Error("no rate is measured where half of the blocks are gone")
	}
	if took := time.Since(began); took < measureFor {
		t.Errorf("it was measured for %v, want %v", took, measureFor)
	}
}

// TestMeasuresWithAllSlotsTaken: the segments of an earlier owner are in all slots. They are evicted, so that sequential reads can be measured and
// a sort may begin.
func TestMeasuresWithAllSlotsTaken(t *testing.T) {
	_, o := secondRun(t, ingest.Options{})
	e := open(t, o)
	defer closeEngine(t, e)
	for n := uint64(0); ; n++ {
		slot, ok := e.staging.Acquire(staging.Segment{Log: 1<<40 + n})
		if !ok {
			break
		}
		e.staging.Ready(slot)
	}
	e.measureSequential()
	becomes(t, e, "the rate is measured", func() bool {
		if e.beginning.sequentialRate == 0 && !e.beginning.measuring && !e.beginning.lacksSlot {
			e.beginning.measuring = true
			e.builders.Go(e.measureSequential)
		}
		return e.beginning.sequentialRate > 0
	})
}
