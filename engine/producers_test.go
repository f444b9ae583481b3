package engine

import (
	"context"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"lcache/chunker"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/ingest"
	"lcache/sample"
	"lcache/source"
)

// TestScanAvailability: the availability of samples in segments that are loaded, loading, next, and behind, and of one that
// the log does not keep.
func TestScanAvailability(t *testing.T) {
	const unkept = 4
	layout := &chunker.EpochLayout{Segment: []uint32{0, 1, 2, 3, chunker.None}, Starts: []uint64{0, 1, 2, 3, 4}, Used: 4}
	segs := []segState{segDone, segLoading, segAbsent, segAbsent}
	keeps := func(index sample.Index) bool { return index != unkept }
	const gone, load, queue = deliver.Gone, deliver.Loading, deliver.Queued
	for _, c := range []struct {
		story string
		view  scanView
		want  [5]deliver.Availability // loaded, loading, next, later, unkept
	}{
		{"the epoch that is read, a rank in time", scanView{layout: layout, segs: segs, inPlace: true, mayQueue: true, mayWait: true, first: 2}, [5]deliver.Availability{gone, load, queue, queue, gone}},
		{"a rank that was late, or gave up waiting", scanView{layout: layout, segs: segs, inPlace: true, mayWait: true, first: 2}, [5]deliver.Availability{gone, load, gone, gone, gone}},
		{"a rank that went back behind the window", scanView{layout: layout, segs: segs, inPlace: true, mayQueue: true, mayWait: true, first: 3}, [5]deliver.Availability{gone, load, gone, queue, gone}},
		{"nothing more is to be loaded for delivery", scanView{layout: layout, segs: segs, inPlace: true, mayQueue: true, mayWait: true, first: -1}, [5]deliver.Availability{gone, load, gone, gone, gone}},
		{"the next epoch, at the boundary", scanView{layout: layout, segs: segs, soon: true, mayWait: true, first: -1}, [5]deliver.Availability{queue, load, queue, queue, gone}},
		{"the next epoch, after it waited in vain", scanView{layout: layout, segs: segs, soon: true, first: -1}, [5]deliver.Availability{gone, load, gone, gone, gone}},
		{"an epoch far away", scanView{layout: layout, segs: segs, mayWait: true, first: -1}, [5]deliver.Availability{gone, load, gone, gone, gone}},
		{"a log in an unknown order, the epoch is about to be laid out", scanView{soon: true, mayWait: true, first: -1}, [5]deliver.Availability{queue, queue, queue, queue, gone}},
		{"a log in an unknown order", scanView{mayWait: true, first: -1}, [5]deliver.Availability{gone, gone, gone, gone, gone}},
	} {
		c.view.keeps = keeps
		for index, want := range c.want {
			if got := c.view.expect(sample.Index(index)); got != want {
				t.Errorf("%s: sample %d of %v: %d, want %d", c.story, index, []string{"loaded", "loading", "next", "later", "unkept"}[index], got, want)
			}
		}
	}
}

// isReadingAhead reports whether the prefetcher is reading a sample.
func (e *Engine) isReadingAhead(index sample.Index) bool {
	reading, _ := e.prefetcher.Look(deliver.Position{Rank: -1}, index)
	return reading
}

// TestReadBegunMeanwhile: a miss whose read ahead begins after a request has checked its availability, and before the request decides to read it by index, is
// waited for. Regression: it was read twice.
func TestReadBegunMeanwhile(t *testing.T) {
	d := makeDataset(t, 1200, func(r *rand.Rand, _ int) int { return 1 + r.IntN(30_000) })
	j := samplerJob(2, 16, 1, false)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 32 << 20, Budget: int64(d.total)/10 + 6<<20})
	held, let := make(chan struct{}), sync.Once{}
	release := func() { let.Do(func() { close(held) }) }
	defer release()
	asked := make(chan string, len(d.bytes))
	o.Source = func(s source.Source) source.Source { return &gatedSource{Source: s, held: held, asked: asked} }
	e := open(t, o)
	defer closeEngine(t, e)
	defer release()
	c := attach(t, e)
	read := make(chan error, 1)
	go func() {
		_, err := d.readRank(e, c, 0, 0, 0)
		read <- err
	}()
	var miss sample.Index
	for ahead, late := false, time.After(20*time.Second); !ahead; {
		select {
		case name := <-asked:
			var err error
			if miss, _, err = e.cache.Manifest.Lookup(name); err != nil {
				t.Fatal(err)
			}
			ahead = !e.cache.Keeps(miss) && e.isReadingAhead(miss)
		case <-late:
			t.Fatal("no miss is read ahead")
		}
	}
	at := position(0, 0, 0)
	expect := make([]deliver.Availability, 1)
	e.begunAt(&at).Expect([]sample.Index{miss}, []bool{false}, expect)
	if expect[0] != deliver.Loading {
		t.Errorf("a miss that is being read: %d, want that it is waited for", expect[0])
	}
	release()
	if err := <-read; err != nil {
		t.Error(err)
	}
}

// gatedSource reads nothing before held is closed. It sends the names of the requested samples, as far as asked has room.
type gatedSource struct {
	source.Source
	held  chan struct{}
	asked chan string
}

func (s *gatedSource) Read(ctx context.Context, e sample.Entry, dst []byte) error {
	select {
	case s.asked <- e.Name:
	default:
	}
	select {
	case <-s.held:
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.Source.Read(ctx, e, dst)
}

// TestWaitersAreWoken: a request that relied on an outlook that the mover has not seen is woken when the outlook changes.
func TestWaitersAreWoken(t *testing.T) {
	j := samplerJob(4, 16, 1, false)
	d, o := small(t, j)
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	defer c.Disconnected()
	d.readOne(t, e, c, j, 0, 0, 0)
	e.mu.Lock() // otherwise the mover sees the outlook first; the test is that it need not
	defer e.mu.Unlock()
	e.outlook.next = 1000 // a request relied on this before
	changed := e.staging.Changed()
	e.scanView(e.begunAt(&deliver.Position{Epoch: 1}).query())
	select {
	case <-changed:
	default:
		t.Error("waiting requests were not woken")
	}
}

// TestLeavesLaterEpochsToTheWindow: the samples of an epoch after the next are not read ahead for a rank that the window serves. The window may load them then, and the source would be
// read twice.
func TestLeavesLaterEpochsToTheWindow(t *testing.T) {
	j := samplerJob(4, 16, 1, false)
	d := makeDataset(t, 1200, func(r *rand.Rand, _ int) int { return r.IntN(30_000) })
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10, Memory: 32 << 20, Budget: d.total / 2})
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	defer c.Disconnected()
	d.readOne(t, e, c, j, 0, 0, 0)
	for epoch, want := range map[int]bool{1: true, 2: true, 3: false} { // the rank comes to epoch 1 next
		if _, ok := e.upcomingChunk(deliver.Position{Epoch: epoch}); ok != want {
			t.Errorf("something of epoch %d is left to the prefetcher: %v, want %v", epoch, ok, want)
		}
	}
}

// TestLeavesNextDrawnEpochToTheWindow: a drawn epoch's order is known an epoch before. Its samples that the window does not load are still read only after a rank has come to the epoch, because memory can't hold
// the samples of two epochs.
func TestLeavesNextDrawnEpochToTheWindow(t *testing.T) {
	givesBack(t)
	d, o := small(t, schedule.Job{World: 1})
	e := open(t, o)
	defer closeEngine(t, e)
	l := losing{d: d, e: e, world: 1}
	l.ask(t, 0, `{"method":"impact","lag":1,"batch_size":64,"cache":0,"seed":5,"params":{"s_share":0,"warmup":1}}`)
	c := attach(t, e)
	defer c.Disconnected()
	for epoch := range 3 {
		l.observed(t, c, epoch, func(int) {})
	}
	l.begin(t, 3)
	waitFor(t, "the order of epoch 4 is known", func() bool { return e.owner.schedule.IsKnown(4) })
	for epoch, want := range map[int]bool{3: true, 4: false} {
		if _, ok := e.upcomingChunk(deliver.Position{Epoch: epoch}); ok != want {
			t.Errorf("something of epoch %d is left to the prefetcher: %v, want %v", epoch, ok, want)
		}
	}
}

// lateProducer begins to read a sample when it receives the decision of a request that did not see the read.
type lateProducer struct{ reads bool }

func (p *lateProducer) expect(query) func(sample.Index) deliver.Availability {
	return func(sample.Index) deliver.Availability {
		if p.reads {
			return deliver.Loading
		}
		return deliver.Gone
	}
}

func (p *lateProducer) decided(query, iter.Seq2[sample.Index, deliver.Availability]) { p.reads = true }
func (p *lateProducer) lostPatience(*deliver.Position)                               {}

// TestReadBegunSinceTheLook: a sample whose read begins between a request's check and its decision is waited for, and not read twice.
func TestReadBegunSinceTheLook(t *testing.T) {
	_, o := small(t, schedule.Job{World: 1})
	e := open(t, o)
	defer closeEngine(t, e)
	at := position(0, 0, 0)
	b := e.begunAt(&at)
	b.window = &window{Engine: e, producers: []producer{&lateProducer{}}}
	expect := make([]deliver.Availability, 2)
	if b.Expect([]sample.Index{1, 2}, []bool{false, true}, expect); expect[0] != deliver.Loading || expect[1] != deliver.Gone {
		t.Errorf("%v, want that the absent sample is waited for", expect)
	}
}
