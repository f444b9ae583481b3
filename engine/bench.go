package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/usage"
	"lcache/sample"
)

// A Bench is an engine that is opened to read one epoch for its own sake.
type Bench struct {
	*Engine
	Epoch    int  // to read
	Settling bool // the log is not in one epoch's order yet: reading this one puts it there, and is no measurement
	Samples  int64
	Bytes    int64 // of the dataset
	Static   bool  // samples stay where they are: nothing can be reordered

	goal int // the epoch that the log is in the order of, once this one was read
}

// benchBatch is the batch size of a cache that was made without a recipe.
const benchBatch = 256

// OpenBench opens a cache at the epoch that its log is in the order of. With reorder, reading that epoch writes the next, and the log moves
// on; without, the log stays as it is. The job's number of epochs does not bind, and job.json is not changed. A cache that is being
// served is refused.
func OpenBench(o Options, reorder bool) (*Bench, error) {
	o = o.withDefaults()
	o.sortAtOnce = true
	if err := cache.CheckLayout(o.Layout); err != nil {
		return nil, err
	}
	c, err := cache.Open(cache.Options{Dirs: o.Dirs, IO: o.IO, Memory: o.Memory, Layout: o.Layout, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	b, err := newBench(c, o)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := b.aimAt(reorder); err != nil {
		return nil, errors.Join(err, b.Close(context.Background()))
	}
	return b, nil
}

func newBench(c *cache.Cache, o Options) (*Bench, error) {
	c.Record.Job.Epochs = 0 // unknown until the log's epoch is known
	if c.Record.Job.Recipe == "" {
		c.Record.Job = schedule.Job{Recipe: "torch.distributed_sampler", Seed: "0", BatchSize: max(c.Record.Job.BatchSize, benchBatch), World: 1}
	}
	var err error
	if c.Schedule, err = schedule.New(c.Record.Job, c.Manifest.Len()); err != nil {
		return nil, err
	}
	memory := o.Memory
	if memory == 0 {
		memory = c.Record.Memory
	}
	if c.Sizing, err = c.Size(uint64(memory)); err != nil {
		return nil, err
	}
	e, err := newEngine(c, o)
	if err != nil {
		return nil, err
	}
	return &Bench{Engine: e, Samples: int64(c.Manifest.Len()), Bytes: int64(c.Manifest.Bytes()), Static: c.IsStatic()}, nil
}

// aimAt chooses the epoch from what the log holds, and makes it the last one, or the last but one.
func (b *Bench) aimAt(reorder bool) error {
	e := b.Engine
	if b.Static {
		return b.aimStatic(reorder)
	}
	e.builders.Wait() // the next epoch is laid out as the cache opens; the mover does nothing before the first request
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cur == nil || e.cur.Log.Empty() {
		return e.cache.HoldsNothing()
	}
	switch {
	case e.tgt != nil:
		b.Epoch, b.goal, b.Settling = max(e.tgt.Epoch, 0), max(e.tgt.Epoch, 0), true
	case e.cur.Epoch < 0: // in the order of no known epoch: it is sorted into epoch 0
		b.Settling = true
	default:
		b.Epoch, b.goal = e.cur.Epoch, e.cur.Epoch
	}
	if reorder && !b.Settling {
		b.goal++
	}
	e.cache.Schedule.SetEpochs(b.goal + 1)
	return nil
}

// aimStatic takes the first epoch: any is as good as another one.
func (b *Bench) aimStatic(reorder bool) error {
	if reorder {
		return &usage.Error{Reason: "nothing is reordered in the static layout: give --layout log"}
	}
	e := b.Engine
	for i := range e.cache.Manifest.Len() {
		if e.cache.Locations.Get(sample.Index(i)) != 0 {
			e.cache.Schedule.SetEpochs(1)
			return nil
		}
	}
	return e.cache.HoldsNothing()
}

// Ranks are those that read here.
func (b *Bench) Ranks() []int { return b.cache.Schedule.Local() }

// Read takes the epoch's batches, all ranks side by side, and releases them at once. bytes are those of the samples.
func (b *Bench) Read(ctx context.Context) (samples, bytes int64, err error) {
	var n, size atomic.Int64
	group, reading := errgroup.WithContext(ctx)
	for _, rank := range b.Ranks() {
		client, _, err := b.Attach(os.Getpid(), "")
		if err != nil {
			return 0, 0, errors.Join(err, group.Wait())
		}
		group.Go(func() error {
			defer client.Disconnected()
			for batch := 0; ; batch++ {
				got, err := client.Chunk(reading, b.Epoch, rank, batch)
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return fmt.Errorf("epoch %d, rank %d, batch %d: %w", b.Epoch, rank, batch, err)
				}
				for _, k := range got.Lengths {
					size.Add(int64(k))
				}
				n.Add(int64(len(got.Indices)))
				client.Release(got.Lease)
			}
		})
	}
	err = group.Wait()
	return n.Load(), size.Load(), err
}

// MovedOn waits, after the epoch was read, until the log is where reading it brings it: of a small cache the epoch may have been read before its samples began to
// be written on.
func (b *Bench) MovedOn(ctx context.Context) error {
	if b.Static {
		return nil
	}
	for {
		changed := b.staging.Changed()
		if done, err := b.hasMovedOn(); done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("put the log in order: %w", ctx.Err())
		}
	}
}

// hasMovedOn reports whether the log is where it is to be, or stays where it is because it can't be written. A pass that rests because requests came before it goes
// on: there are no more of them.
func (b *Bench) hasMovedOn() (done bool, err error) {
	e := b.Engine
	e.mu.Lock()
	defer e.mu.Unlock()
	v := e.view()
	if v.rests() {
		e.paused, e.windowHitRate = false, 1
		for _, r := range e.owner.ranks {
			r.outOfWindow, r.gaveUpWaiting = false, false
		}
		e.nudge()
	}
	return !v.tgt.exists && (v.cur.epoch == b.goal || !v.mayBegin), e.broken
}
