package session

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"lcache/internal/importance/draw"
	"lcache/internal/importance/state"
	"lcache/internal/serve/schedule"
	"lcache/sample"
)

// publish syncs the schedule with the state: it pushes new orders, and retracts dropped ones.
func (w *worker) publish() {
	orders := w.state.Orders()
	w.retract(orders)
	failed := w.publishNew(orders)
	w.mu.Lock()
	first := failed != nil && w.orders.giveErr == nil
	w.orders.giveErr = failed
	w.mu.Unlock()
	w.tried = w.o.Now()
	if first {
		w.o.Log.Error("cannot publish a drawn order; trying again in 1 s", "name", w.o.Config.Name, "err", failed)
	}
	if epoch, order := w.state.Partial(); order != nil && epoch != w.partial {
		if err := w.publishPartial(epoch, order); err != nil {
			w.o.Log.Error("cannot publish a partial order; the epoch is laid out when its whole order is drawn", "name", w.o.Config.Name, "epoch", epoch, "err", err)
		}
	}
	w.o.Host.Wake()
}

// publishAgainAfter is the delay before another attempt to publish an order. It may have failed because orders of
// other jobs left no room.
const publishAgainAfter = time.Second

// publishAgain retries orders that could not be published. It returns the maximum time that the worker may wait.
func (w *worker) publishAgain(wait time.Duration) time.Duration {
	w.mu.Lock()
	failed := w.orders.giveErr
	w.mu.Unlock()
	since := w.o.Now().Sub(w.tried)
	switch {
	case failed == nil:
		return wait
	case since < publishAgainAfter:
		return min(wait, publishAgainAfter-since)
	}
	w.publish()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.orders.wakeWaiters()
	return min(wait, publishAgainAfter)
}

// retract retracts orders that the state has dropped.
func (w *worker) retract(orders map[int]*state.Order) {
	w.mu.Lock()
	back := w.orders.dropped(orders, w.state.Epoch(), w.positions.epoch)
	w.mu.Unlock()
	if back >= 0 {
		w.o.Schedule.Retract(back)
	}
	w.dropRequested(func(epoch int) bool { // after the served orders: if a request looks up the requested order before and after the served one, and finds the same, all are of one plan
		return back >= 0 && epoch >= back || orders[epoch] == nil && !w.o.Schedule.IsKnown(epoch)
	})
	if back < 0 {
		return
	}
	w.partial = -1
	for _, epoch := range w.o.Host.LaidOut() {
		if epoch >= back {
			w.o.Host.OrderChanged(epoch, true)
		}
	}
}

// dropped removes from given the published epochs that will be drawn again, and returns the first of them; -1: there
// are none. now is the trained epoch; before is the one that was trained before. Session.mu is held.
func (a *announced) dropped(orders map[int]*state.Order, now, before int) int {
	back := -1
	for epoch := range a.given {
		if orders[epoch] == nil && epoch >= now && (back < 0 || epoch < back) {
			back = epoch
		}
	}
	if now < before { // the state has forgotten all observations: no order of an earlier epoch can be drawn again from it
		back = 0
	}
	if back >= 0 {
		maps.DeleteFunc(a.given, func(epoch int, _ bool) bool { return epoch >= back })
	}
	return back
}

// publishNew publishes the new orders. The error names an order that could not be published.
func (w *worker) publishNew(orders map[int]*state.Order) (failed error) {
	for _, epoch := range slices.Sorted(maps.Keys(orders)) {
		w.mu.Lock()
		has := w.orders.given[epoch]
		w.mu.Unlock()
		if has {
			continue
		}
		if err := w.publishOne(orders[epoch]); err != nil {
			failed = fmt.Errorf("the order of epoch %d is drawn and cannot be published: %w", epoch, err)
			continue
		}
		w.mu.Lock()
		w.orders.given[epoch] = true
		w.orders.file.published(w.o.Now(), epoch)
		w.mu.Unlock()
	}
	return failed
}

// publishOne adds an epoch's order to the schedule.
func (w *worker) publishOne(o *state.Order) error {
	if o.Indices == nil {
		w.o.Schedule.Release(o.Epoch)
	} else if err := w.push(o); err != nil {
		return err
	}
	for rank := range w.o.Config.WorldSize {
		w.o.Host.OrderPublished(o.Epoch, rank)
	}
	return nil
}

// push pushes a drawn order for each rank that is served here. The server is its own client for that, so that the
// order holds for all sessions.
func (w *worker) push(o *state.Order) error {
	if part := o.Partial(); part != nil && o.Epoch != w.partial { // a log that an earlier server wrote was laid out by it
		if err := w.publishPartial(o.Epoch, part); err != nil {
			return err
		}
	}
	served, two := w.cut(o)
	if two != nil {
		w.keepRequested(o.Epoch, two)
	}
	s, by := w.o.Schedule, schedule.Pusher{Pid: os.Getpid()}
	for _, rank := range w.ranksOf(o.Epoch) {
		if err := s.Claim(by.Pid, rank, 0, func(int) bool { return false }); err != nil {
			return err
		}
		changed, replaced, err := s.Push(w.ctx, by, o.Epoch, rank, schedule.Cut(served[rank]), w.isRead())
		if changed {
			w.o.Host.OrderChanged(o.Epoch, replaced)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// publishPartial pushes the known part of an epoch's order, so that the epoch can be laid out before the rest is
// drawn.
func (w *worker) publishPartial(epoch int, order []sample.Index) error {
	w.partial = epoch
	whole := draw.Striped(order, w.o.Config.WorldSize, w.o.Config.DropLast)
	for _, rank := range w.ranksOf(epoch) {
		if err := w.o.Schedule.PushPartial(epoch, rank, w.batches(whole, rank), w.isRead()); err != nil {
			return err
		}
	}
	return nil
}

// ranksOf lists the ranks that are served here; none if the job does not have the epoch.
func (w *worker) ranksOf(epoch int) (ranks []int) {
	if !w.o.Schedule.Exists(epoch) {
		return nil
	}
	for rank := range w.o.Config.WorldSize {
		if w.o.Schedule.IsLocal(rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// isRead returns a function that reports whether an epoch's order may make room for a newer one.
func (w *worker) isRead() func(epoch, pid int) bool {
	first := w.state.Epoch() - 1
	return func(epoch, _ int) bool { return epoch < first }
}

// batches returns one rank's part of an order, in batches: rank r has the positions r, r+W, ….
func (w *worker) batches(order []sample.Index, rank int) [][]sample.Index {
	c := &w.o.Config
	return batches(order, rank, c.WorldSize, c.BatchSize, c.DropLast)
}

func batches(order []sample.Index, rank, world, size int, dropLast bool) (out [][]sample.Index) {
	var mine []sample.Index
	for k := rank; k < len(order); k += world {
		mine = append(mine, order[k])
	}
	for batch := range slices.Chunk(mine, size) {
		if len(batch) == size || !dropLast {
			out = append(out, batch)
		}
	}
	return out
}
