package engine

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"lcache/chunker"
	"lcache/deliver"
	"lcache/sample"
	"lcache/schedule"
)

// chunk is what a session asks for by a position (deliver.Window).
func (e *Engine) chunk(ctx context.Context, session string, at deliver.Position) ([]sample.Index, error) {
	indices, ok, err := e.cache.Schedule.Meant(ctx, session, at)
	if err != nil {
		return nil, forClient(err)
	}
	if !ok {
		return nil, io.EOF
	}
	return indices, nil
}

// forClient turns what the schedule refuses into what deliver answers clients with.
func forClient(err error) error {
	switch refused := new(schedule.Error); {
	case errors.As(err, &refused):
		return &deliver.ArgumentError{Reason: err.Error()}
	case errors.Is(err, schedule.ErrStopped):
		return deliver.ErrClosing
	}
	return err
}

// asked notes where a rank is (deliver.Window). What the schedule does not have is counted, and that is all.
func (e *Engine) asked(ctx context.Context, at *deliver.Position, indices []sample.Index, pid int) *deliver.Position {
	if at == nil {
		return nil
	}
	soon, cancel := context.WithTimeout(ctx, e.deliver.Timeout/6) // a hint is not worth more of the request's time
	place, want := e.cache.Schedule.At(soon, *at)
	cancel()
	if place != schedule.Scheduled || !slices.Equal(want, indices) {
		return e.diverged(at, place, want, indices, pid)
	}
	e.mu.Lock()
	e.requested = true
	r := e.ranks[at.Rank]
	if r == nil {
		r = &rank{}
		e.ranks[at.Rank] = r
	}
	if at.Epoch != r.epoch || r.asked.IsZero() {
		r.outOfWindow, r.gaveUpWaiting, r.missFrom = false, false, 0
		e.cache.Schedule.AddNeeded(at.Epoch)
	}
	r.outOfWindow = r.outOfWindow && e.prefetcher == nil // there no rank holds up another one
	r.diverged = false
	again := r.finished && at.Epoch <= r.epoch || at.Epoch < r.epoch-1
	r.ask(at.Epoch, at.Batch, indices)
	r.pid, r.asked, r.seen = pid, time.Now(), at.Epoch
	_, over := e.counts.epoch(at.Epoch, at.Rank)
	if e.prefetcher == nil {
		e.readMisses(at, again)
	}
	e.mu.Unlock()
	e.closeEpochs(over)
	if e.prefetcher != nil {
		e.prefetcher.Asked(at.Rank, step(at))
	}
	e.nudge()
	return at
}

// diverged notes a request that differs from the schedule. That costs speed only: its rank is served by index and does not move the
// window. It is counted, and the first one is kept, because the user wants to know. Where no order is known nothing differs. A position
// that the schedule does not have says nothing of its rank, and is not believed.
func (e *Engine) diverged(at *deliver.Position, place schedule.Finding, want, indices []sample.Index, pid int) *deliver.Position {
	known := place == schedule.Scheduled || place == schedule.Nowhere && e.cache.Schedule.IsKnown(at.Epoch)
	e.mu.Lock()
	if known {
		e.counts.divergences++
	}
	if known && e.counts.firstDivergence == nil {
		d := &Divergence{Epoch: at.Epoch, Rank: at.Rank, Batch: at.Batch}
		for d.Position < min(len(indices), len(want)) && want[d.Position] == indices[d.Position] {
			d.Position++
		}
		e.counts.firstDivergence = d
	}
	if place == schedule.Nowhere {
		e.mu.Unlock()
		return nil
	}
	if r := e.ranks[at.Rank]; r != nil {
		r.outOfWindow, r.diverged = true, true
		r.pid, r.asked, r.seen = pid, time.Now(), at.Epoch
	}
	ep, over := e.counts.epoch(at.Epoch, at.Rank)
	ep.diverged = true
	e.mu.Unlock()
	e.closeEpochs(over)
	return at
}

// expect says what the pass is about to bring (deliver.Window).
func (e *Engine) expect(at *deliver.Position, indices []sample.Index, have []bool, coming []deliver.Availability) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.rankAt(at); r != nil && r.diverged {
		at = nil // nothing is on its way to it
	}
	first, soon := -1, at != nil && e.cur != nil && e.comes(at.Epoch)
	for i, index := range indices {
		if have[i] {
			continue
		}
		coming[i] = deliver.Gone
		if e.cur == nil {
			continue
		}
		seg, state := e.segmentOf(index)
		switch {
		case seg < 0 && (e.cur.Line != nil || !e.cache.Admits(index)): // the log does not keep it
			if e.missPrefetcher.IsReading(index) {
				coming[i] = deliver.Loading
			} else if r := e.rankAt(at); r != nil {
				r.missFrom = at.Batch + 1 // this one is read by index now: don't read it ahead as well
			}
		case state == segLoading:
			coming[i] = deliver.Loading
		case state == segAbsent && at != nil && at.Epoch == e.cur.Epoch:
			if first < 0 {
				first = e.firstUnloaded(e.hindmost())
			}
			// A batch further ahead waits for those before it, if they are in the window.
			r := e.ranks[at.Rank]
			if first >= 0 && r != nil && !r.outOfWindow && !r.gaveUpWaiting && seg >= first && floor(r, e.cur) < first+e.cache.Sizing.Slots {
				coming[i] = deliver.Queued
				if e.paused {
					e.paused, e.windowHitRate = false, 1
					e.nudge()
				}
			}
		case soon:
			// The target is about to be read. At an epoch's boundary that takes a moment, which is cheaper than reading by index.
			if r := e.ranks[at.Rank]; r != nil && !r.gaveUpWaiting {
				coming[i] = deliver.Queued
			}
		}
	}
}

// segmentOf is where a sample is in the line that is read, and what the pass has done with that.
func (e *Engine) segmentOf(index sample.Index) (seg int, state segState) {
	if e.cur.Line == nil || e.cur.Line.Segment[index] == chunker.None {
		return -1, segDone
	}
	seg = int(e.cur.Line.Segment[index])
	return seg, e.segs[seg]
}

// comes reports whether an epoch is being laid out, or is about to be, while the log is in another order.
func (e *Engine) comes(epoch int) bool {
	v := e.view()
	return epoch == v.outlook().next
}

func (e *Engine) rankAt(at *deliver.Position) *rank {
	if at == nil {
		return nil
	}
	return e.ranks[at.Rank]
}

// starved makes room for a request that has waited: whoever is behind it is served by index from now on (rule 2).
func (e *Engine) starved(at *deliver.Position) {
	e.mu.Lock()
	me := e.ranks[at.Rank]
	moved := false
	if me != nil && me.epoch == at.Epoch && me.batch < at.Batch && !me.waits() {
		me.leave(at.Batch) // the one in front is slower than the window may be, or was left out
		moved = true
	}
	for _, r := range e.ranks {
		if r != me && !r.outOfWindow && me != nil && behind(r, me) {
			r.outOfWindow = true
			moved = true
		}
	}
	if me != nil && (!moved || e.cur == nil || at.Epoch != e.cur.Epoch) && (e.slotless() || !e.nearlyDrained(at.Epoch)) {
		me.gaveUpWaiting = true
	}
	e.mu.Unlock()
	e.missPrefetcher.Sweep(e.missWanted)
	e.nudge()
}

// slotless reports whether the pass has found no slot for as long as a request waits for one: clients hold them all, and may go on
// doing so. e.mu is held.
func (e *Engine) slotless() bool { return !e.idle.IsZero() && time.Since(e.idle) >= e.deliver.Patience }

// nearlyDrained reports whether the pass will begin an epoch before long: then waiting is cheaper than reading it by index, and keeps
// the pass from staying behind for good. e.mu is held.
func (e *Engine) nearlyDrained(epoch int) bool {
	if e.tgt == nil || e.tgt.Epoch != epoch {
		return false
	}
	left := 0
	for _, s := range e.segs {
		if s != segDone {
			left++
		}
	}
	return left <= max(4, len(e.segs)/10)
}

// behind reports whether rank a has still to pass what rank b has passed.
func behind(a, b *rank) bool {
	switch {
	case a.asked.IsZero():
		return true
	case a.epoch != b.epoch:
		return a.epoch < b.epoch
	case a.finished != b.finished:
		return b.finished
	}
	return a.batch < b.batch
}

// delivered notes what was handed out (deliver.Window).
func (e *Engine) delivered(at *deliver.Position, d deliver.Delivery) {
	e.mu.Lock()
	// The share of about the last 1,000 samples that lay in the window: under half of them, loading ahead is of no use.
	weight := min(1, float64(d.Samples)/1000)
	if d.Samples > 0 {
		e.windowHitRate += weight * (float64(d.InWindow)/float64(d.Samples) - e.windowHitRate)
	}
	e.paused = e.windowHitRate < 0.5
	var over []*epochCount
	if at != nil {
		over = e.deliveredAt(at, d)
	}
	e.mu.Unlock()
	if e.prefetcher != nil && at != nil && !d.Part {
		e.prefetcher.Delivered(at.Rank, step(at))
	}
	e.closeEpochs(over)
	e.nudge()
}

// deliveredAt moves a rank on, and returns the epochs that are over with it. e.mu is held.
func (e *Engine) deliveredAt(at *deliver.Position, d deliver.Delivery) []*epochCount {
	r := e.ranks[at.Rank]
	if r == nil {
		return nil
	}
	if d.InWindow == d.Samples && !d.Part {
		r.gaveUpWaiting = false
		r.outOfWindow = r.outOfWindow && (e.cur == nil || at.Epoch != e.cur.Epoch)
	}
	ep, over := e.counts.epoch(at.Epoch, at.Rank)
	ep.hits += int64(d.Samples - d.Misses)
	ep.misses += int64(d.Misses)
	ep.diverged = ep.diverged || d.Skipped > 0 // what was delivered is not the schedule's: it has no digest
	batches := e.cache.Schedule.Batches(at.Epoch, at.Rank)
	ep.delivered(at.Rank, at.Batch, batches)
	if r.epoch == at.Epoch {
		r.deliver(at.Batch)
	}
	if r.epoch == at.Epoch && ep.whole(at.Rank, batches) {
		r.finished = true
	}
	return append(over, e.overEpochs()...)
}
