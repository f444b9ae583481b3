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

// A Bench is an engine that reads one epoch to measure the cache.
type Bench struct {
	*Engine
	Epoch    int  // to read
	Settling bool // the log is not in the order of one epoch yet: reading this epoch sorts it, and is not a measurement
	Samples  int64
	Bytes    int64 // of the dataset
	Static   bool  // samples stay in place: nothing can be reordered

	goal int // the epoch whose order the log has after this epoch was read
}

// benchBatch is the batch size for a cache without a recipe.
const benchBatch = 256

// OpenBench opens a cache at the epoch whose order its log has. With reorder, reading that epoch writes the next one, and the log moves on. Without
// reorder, the log stays as it is. OpenBench ignores the job's number of epochs, does not change job.json, and fails if a server uses the cache.
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

// aimAt chooses the epoch whose order the log has. The job ends after it or, if the next epoch is to be written, after that.
func (b *Bench) aimAt(reorder bool) error {
	e := b.Engine
	if b.Static {
		return b.aimStatic(reorder)
	}
	e.builders.Wait() // the next epoch is laid out when the cache opens; the mover does nothing before the first request
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cur == nil || e.cur.Log.Empty() {
		return e.cache.HoldsNothing()
	}
	switch {
	case e.tgt != nil:
		b.Epoch, b.goal, b.Settling = max(e.tgt.Epoch, 0), max(e.tgt.Epoch, 0), true
	case e.cur.Epoch < 0: // the log's order is unknown: reading sorts it into epoch 0
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

// aimStatic chooses epoch 0, because all epochs are alike in the static layout.
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

// Ranks returns the ranks that this server serves.
func (b *Bench) Ranks() []int { return b.cache.Schedule.Local() }

// Read reads the epoch's batches, all ranks at the same time, and releases each at once. bytes counts the bytes of samples.
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

// MovedOn waits until the log has reached its goal after the epoch was read. In a small cache the epoch can end before the scan begins to write samples
// to the next log.
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

// hasMovedOn reports whether the log has reached its goal, or stays where it is because it can't be written. It resumes a scan that is suspended because
// requests were served without it: no more requests come.
func (b *Bench) hasMovedOn() (done bool, err error) {
	e := b.Engine
	e.mu.Lock()
	defer e.mu.Unlock()
	v := e.view()
	if v.isSuspended() {
		e.paused, e.windowHitRate = false, 1
		for _, r := range e.owner.ranks {
			r.outOfWindow, r.gaveUpWaiting = false, false
		}
		e.nudge()
	}
	return !v.tgt.exists && (v.cur.epoch == b.goal || !v.mayBegin), e.broken
}
