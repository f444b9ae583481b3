package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"lcache/internal/compress"
	"lcache/internal/disk/blockio"
	"lcache/internal/errcode"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/internal/store/resort"
	"lcache/logfile"
	"lcache/sample"
	"lcache/source"
)

// prefill lays out the first epoch, and reads the missing samples in the source's own order.
func (in *run) prefill(ctx context.Context) error {
	order, err := in.firstOrder()
	if err != nil {
		return err
	}
	done, err := in.settle(ctx, order)
	if err != nil || done {
		return err
	}
	if p := in.cache.Store.Packages(); p != nil && p.Log().IsOlder() { // only samples of this manifest can be put into packages
		if err := resort.Empty(ctx, in.cache, in.target, in.layout); err != nil {
			return err
		}
	}
	if in.o.NoPrefill {
		return nil
	}
	for try := 0; ; try++ {
		if err := in.read(ctx); err != nil || in.cache.IsComplete(in.o.Share, in.o.Shares) {
			return err
		}
		if try == 2 && in.streams() > 0 {
			return errcode.Errorf(errcode.BudgetTooSmall, "some samples have no room in the log, and their shards can only be read front to back: give a larger --budget")
		}
		if try == 2 {
			in.logger().Warn("some samples have no room in the log and will be read from the source")
			return nil
		}
		// Each killed ingest left gaps in the segments. In a new Logfile the segments have room again.
		in.full.Store(0)
		if err := resort.Sort(ctx, in.cache, order, in.target); err != nil {
			return err
		}
		if _, err := in.settle(ctx, order); err != nil {
			return err
		}
	}
}

// firstOrder returns the order that the first Logfile is laid out in.
func (in *run) firstOrder() (*schedule.Order, error) {
	if !in.cache.Schedule.Replays() || in.static() {
		return schedule.Canonical(in.cache.Manifest.Len()), nil
	}
	return in.cache.Schedule.Order(context.Background(), 0)
}

// settle prepares the log for new samples: in.target is the Logfile that takes them, and in.line its layout. done means that no sample must be read.
func (in *run) settle(ctx context.Context, order *schedule.Order) (done bool, err error) {
	c := in.cache
	finished, sorted := false, false
	for {
		held := newest(c.Store)
		f := in.lookAtLog(held, order, sorted, finished)
		switch what, why := decideLog(f); what {
		case keep:
			in.logger().Debug("the log stays as it is", "reason", why)
			in.target, in.report.Already = held, int64(in.stored())
			return true, nil
		case begin:
			return false, in.begin(order)
		case finish:
			if err := in.finishOld(ctx); err != nil {
				return false, err
			}
			finished = true
		case sortLog:
			in.logger().Debug("the log is sorted", "reason", why)
			if err := resort.Sort(ctx, c, order, nil); err != nil {
				return false, err
			}
			in.report.Resorted, sorted = true, true
		case fill:
			return false, in.goOn(held, order)
		}
	}
}

// newest returns the newer of the Logfiles with samples, or nil.
func newest(s *logfile.Store) *logfile.Logfile {
	list := s.HoldingByAge()
	if len(list) == 0 {
		return nil
	}
	return list[len(list)-1]
}

// lookAtLog collects the facts for decideLog.
func (in *run) lookAtLog(held *logfile.Logfile, first *schedule.Order, sorted, finished bool) foundLog {
	c := in.cache
	f := foundLog{holds: held != nil, resort: sorted, recipe: c.Schedule.Replays(), static: in.static(), older: c.HoldsOlder(),
		all: c.IsComplete(in.o.Share, in.o.Shares), ofOld: func() bool { return !finished && in.isOfOldJob() }}
	f.nothing = f.all || in.o.NoPrefill
	if held == nil {
		return f
	}
	f.two = len(c.Store.HoldingByAge()) == 2
	f.first = held.Header().Key == first.Key && !held.IsOlder() // the canonical order of another manifest has the same key
	f.fits = f.first
	if !f.static {
		f.fits = c.IsOfThisJob(held, first)
	}
	return f
}

// begin starts the first epoch's Logfile.
func (in *run) begin(order *schedule.Order) (err error) {
	c := in.cache
	for num, l := range c.Store.Logfiles() {
		if l != nil {
			if err := c.Store.Drop(num); err != nil {
				return err
			}
		}
	}
	in.freeLine()
	if in.layout, err = c.NewEpochLayout(order, nil); err != nil {
		return err
	}
	in.target, err = c.Begin(0, in.layout, order, 0)
	return err
}

// goOn makes held the target again. Its order is that of the first epoch, or of the epoch that the job has reached.
func (in *run) goOn(held *logfile.Logfile, order *schedule.Order) (err error) {
	in.target = held
	if held.Header().Key != order.Key {
		if order, err = in.cache.Schedule.Order(context.Background(), int(held.Header().Epoch)); err != nil {
			return err
		}
	}
	in.freeLine()
	in.layout, err = in.cache.NewEpochLayout(order, held)
	return err
}

// static reports whether the layout is static. Samples are then packed in the source's order, so that the blocks of a sample that crosses
// blocks are adjacent on disk.
func (in *run) static() bool { return in.report.Layout == cache.LayoutStatic }

// lacking lists the admitted samples of this share that are not in the log, with their bytes. there counts the others.
func (in *run) lacking() (todo []sample.Index, total, there int64) {
	c := in.cache
	from, to := c.ShareOf(in.o.Share, in.o.Shares)
	keeps := c.Placement()
	for i := from; i < to; i++ {
		index := sample.Index(i)
		if !keeps.Keeps(index) {
			continue
		}
		if _, known := c.Sums.Get(index); known && c.Locations.Get(index) != 0 {
			there++
			continue
		}
		todo = append(todo, index)
		total += int64(c.Manifest.Size(index))
	}
	return todo, total, there
}

// read fills the target from the source.
func (in *run) read(ctx context.Context) error {
	c := in.cache
	todo, total, there := in.lacking()
	if in.report.ReadSeconds == 0 { // the first read, not after a re-sort
		in.report.Already, in.report.ReadSamples = there, int64(len(todo))
	}
	in.tellCost(todo, total)
	c.Store.SetNoFrees(true)
	defer c.Store.SetNoFrees(false)
	start := time.Now()
	if err := in.readAll(ctx, todo, total); err != nil {
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

// readAll reads samples, several at once, and stores them.
func (in *run) readAll(ctx context.Context, todo []sample.Index, total int64) error {
	c := in.cache
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, done, samples atomic.Int64
	ends := in.cut(todo)
	var wg sync.WaitGroup
	jobs := in.o.Jobs
	if in.freeJobs {
		if jobs = c.SourceJobs(); in.sharded() {
			jobs = min(jobs, mostPieces)
		}
	}
	if in.streams() > 0 {
		jobs = min(jobs, source.MostFlows)
	}
	jobs = min(jobs, len(ends))
	var waited atomic.Int64 // nanoseconds, of all readers
	for range jobs {
		wg.Go(func() {
			r := reader{in: in, names: c.Manifest.Reader(), waited: &waited}
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(ends) {
					return
				}
				from := 0
				if i > 0 {
					from = ends[i-1]
				}
				err := r.each(ctx, todo[from:ends[i]], func(e sample.Entry, index sample.Index, data []byte) error {
					if err := in.storeSample(ctx, e, index, data); err != nil {
						return err
					}
					in.o.Progress(cache.Progress{Stage: "reading", Done: done.Add(int64(len(data))), Total: total, Unit: "bytes", Samples: samples.Add(1), AllSamples: int64(len(todo))})
					return ctx.Err()
				})
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	in.report.ReadBytes += done.Load()
	in.report.SourceWait += time.Duration(waited.Load() / int64(jobs)).Seconds()
	return context.Cause(ctx)
}

// storeSample appends a sample that was read from the source to its segment of the target.
func (in *run) storeSample(ctx context.Context, entry sample.Entry, index sample.Index, buf []byte) error {
	c := in.cache
	sum := sample.Sum(buf)
	if old, known := c.Sums.Get(index); known && old != sum {
		in.logger().Warn("content changed though size and modification time agree: the new content is taken", "sample_name", entry.Name)
		entry.Inode = sample.NoInode // after a power cut the file may have the old checksum again, which must not be combined with this inode
	}
	if in.holds(ctx, index, buf) {
		c.Sums.Set(index, sum)
		in.learn(index, entry.Inode)
		return nil
	}
	seg := in.layout.Segment[index]
	off, err := in.append(ctx, int(seg), index, buf)
	switch {
	case errors.Is(err, compress.ErrRoom):
		return nil
	case errors.Is(err, compress.ErrLength): // the log has other bytes of it: in a new Logfile there is room for it
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
	in.learn(index, entry.Inode)
	c.Locations.Set(index, c.Locations.At(in.target.Num(), int(seg), off))
	return nil
}

// holds reports whether the log has exactly these bytes of a sample. If so, only its checksum was lost.
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
