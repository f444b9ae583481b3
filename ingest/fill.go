package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lcache/blockio"
	"lcache/cache"
	"lcache/logfile"
	"lcache/sample"
	"lcache/schedule"
	"lcache/sorter"
	"lcache/stored"
)

// fill lays out the first epoch and reads what the log lacks, in the source's own order.
func (in *run) fill(ctx context.Context) error {
	order, err := in.firstOrder()
	if err != nil {
		return err
	}
	done, err := in.resort(ctx, order)
	if err != nil || done {
		return err
	}
	if in.o.NoPrefill {
		return nil
	}
	for try := 0; ; try++ {
		if err := in.read(ctx); err != nil || in.cache.IsComplete(in.o.Share, in.o.Shares) {
			return err
		}
		if try == 2 {
			in.logger().Warn("some samples have no room in the log and will be read from the source")
			return nil
		}
		// Every ingest that was killed has left gaps. In a Logfile of its own the segment has room again.
		in.full.Store(0)
		if err := sorter.Sort(ctx, in.cache, order, in.target); err != nil {
			return err
		}
		if _, err := in.resort(ctx, order); err != nil {
			return err
		}
	}
}

// firstOrder is what the first Logfile is laid out for.
func (in *run) firstOrder() (*schedule.Order, error) {
	if !in.cache.Schedule.Replays() || in.static() {
		return schedule.Canonical(in.cache.Manifest.Len()), nil
	}
	return in.cache.Schedule.Order(context.Background(), 0)
}

// resort begins the first epoch's Logfile, or finds it, or a later epoch's of the same job. A log in another order is re-sorted by
// the server's mover, which does the same after a jump: then done is true unless samples are missing.
func (in *run) resort(ctx context.Context, order *schedule.Order) (done bool, err error) {
	c := in.cache
	logs := c.Store.Logfiles()
	var held *logfile.Logfile
	for _, l := range logs {
		if l == nil || l.Empty() {
			continue
		}
		if held == nil || l.Generation() > held.Generation() {
			held = l
		}
	}
	if held != nil && in.static() && in.cache.IsComplete(in.o.Share, in.o.Shares) && !c.HoldsOlder() {
		// It is in no order that matters. What lies across blocks may cost two reads, which is less than moving everything.
		in.target, in.report.Already = held, int64(in.stored())
		return true, nil
	}
	// A sort that was cut off is ended first: until then what it left behind lies in the places that new samples need.
	if held != nil && (!in.suits(held, order) || held.Header().Key == order.Key && c.OtherHolds(held.Slot())) {
		if in.waits() {
			in.target, in.report.Already = held, int64(in.stored())
			return true, nil
		}
		if err := in.finishOld(ctx); err != nil {
			return false, err
		}
		if err := sorter.Sort(ctx, in.cache, order, nil); err != nil {
			return false, err
		}
		in.report.Resorted = true
		held = nil
		for _, l := range c.Store.Logfiles() {
			if l != nil && l.Header().Key == order.Key {
				held = l
			}
		}
	}
	if held != nil {
		in.target = held
		if held.Header().Key != order.Key {
			// The job has run on: its log is in use as it is.
			if in.o.NoPrefill || c.IsComplete(in.o.Share, in.o.Shares) {
				in.report.Already = int64(in.stored())
				return true, nil
			}
			if order, err = c.Schedule.Order(context.Background(), int(held.Header().Epoch)); err != nil {
				return false, err
			}
		}
		in.freeLine()
		in.line, err = c.NewLine(order, held)
		return false, err
	}
	for slot, l := range c.Store.Logfiles() {
		if l != nil {
			if err := c.Store.Drop(slot); err != nil {
				return false, err
			}
		}
	}
	in.freeLine()
	if in.line, err = c.NewLine(order, nil); err != nil {
		return false, err
	}
	epoch := uint32(0)
	in.target, err = c.Begin(0, in.line, order, epoch)
	return false, err
}

// waits reports whether the log stays as it is until a client says the order, which without a recipe is theirs to say: it may be the one that
// the log is in. Nothing is read now, so nothing needs the places that a sort which was cut off still holds.
func (in *run) waits() bool {
	c := in.cache
	return !c.Schedule.Replays() && !in.static() && !c.HoldsOlder() && (in.o.NoPrefill || c.IsComplete(in.o.Share, in.o.Shares))
}

// static reports whether samples are to stay where they are packed: then they are packed in the source's order, so that those that cross
// blocks lie side by side on disk.
func (in *run) static() bool { return in.report.Layout == cache.LayoutStatic }

// suits reports whether a Logfile can be gone on with.
func (in *run) suits(l *logfile.Logfile, first *schedule.Order) bool {
	if in.static() {
		return l.Header().Key == first.Key
	}
	return in.cache.IsOfThisJob(l, first)
}

// readRun is how many samples a reader of the source takes at once: few, so that all readers end at about the same time.
const readRun = 16

// read fills the target from the source.
func (in *run) read(ctx context.Context) error {
	c := in.cache
	var todo []sample.Index
	var total, there int64
	for i := range c.Manifest.Len() {
		index := sample.Index(i)
		if !c.Keeps(index) || i%in.o.Shares != in.o.Share {
			continue
		}
		if _, known := c.Sums.Get(index); known && c.Locations.Get(index) != 0 {
			there++
			continue
		}
		todo = append(todo, index)
		total += int64(c.Manifest.Size(index))
	}
	if in.report.ReadSeconds == 0 { // not after a re-sort of its own
		in.report.Already, in.report.ReadSamples = there, int64(len(todo))
	}
	c.Store.NoneFreed(true)
	defer c.Store.NoneFreed(false)
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, done atomic.Int64
	var wg sync.WaitGroup
	for range in.o.Jobs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			entries, buf := c.Manifest.Reader(), []byte(nil)
			for ctx.Err() == nil {
				// A run at a time, so that the names of its samples are read together.
				from := int(next.Add(readRun)) - readRun
				if from >= len(todo) {
					return
				}
				for _, index := range todo[from:min(from+readRun, len(todo))] {
					size := int(c.Manifest.Size(index))
					buf = slices.Grow(buf[:0], size)[:size]
					if err := in.store1(ctx, entries, index, buf); err != nil {
						cancel(err)
						return
					}
					in.o.Progress(cache.Progress{Stage: "reading", Done: done.Add(int64(size)), Total: total, Unit: "bytes"})
				}
			}
		}()
	}
	wg.Wait()
	in.report.ReadBytes += done.Load()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := in.target.WriteTails(ctx); err != nil {
		return err
	}
	if err := in.target.Seal(ctx); err != nil {
		return fmt.Errorf("make the log durable: %w", err)
	}
	if err := c.Sums.Sync(); err != nil {
		return err
	}
	in.report.ReadSeconds += time.Since(start).Seconds()
	return nil
}

// store1 reads one sample and appends it where the first epoch wants it.
func (in *run) store1(ctx context.Context, entries *sample.Reader, index sample.Index, buf []byte) error {
	c := in.cache
	entry, err := entries.Entry(index)
	if err != nil {
		return err
	}
	if err := c.Source.Read(ctx, entry, buf); err != nil {
		return err
	}
	sum := sample.Sum(buf)
	if old, known := c.Sums.Get(index); known && old != sum {
		in.logger().Warn("content changed though size and modification time agree: the new content is taken", "name", entry.Name)
	}
	if in.holds(ctx, index, buf) {
		c.Sums.Set(index, sum)
		return nil
	}
	seg := in.line.Segment[index]
	off, err := in.append(ctx, int(seg), index, buf)
	switch {
	case errors.Is(err, stored.ErrRoom):
		return nil
	case errors.Is(err, stored.ErrLength): // what the log holds is not it: it has room in a Logfile without that
		c.Locations.Clear(index, c.Locations.Get(index))
		return nil
	case errors.Is(err, logfile.ErrFull):
		in.full.Add(1)
		return nil
	}
	if err != nil {
		return fmt.Errorf("store %q: %w", entry.Name, err)
	}
	c.Sums.Set(index, sum)
	c.Locations.Set(index, c.Locations.At(in.target.Slot(), int(seg), off))
	return nil
}

// holds reports whether the log has just these bytes of a sample: then only its sum was lost.
func (in *run) holds(ctx context.Context, index sample.Index, plain []byte) bool {
	c := in.cache
	slot, seg, off, ok := c.Locations.Split(c.Locations.Get(index))
	if !ok || c.Logfile(slot) == nil {
		return false
	}
	mem, err := blockio.Alloc(logfile.Span(4095, c.StoredSize(index)))
	if err != nil {
		return false
	}
	data, err := c.Logfile(slot).Read(ctx, seg, off, c.StoredSize(index), mem)
	var pending *logfile.PendingError
	if errors.As(err, &pending) {
		cache.FreeAfter(pending, mem)
		return false
	}
	defer blockio.Free(mem)
	if err == nil && c.Form != nil {
		unpacked := make([]byte, len(plain))
		data, err = unpacked, c.Form.Unpack(index, data, unpacked)
	}
	return err == nil && bytes.Equal(data, plain)
}

// stored counts the samples that are in the log.
func (in *run) stored() (n int) {
	for i := range in.cache.Manifest.Len() {
		if in.cache.Locations.Get(sample.Index(i)) != 0 {
			n++
		}
	}
	return n
}
