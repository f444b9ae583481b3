package engine

import (
	"slices"
	"time"

	"lcache/internal/serve/staging"
	"lcache/reorder"
)

// load finds a slot and starts to load the segment. It reports whether it found one.
func (e *Engine) load(act action) bool {
	e.mu.Lock()
	cur, tgt := e.cur, e.tgt
	if act.late {
		e.leaveWindow()
	}
	e.mu.Unlock()
	if tgt != nil && act.use != reorder.Deliver && e.scan.Carry(cur, act.seg, tgt) {
		e.mu.Lock()
		e.segs[act.seg] = segDone
		e.mu.Unlock()
		return true
	}
	owner := cur.Owner(act.seg)
	slot, ok := e.staging.Acquire(owner)
	if !ok && e.staging.Reclaim(e.evictable, e.members) > 0 {
		e.reread()
		slot, ok = e.staging.Acquire(owner)
	}
	if !ok && act.use == reorder.Deliver && e.evictLast(cur, act.seg) {
		e.reread()
		slot, ok = e.staging.Acquire(owner)
	}
	e.noteIdle(!ok)
	if !ok {
		return false
	}
	e.mu.Lock()
	e.segs[act.seg] = segLoading
	if act.use == reorder.Move {
		e.segs[act.seg] = segMoving
	}
	e.loading++
	e.mu.Unlock()
	e.scan.Load(slot, cur, act.seg, tgt, act.use, func() { e.loaded(owner, cur, false) })
	return true
}

// loaded finishes the load of a segment. inSlot says that it was in its slot already.
func (e *Engine) loaded(owner staging.Segment, cur *reorder.EpochLog, inSlot bool) {
	e.mu.Lock()
	if e.cur == cur && owner.Log == cur.ID {
		e.segs[owner.Segment] = segDone
	}
	e.loading--
	if inSlot {
		e.reloading--
	}
	e.mu.Unlock()
	e.nudge()
}

// reload appends to the target the segments that were loaded into slots before the target was begun, when the scan had another number. It reads nothing
// from the disk.
func (e *Engine) reload(cur *reorder.EpochLog, before uint64) {
	e.mu.Lock()
	tgt := e.tgt
	same := e.cur == cur
	e.mu.Unlock()
	if !same {
		return
	}
	var held []int // segments
	e.staging.Holders(func(owner staging.Segment, _ int) {
		if owner.Log == before {
			held = append(held, owner.Segment)
		}
	})
	slices.Sort(held)
	for _, seg := range held {
		from, to := staging.Segment{Log: before, Segment: seg}, cur.Owner(seg)
		slot, ready := e.staging.Holding(from)
		if !ready || !e.scan.IsLoaded(slot, cur, seg) || !e.staging.Reload(slot, from, to) {
			continue
		}
		e.mu.Lock()
		e.segs[seg] = segLoading
		e.loading++
		e.reloading++
		e.mu.Unlock()
		e.scan.Reload(slot, cur, seg, tgt, func() { e.loaded(to, cur, true) })
	}
}

// leaveWindow makes ranks that have not passed cur's epoch leave the window: they are served by index. e.mu is held.
func (e *Engine) leaveWindow() {
	e.drained = true
	for j, r := range e.windowRanks(e.cur.Epoch) {
		if j.at(r) <= e.cur.Epoch {
			r.outOfWindow = true
		}
	}
}

// noteIdle notes whether the scan waits for a slot: nothing more can be loaded until a client has consumed batches.
func (e *Engine) noteIdle(idle bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.consumerWait.Slot(e.now(), idle)
}

// noteFull notes whether the prefetcher waits for memory.
func (e *Engine) noteFull(full bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.consumerWait.Memory(e.now(), full, !e.anyInWindow())
}

// reread marks evicted segments as not loaded, because the epoch may be requested again. It does so only without a target.
func (e *Engine) reread() {
	alive := map[staging.Segment]bool{}
	e.staging.Holders(func(owner staging.Segment, _ int) { alive[owner] = true })
	e.mu.Lock()
	if e.tgt == nil {
		for k, s := range e.segs {
			if s == segDone && !alive[e.cur.Owner(k)] {
				e.segs[k] = segAbsent
			}
		}
	}
	e.mu.Unlock()
	e.retire()
}

// idleFor returns how long nothing more could be read before a client had consumed batches. e.mu is held.
func (e *Engine) idleFor() time.Duration { return e.consumerWait.Total(e.now(), !e.anyInWindow()) }

// anyInWindow reports whether the window serves a rank. e.mu is held.
func (e *Engine) anyInWindow() bool {
	for _, j := range e.jobs {
		for _, r := range j.ranks {
			if r.inWindow && !r.asked.IsZero() {
				return true
			}
		}
	}
	return false
}
