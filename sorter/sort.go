// Package sorter puts a cache's log into another order by itself: nobody reads from it meanwhile, and the source is not read. Ingest sorts a log
// that it finds in another job's order, or whose segments have no room left.
//
// A [Mover] has what it takes to move samples from one Logfile to the other; the engine serves out of one. [Sort] goes over the older Logfile
// segment by segment and writes its samples to the newer one, until one Logfile in the wanted order holds them all. Mover.Join lays out, behind
// what one Logfile holds, what the other one holds, where neither is in an order that is known.
package sorter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lcache/cache"
	"lcache/chunker"
	"lcache/logfile"
	"lcache/reorder"
	"lcache/sample"
	"lcache/schedule"
	"lcache/staging"
)

const (
	maxLoading = 2                // segments loaded at once
	stopWait   = 30 * time.Second // for transfers, after a sort that has ended or was interrupted
)

// Sort puts what the log holds into an order. leave is a Logfile that is sorted even if it has that order, because it has no room left; nil:
// none. An error leaves a cache whose samples lie in two Logfiles, as a kill does: the next Sort goes on.
func Sort(ctx context.Context, c *cache.Cache, order *schedule.Order, leave *logfile.Logfile) error {
	m, err := New(c, Options{})
	if err != nil {
		return err
	}
	s := &sort{Mover: m, order: order, leave: leave}
	err = s.run(ctx)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
	defer cancel()
	closeErr := m.Close(stop)
	if closeErr == nil { // else a load may still look into a line
		s.free()
	}
	return errors.Join(err, closeErr)
}

// sort is one Sort: cur is the older Logfile, which is emptied into the newer one, tgt.
type sort struct {
	*Mover
	order    *schedule.Order
	leave    *logfile.Logfile
	cur, tgt *reorder.EpochLog
	inOrder  bool // cur is in the wanted order
	willBe   bool // so will tgt be
	lastID   uint64
}

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
		if err := s.pass(ctx); err != nil {
			return fmt.Errorf("re-sort the log: %w", err)
		}
		if err := s.swap(); err != nil {
			return err
		}
	}
}

// find takes up the Logfiles that there are. Where there are two, the older is emptied into the newer one, if the newer one's order is known
// or its samples are worth it.
func (s *sort) find(ctx context.Context) error {
	var found []*reorder.EpochLog
	for _, l := range s.Cache.Store.ByAge() {
		if l.Empty() && s.Cache.OtherHolds(l.Half()) {
			if err := s.Cache.Store.Drop(l.Half()); err != nil {
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
	line, err := s.recognize(ctx, s.cur.Log, &s.inOrder)
	if err != nil {
		return err
	}
	if line != nil {
		line.Free() // nothing is delivered from it
	}
	if len(found) == 2 {
		return s.takeUp(ctx, found[1])
	}
	return nil
}

// recognize lays out a Logfile whose order is known, and says whether that is the wanted one.
func (s *sort) recognize(ctx context.Context, l *logfile.Logfile, wanted *bool) (*chunker.Line, error) {
	line, order, _, err := s.Cache.LineOf(ctx, l, 0)
	*wanted = line != nil && order.Key == s.order.Key && l != s.leave
	return line, err
}

// takeUp makes a Logfile that was being filled the target again.
func (s *sort) takeUp(ctx context.Context, newer *reorder.EpochLog) (err error) {
	newer.Line, err = s.recognize(ctx, newer.Log, &s.willBe)
	switch {
	case err != nil:
		return err
	case newer.Line == nil && s.inOrder: // to join them would undo the order
		return s.GiveUp(newer.Log)
	case newer.Line == nil:
		if newer.Line, err = s.Join(newer.Log, s.cur.Log); err != nil {
			return s.GiveUp(newer.Log)
		}
	}
	s.tgt = newer
	return s.Aim(newer)
}

// begin lays out the wanted order and begins its Logfile.
func (s *sort) begin() error {
	line, err := s.Cache.NewLine(s.order, nil)
	if err != nil {
		return err
	}
	s.tgt, s.willBe = &reorder.EpochLog{Line: line}, true
	if s.tgt.Log, err = s.Cache.Begin(1-s.cur.Log.Half(), line, s.order, 0); err != nil {
		return err
	}
	if err := s.Register(s.tgt.Log); err != nil {
		return err
	}
	return s.Aim(s.tgt)
}

// pass loads every segment of cur and writes its samples to tgt. A pass that ctx ends leaves what is under way to Close.
func (s *sort) pass(ctx context.Context) error {
	s.lastID++
	s.cur.ID = s.lastID
	segments := int(s.cur.Log.Header().Segments)
	loaded := make(chan struct{}, segments)
	for seg, loading := 0, 0; seg < segments || loading > 0; {
		changed := s.Staging.Changed()
		if seg < segments && loading < maxLoading {
			if slot, ok := s.acquire(s.cur.Owner(seg)); ok {
				s.Pass.Load(slot, s.cur, seg, s.tgt, true, func() { loaded <- struct{}{} })
				seg++
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

// acquire finds a slot. All that were loaded may be used again: nothing of them is delivered.
func (s *sort) acquire(owner staging.Segment) (slot int, ok bool) {
	if slot, ok = s.Staging.Acquire(owner); ok {
		return slot, true
	}
	s.Staging.Reclaim(func(staging.Segment) bool { return true }, func(staging.Segment, func(sample.Index)) {})
	return s.Staging.Acquire(owner)
}

// swap makes tgt the log that there is. cur holds nothing any longer.
func (s *sort) swap() error {
	old := s.cur
	s.cur, s.tgt = s.tgt, nil
	s.cur.EndRouting()
	s.inOrder = s.willBe
	if s.cur.Line != nil { // nothing is delivered from it
		s.cur.Line.Free()
		s.cur.Line = nil
	}
	if err := s.Cache.Store.Drop(old.Log.Half()); err != nil {
		s.Cache.Logger.Error("the old log can't be removed", "error", err)
	}
	return nil
}

func (s *sort) free() {
	for _, l := range []*reorder.EpochLog{s.cur, s.tgt} {
		if l != nil {
			l.Free()
		}
	}
}
