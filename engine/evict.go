package engine

import (
	"lcache/internal/serve/staging"
	"lcache/reorder"
	"lcache/sample"
)

// evictable reports whether no rank needs a segment in its slot any longer. Late ranks don't count, because they are served by index.
func (e *Engine) evictable(owner staging.Segment) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.logs[owner.Log]
	if l == nil || l.Epoch < 0 || l.Layout == nil || l.Layout.Starts[owner.Segment] >= uint64(l.Layout.Used) || e.isSuperseded(l, owner.Log) {
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

// isAwaited reports whether some rank has not yet passed an evicted segment.
func (e *Engine) isAwaited(owner staging.Segment) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.logs[owner.Log]
	if l == nil || l.Layout == nil {
		return false
	}
	for j, r := range e.windowRanks(l.Epoch) {
		if e.needs(j, r, l, owner.Segment) {
			return true
		}
	}
	return false
}

// needs reports whether a rank of a job that the log is laid out for has not yet passed a segment. If the log has left an epoch for an earlier one, the
// epoch is laid out again when a rank comes to it. If a rank went back, segments beyond the window's reach are read again unless they were moved. e.mu
// is held.
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
	first := rankSegment(r, l)
	return seg >= first && (e.tgt != nil || l != e.cur || seg < first+e.cache.Sizing.Slots)
}

// isSuperseded reports whether the samples in a scan's slot will be delivered again: by a later scan of the same Logfile, or from a log of the same epoch
// that was laid out since. Such slots are not kept, because they could take up all slots. e.mu is held.
func (e *Engine) isSuperseded(l *reorder.EpochLog, id uint64) bool {
	again := func(by *reorder.EpochLog) bool { return by != nil && by != l && by.Epoch == l.Epoch }
	return id != l.ID || l != e.cur && l != e.tgt && (again(e.cur) || again(e.tgt))
}

// members lists the samples of a segment, so that their addresses can be withdrawn. It notifies the prefetcher, which may have relied on them.
func (e *Engine) members(owner staging.Segment, f func(sample.Index)) {
	e.mu.Lock()
	l := e.logs[owner.Log]
	e.mu.Unlock()
	if l == nil {
		return
	}
	kept := e.prefetcher.KeepFromSlot(func(f func(sample.Index)) { l.Members(owner.Segment, f) })
	l.Members(owner.Segment, f)
	kept.Restore(e.staging)
	l.Members(owner.Segment, e.prefetcher.LeftSlot)
}

// evictLast evicts the segment that ranks need last, if they need a segment without a slot before it. This happens if a rank has gone back to before
// all loaded segments. An evicted segment is loaded again, or its samples are read by index once they are in the target.
func (e *Engine) evictLast(l *reorder.EpochLog, before int) bool {
	e.mu.Lock()
	last := staging.Segment{Log: l.ID, Segment: before}
	for j, r := range e.windowRanks(l.Epoch) {
		if !r.outOfWindow && j.at(r) == l.Epoch && !r.finished {
			last.Segment = max(last.Segment, rankSegment(r, l)) // a segment that a rank is at is not evicted
		}
	}
	e.mu.Unlock()
	found := false
	e.staging.Holders(func(owner staging.Segment, refs int) {
		if owner.Log == last.Log && owner.Segment > last.Segment && refs == 0 {
			last, found = owner, true
		}
	})
	return found && e.staging.Reclaim(func(owner staging.Segment) bool { return owner == last }, e.members) > 0
}
