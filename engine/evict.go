package engine

import (
	"lcache/internal/serve/staging"
	"lcache/reorder"
	"lcache/sample"
)

// evictable reports whether no rank needs a segment in its slot any longer. Late ranks don't count; they are served by index.
func (e *Engine) evictable(owner staging.Segment) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.logs[owner.Line]
	if l == nil || l.Epoch < 0 || l.Line == nil || l.Line.Starts[owner.Segment] >= uint64(l.Line.Used) || e.superseded(l, owner.Line) {
		return true
	}
	held := false
	for j, r := range e.windowRanks(l.Epoch) {
		if !e.needs(j, r, l, owner.Segment) {
			continue
		}
		if !r.outOfWindow {
			return false
		}
		held = true
	}
	if held {
		e.evicted++
	}
	return true
}

// awaited reports whether a rank has still to pass a segment that is evicted.
func (e *Engine) awaited(owner staging.Segment) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.logs[owner.Line]
	if l == nil || l.Line == nil {
		return false
	}
	for j, r := range e.windowRanks(l.Epoch) {
		if e.needs(j, r, l, owner.Segment) {
			return true
		}
	}
	return false
}

// needs reports whether a rank of a job that the log is laid out for has still to pass a segment. An epoch that the log has left, for an earlier one, is laid out again when a rank comes
// to it. Segments further ahead of a rank than the window reaches, because it went back, are read again if they were not moved. e.mu is held.
func (e *Engine) needs(j *job, r *rank, l *reorder.EpochLog, seg int) bool {
	switch at := j.at(r); {
	case at > l.Epoch || r.finished && r.epoch == l.Epoch:
		return false
	case at < l.Epoch:
		v := view{readEpoch: e.readEpoch, cur: viewOf(e.cur), tgt: viewOf(e.tgt)}
		return l == e.tgt || l == e.cur && !v.goesBack()
	case r.finished || r.front() == nil:
		return true
	}
	first := floor(r, l)
	return seg >= first && (e.tgt != nil || l != e.cur || seg < first+e.cache.Sizing.Slots)
}

// superseded reports whether the samples that a slot holds for a pass come again: in a later pass over the same Logfile, or from a log of the same
// epoch that was laid out since. Kept as well they could take all slots. e.mu is held.
func (e *Engine) superseded(l *reorder.EpochLog, id uint64) bool {
	again := func(by *reorder.EpochLog) bool { return by != nil && by != l && by.Epoch == l.Epoch }
	return id != l.ID || l != e.cur && l != e.tgt && (again(e.cur) || again(e.tgt))
}

// members lists the samples of a segment, for withdrawing their addresses. The prefetcher may have counted on them.
func (e *Engine) members(owner staging.Segment, f func(sample.Index)) {
	e.mu.Lock()
	l := e.logs[owner.Line]
	e.mu.Unlock()
	if l == nil {
		return
	}
	kept := e.prefetcher.KeepFromSlot(func(f func(sample.Index)) { l.Members(owner.Segment, f) })
	l.Members(owner.Segment, f)
	kept.Restore(e.staging)
	l.Members(owner.Segment, e.prefetcher.LeftSlot)
}

// evictLast evicts the segment in a slot that ranks come to last, if they come to another one before it that has no slot: a rank that has gone back is before all that is loaded.
// What is evicted is loaded again, or read by index once it is written on.
func (e *Engine) evictLast(l *reorder.EpochLog, before int) bool {
	e.mu.Lock()
	last := staging.Segment{Line: l.ID, Segment: before}
	for j, r := range e.windowRanks(l.Epoch) {
		if !r.outOfWindow && j.at(r) == l.Epoch && !r.finished {
			last.Segment = max(last.Segment, floor(r, l)) // what a rank is at is not evicted
		}
	}
	e.mu.Unlock()
	found := false
	e.staging.Holders(func(owner staging.Segment, refs int) {
		if owner.Line == last.Line && owner.Segment > last.Segment && refs == 0 {
			last, found = owner, true
		}
	})
	return found && e.staging.Reclaim(func(owner staging.Segment) bool { return owner == last }, e.members) > 0
}
