// Package resort sorts a cache's log into another order. No client reads the log meanwhile, and the source is not read. Ingest sorts a log
// that it finds in another job's order, and a log whose segments have no room left.
//
// [Sort] scans the older Logfile and writes its samples to the newer one, until one Logfile in the wanted order has them all. If the newer
// Logfile has an unknown order, it first becomes packages. Packages are emptied before segments.
package resort

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lcache/chunker"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/staging"
	"lcache/internal/store/cache"
	"lcache/internal/store/mover"
	"lcache/logfile"
	"lcache/reorder"
	"lcache/sample"
)

const (
	maxLoading = 2                // segments loaded at once
	stopWait   = 30 * time.Second // for transfers in flight after a sort has ended or was interrupted
)

// Sort sorts the log into an order. leave is a Logfile without room, which is rewritten even if it has that order; nil: none. After an
// error, as after a kill, samples are in two Logfiles: the next Sort continues.
func Sort(ctx context.Context, c *cache.Cache, order *schedule.Order, leave *logfile.Logfile) error {
	m, err := mover.New(c, mover.Options{})
	if err != nil {
		return err
	}
	s := &sort{Mover: m, order: order, leave: leave}
	err = s.run(ctx)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
	defer cancel()
	closeErr := m.Close(stop)
	if closeErr == nil { // after an error a load may still read a layout
		s.free()
	}
	return errors.Join(err, closeErr)
}

// sort is one Sort. It empties the older Logfile, cur, into the newer one, tgt.
type sort struct {
	*mover.Mover
	order    *schedule.Order
	leave    *logfile.Logfile
	cur, tgt *reorder.EpochLog
	inOrder  bool   // cur is in the wanted order
	willBe   bool   // tgt is in the wanted order
	lastID   uint64 // ID of the last scan
}

// run scans the log until it is in the wanted order, in one Logfile.
func (s *sort) run(ctx context.Context) error {
	if err := s.find(ctx); err != nil || s.cur == nil {
		return err
	}
	for {
		if s.tgt == nil {
			if s.inOrder {
				return nil
			}
			if err := s.begin(); err != nil {
				return err
			}
		}
		if err := s.emptyPackages(ctx); err != nil {
			return fmt.Errorf("re-sort the log: %w", err)
		}
		if err := s.pass(ctx, s.cur, s.segments()); err != nil {
			return fmt.Errorf("re-sort the log: %w", err)
		}
		if err := s.swap(ctx); err != nil {
			return fmt.Errorf("re-sort the log: %w", err)
		}
	}
}

// find opens the Logfiles of the cache. If there are two and the newer one's order is known, the older one is emptied into it; otherwise the newer one becomes packages.
func (s *sort) find(ctx context.Context) error {
	var found []*reorder.EpochLog
	for _, l := range s.Cache.Store.ByAge() {
		if l.Empty() && s.Cache.OtherHolds(l.Num()) {
			if err := s.Cache.Store.Drop(l.Num()); err != nil {
				return err
			}
			continue
		}
		if err := s.Register(l); err != nil {
			return err
		}
		found = append(found, &reorder.EpochLog{Epoch: -1, Log: l})
	}
	if len(found) == 0 {
		return nil
	}
	s.cur = found[0]
	layout, err := s.recognize(ctx, s.cur.Log, &s.inOrder)
	if err != nil {
		return err
	}
	if layout != nil {
		layout.Free() // no sample is delivered from it
	}
	if len(found) == 2 {
		return s.takeUp(ctx, found[1])
	}
	return nil
}

// recognize lays out a Logfile if its order is known, and sets wanted if that is the wanted order.
func (s *sort) recognize(ctx context.Context, l *logfile.Logfile, wanted *bool) (*chunker.EpochLayout, error) {
	layout, order, _, err := s.Cache.EpochLayoutOf(ctx, s.Cache.Schedule, l, 0)
	*wanted = layout != nil && order.Key == s.order.Key && l != s.leave
	return layout, err
}

// takeUp makes a Logfile that was being filled the target again. If its order is unknown it becomes packages. If it also belongs to an earlier manifest it is dropped.
func (s *sort) takeUp(ctx context.Context, newer *reorder.EpochLog) (err error) {
	newer.Layout, err = s.recognize(ctx, newer.Log, &s.willBe)
	switch {
	case err != nil:
		return err
	case newer.Layout == nil:
		_, err := s.Cache.Unorder(ctx, newer.Log.Num())
		if errors.Is(err, logfile.ErrOlder) {
			return s.Discard(newer.Log)
		}
		return err
	}
	s.tgt = newer
	return s.Aim(newer)
}

// begin lays out the wanted order and begins its Logfile as the target.
func (s *sort) begin() error {
	layout, err := s.Cache.NewEpochLayout(s.order, nil)
	if err != nil {
		return err
	}
	s.tgt, s.willBe = &reorder.EpochLog{Layout: layout}, true
	if s.tgt.Log, err = s.Cache.Begin(1-s.cur.Log.Num(), layout, s.order, 0); err != nil {
		return err
	}
	if err := s.Register(s.tgt.Log); err != nil {
		return err
	}
	return s.Aim(s.tgt)
}

// segments lists all segments of cur.
func (s *sort) segments() (list []int) {
	for seg := range int(s.cur.Log.Header().Segments) {
		list = append(list, seg)
	}
	return list
}

// pass loads segments of a log, or packages, and writes their samples to tgt. If ctx ends, Close handles the loads in flight.
func (s *sort) pass(ctx context.Context, from *reorder.EpochLog, segments []int) error {
	s.lastID++
	from.ID = s.lastID
	loaded := make(chan struct{}, len(segments))
	for loading := 0; len(segments) > 0 || loading > 0; {
		changed := s.Staging.Changed()
		if len(segments) > 0 && loading < maxLoading {
			if slot, ok := s.acquire(from.Owner(segments[0])); ok {
				s.Scan.Load(slot, from, segments[0], s.tgt, reorder.Drain, func() { loaded <- struct{}{} })
				segments = segments[1:]
				loading++
				continue
			}
		}
		select {
		case <-loaded:
			loading--
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// acquire finds a slot for a segment. Slots with loaded segments are reused, because no sample is delivered from them.
func (s *sort) acquire(owner staging.Segment) (slot int, ok bool) {
	if slot, ok = s.Staging.Acquire(owner); ok {
		return slot, true
	}
	s.Staging.Reclaim(func(staging.Segment) bool { return true }, func(staging.Segment, func(sample.Index)) {})
	return s.Staging.Acquire(owner)
}

// swap drops cur, which has no samples left, and makes tgt the next cur. Before that it makes tgt durable. Until cur's journal
// is deleted, a crash loses only the samples whose blocks were overwritten.
func (s *sort) swap(ctx context.Context) error {
	if err := s.tgt.Log.Seal(ctx); err != nil {
		return err
	}
	old := s.cur
	s.cur, s.tgt = s.tgt, nil
	if err := s.dropPackages(); err != nil {
		s.Cache.Logger.Error("the packages, which are empty, can't be removed", "error", err)
	}
	s.cur.Free() // no sample is delivered from it, or written to it
	s.inOrder = s.willBe
	if err := s.Cache.Store.Drop(old.Log.Num()); err != nil {
		s.Cache.Logger.Error("the old log can't be removed", "error", err)
	}
	return nil
}

// free frees the layouts of both logs.
func (s *sort) free() {
	for _, l := range []*reorder.EpochLog{s.cur, s.tgt} {
		if l != nil {
			l.Free()
		}
	}
}
