package engine

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/plan"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/ingest"
	"lcache/sample"
	"lcache/source"
)

// apart is a second run of two ranks over a log that keeps about half of the samples. Rank 0 reads only samples in the log, rank 1 only others.
func apart(t *testing.T, alter func(*Options)) (*dataset, *Engine, [][][]sample.Index) {
	t.Helper()
	d, o := secondRun(t, ingest.Options{Budget: -50, Memory: 32 << 20, Job: schedule.Job{World: 2}})
	o.Patience, o.Timeout = 20*time.Second, 40*time.Second
	alter(&o)
	e := open(t, o.chosen(plan.Wait))
	var own [2][]sample.Index
	for _, index := range slices.Concat(shuffled(2, len(d.bytes), 1, 1, 0)[0]...) {
		switch {
		case len(d.bytes[index]) == 0:
		case e.cache.Keeps(index):
			own[0] = append(own[0], index)
		default:
			own[1] = append(own[1], index)
		}
	}
	var orders [][][]sample.Index
	for rank := range own {
		orders = append(orders, slices.Collect(slices.Chunk(own[rank], 16)))
		push(t, e, 0, rank, orders[rank])
	}
	return d, e, orders
}

// asks begins a request that will hang, in the background.
func asks(t *testing.T, e *Engine, rank int) (answer chan error) {
	t.Helper()
	answer = make(chan error, 1)
	c := attach(t, e)
	go func() {
		b, err := c.Chunk(context.Background(), 0, rank, 0)
		if err == nil {
			c.Release(b.Lease)
		}
		answer <- err
	}()
	return answer
}

// goesOn reads part of a rank's epoch while other requests hang, and fails if that takes long.
func (d *dataset) goesOn(t *testing.T, e *Engine, rank int, order [][]sample.Index, release func()) {
	t.Helper()
	late := time.AfterFunc(15*time.Second, func() { t.Errorf("rank %d waits for what hangs", rank); release() })
	defer late.Stop()
	d.readOrder(t, e, attach(t, e), 0, rank, 0, order, nil)
}

// TestHungSourceWithALog: while the source hangs, ranks whose chunks need no source continue at once. The others continue when it answers.
func TestHungSourceWithALog(t *testing.T) {
	held, asked := make(chan struct{}), make(chan string, 1)
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	d, e, orders := apart(t, func(o *Options) {
		o.SourceTimeout = time.Hour
		o.Source = func(s source.Source) source.Source { return &gatedSource{Source: s, held: held, asked: asked} }
	})
	defer closeEngine(t, e)
	defer release()
	answer := asks(t, e, 1)
	soon(t, "the source is asked", func() { <-asked })
	d.goesOn(t, e, 0, orders[0], release)
	release()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	d.readOrder(t, e, attach(t, e), 0, 1, 1, orders[1], nil)
	if s := e.Status().Jobs[0]; s.RandomReads != 0 || s.CorruptSamples != 0 {
		t.Errorf("%d samples read by index, %d corrupt", s.RandomReads, s.CorruptSamples)
	}
}

// TestHungDiskWithASource: while the disk hangs, ranks whose chunks need no disk continue at once. The others continue when it answers.
func TestHungDiskWithASource(t *testing.T) {
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	d, e, orders := apart(t, func(o *Options) {
		o.LogTimeout, o.BlockTimeout, o.IO.Deadline = time.Hour, time.Hour, time.Hour
	})
	defer closeEngine(t, e)
	defer release()
	asked := make(chan struct{}, 1)
	blockio.Inject(e.cache.IO, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Buf != nil && !op.Write {
			select {
			case asked <- struct{}{}:
			default:
			}
			return blockio.Fault{Hold: held}
		}
		return blockio.Fault{}
	})
	answer := asks(t, e, 0)
	soon(t, "the disk is asked", func() { <-asked })
	d.goesOn(t, e, 1, orders[1], release)
	blockio.Inject(e.cache.IO, nil)
	release()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	d.readOrder(t, e, attach(t, e), 0, 0, 1, orders[0], nil)
	if s := e.Status().Jobs[0]; s.RandomReads != 0 || s.CorruptSamples != 0 {
		t.Errorf("%d samples read by index, %d corrupt", s.RandomReads, s.CorruptSamples)
	}
}

// TestHungForGood: a device that never answers costs each request one deadline. Its samples then come from the source. If the source never answers, the
// requests fail with errors that name the samples.
func TestHungForGood(t *testing.T) {
	const soon = 200 * time.Millisecond
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	d, e, orders := apart(t, func(o *Options) {
		o.LogTimeout, o.BlockTimeout, o.IO.Deadline, o.IO.ProbeAfter, o.Logger = soon, soon, soon, time.Hour, nil
	})
	defer closeEngine(t, e)
	defer release()
	blockio.Inject(e.cache.IO, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Buf != nil && !op.Write {
			return blockio.Fault{Hold: held}
		}
		return blockio.Fault{}
	})
	d.goesOn(t, e, 0, orders[0], release)
	if s := e.Status().Jobs[0]; s.SourceReads < int64(len(slices.Concat(orders[0]...)))/2 || s.CorruptSamples != 0 {
		t.Errorf("%d reads from the source, %d corrupt", s.SourceReads, s.CorruptSamples)
	}
}

// TestSilentSourceHasADeadline: a request for a sample that only the unresponsive source has fails by the source's deadline.
func TestSilentSourceHasADeadline(t *testing.T) {
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	d, e, orders := apart(t, func(o *Options) {
		o.SourceTimeout = 200 * time.Millisecond
		o.Logger = nil
		o.Source = func(s source.Source) source.Source { return &gatedSource{Source: s, held: held} }
	})
	defer closeEngine(t, e)
	defer release()
	select {
	case err := <-asks(t, e, 1):
		if err == nil {
			t.Error("a source that hangs gave samples")
		}
	case <-time.After(15 * time.Second):
		t.Error("a request waits for a source that hangs")
	}
	d.goesOn(t, e, 0, orders[0], release)
}
