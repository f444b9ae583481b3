package engine

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/sample"
)

// beforeOrders calls f before each order that is made.
func beforeOrders(e *Engine, f func(epoch int)) {
	e.cache.Schedule.BeforeMaking(f)
}

// soon fails the test if f does not return: f is a request that must not wait for samples that never arrive.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		stacks := make([]byte, 1<<20)
		t.Errorf("%s waits\n%s", what, stacks[:runtime.Stack(stacks, true)])
	}
}

// readChunk requests a chunk, or the end of an epoch, and checks it.
func (d *dataset) readChunk(t *testing.T, e *Engine, c *deliver.Client, epoch, rank, batch int) {
	t.Helper()
	b, err := c.Chunk(context.Background(), epoch, rank, batch)
	if errors.Is(err, io.EOF) {
		return
	}
	if err != nil {
		t.Errorf("epoch %d rank %d batch %d: %v", epoch, rank, batch, err)
		return
	}
	if err := d.check(e, b); err != nil {
		t.Error(err)
	}
	c.Release(b.Lease)
}

// Only requests for its epoch wait for an order that takes long. Regression: with ranks in several epochs, orders were made again under
// the engine's lock, and all requests waited.
func TestOrderBeingComputed(t *testing.T) { inLayouts(t, testOrderInTheMaking) }

func testOrderInTheMaking(t *testing.T, layout string) {
	d, o := small(t, samplerJob(20, 16, 2, false))
	o.Layout = layout
	e := open(t, o)
	defer closeEngine(t, e)
	block, blocked, once := make(chan struct{}), make(chan struct{}), sync.Once{}
	made := map[int]int{}
	var mu sync.Mutex
	beforeOrders(e, func(epoch int) {
		mu.Lock()
		made[epoch]++
		again := epoch == 0 && made[epoch] > 1
		mu.Unlock()
		if epoch == 15 {
			once.Do(func() { close(blocked) })
		}
		if epoch == 15 || again {
			<-block
		}
	})
	c := attach(t, e)
	defer c.Disconnected()
	soon(t, "a rank that goes through the epochs while another one stays", func() {
		d.readChunk(t, e, c, 0, 1, 0)
		for epoch := range 8 {
			d.readChunk(t, e, c, epoch, 0, 0)
		}
		e.Status()
	})
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		d.readChunk(t, e, c, 15, 0, 0)
	}()
	<-blocked
	soon(t, "the status", func() { e.Status() })
	soon(t, "a chunk of another epoch", func() { d.readChunk(t, e, c, 0, 1, 1) })
	soon(t, "a request by index with its place in another epoch", func() {
		at := position(0, 1, 2)
		want, err := e.samplesAt(context.Background(), at)
		if err != nil {
			t.Error(err)
			return
		}
		b, err := c.Get(context.Background(), want.Indices, &at)
		if err != nil {
			t.Error(err)
			return
		}
		c.Release(b.Lease)
	})
	soon(t, "a hint that leads to an order of its own", func() {
		at := position(17, 0, 0)
		b, err := c.Get(context.Background(), []sample.Index{1}, &at)
		if err != nil {
			t.Error(err)
			return
		}
		c.Release(b.Lease)
	})
	soon(t, "a report", func() {
		if err := e.Report(Report{Epoch: 0, Rank: 1, Loop: 1}); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-waits:
		t.Error("a chunk was there before its order was made")
	default:
	}
	close(block)
	soon(t, "the chunk whose order is made", func() { <-waits })
	e.mu.Lock() // the status document counts positions in the job's epoch alone
	defer e.mu.Unlock()
	if r := e.owner.ranks[1]; r.epoch != 0 || r.batch != 3 {
		t.Errorf("rank 1 is at batch %d of epoch %d, want batch 3 of epoch 0", r.batch, r.epoch)
	}
}

// If ranks are in epochs far apart, each order is computed once.
func TestSpreadRanks(t *testing.T) {
	const world = 3
	d, o := small(t, samplerJob(40, 16, world, false))
	o.LateEpoch = time.Minute
	e := open(t, o)
	defer closeEngine(t, e)
	var mu sync.Mutex
	made := map[int]int{}
	beforeOrders(e, func(epoch int) {
		mu.Lock()
		defer mu.Unlock()
		made[epoch]++
	})
	c := attach(t, e)
	defer c.Disconnected()
	for round := range 3 {
		for batch := range 3 {
			for rank := range world {
				d.readChunk(t, e, c, 12*rank+round, rank, batch)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for epoch, n := range made {
		if n > 2 { // for each batch, without a place of its own; one that was made ahead, and not needed then, is made once more
			t.Errorf("the order of epoch %d was made %d times", epoch, n)
		}
	}
	if len(made) < 3*world-2 { // two may be there already
		t.Errorf("orders of %d epochs were made", len(made))
	}
}

// A hint for an epoch that requires the draws of all earlier ones delays its request for a limited time, and no others.
func TestFarHint(t *testing.T) {
	d, o := small(t, schedule.Job{Recipe: "torch.random_sampler", Seed: "1", BatchSize: 16, World: 1})
	o.Timeout = 6 * time.Second
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	defer c.Disconnected()
	hint := func(epoch int) {
		at := position(epoch, 0, 0)
		b, err := c.Get(context.Background(), []sample.Index{5}, &at)
		if err != nil {
			t.Errorf("a hint to epoch %d: %v", epoch, err)
			return
		}
		if err := d.check(e, b); err != nil {
			t.Error(err)
		}
		c.Release(b.Lease)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		hint(schedule.MostDrawn/len(d.bytes) - 1) // hours
	}()
	waitFor(t, "the order is being made", e.cache.Schedule.IsMakingAside)
	for epoch := range 3 {
		d.readChunk(t, e, c, epoch, 0, 0)
	}
	hint(5_000_000)          // while the other one is looked up
	hint(schedule.MostDrawn) // too far for anybody
	hint(1 << 24)            // too far for the recipe
	d.readChunk(t, e, c, 3, 0, 0)
	<-done
	if _, err := c.Chunk(context.Background(), schedule.MostDrawn, 0, 0); err == nil {
		t.Error("an epoch that can't be drawn has a chunk")
	}
}
