package engine

import (
	"iter"

	"lcache/chunker"
	"lcache/internal/serve/deliver"
	"lcache/sample"
)

// A producer makes samples resident before they are requested: the scan of the log, or the prefetcher. expect changes nothing in a producer; decided
// receives the outcome afterwards.
type producer interface {
	// expect returns a function that answers for the samples of one request. Both change nothing but the outlook that requests rely on. e.mu is held.
	expect(q query) func(sample.Index) deliver.Availability
	// decided receives the absent samples of a request, and the answer for each. A request with a position waits for the expected ones, and reads the others
	// by index. e.mu is held.
	decided(q query, samples iter.Seq2[sample.Index, deliver.Availability])
	// lostPatience makes room for a request whose patience is over.
	lostPatience(at *deliver.Position)
}

// scanProducer is the scan of the log that is read.
type scanProducer struct{ *Engine }

func (b scanProducer) expect(q query) func(sample.Index) deliver.Availability {
	v := b.scanView(q)
	return v.expect
}

// decided makes the scan load ahead again, because a request that matches the schedule waits for it.
func (b scanProducer) decided(q query, samples iter.Seq2[sample.Index, deliver.Availability]) {
	if !b.paused || !q.isScheduled() {
		return
	}
	for _, expected := range samples {
		if expected == deliver.Queued {
			b.paused, b.windowHitRate = false, 1
			b.nudge()
			return
		}
	}
}

// scanView is the state that decides which segments the scan loads for one request.
type scanView struct {
	layout   *chunker.EpochLayout // of the log that is read; nil: its order is not known
	segs     []segState
	keeps    func(sample.Index) bool
	inPlace  bool // the request is for the epoch that is read
	soon     bool // the request is for the epoch that the scan comes to next
	mayQueue bool // the request may wait for a slot: its rank is in time, and no further ahead than there are slots
	mayWait  bool // the request may wait for the next epoch
	first    int  // the first segment that will be loaded; -1: none
}

// scanView returns the scan's state for one request. e.mu is held.
func (e *Engine) scanView(q query) scanView {
	v := scanView{first: -1, keeps: e.keeps}
	if e.cur == nil {
		v.keeps = func(sample.Index) bool { return false }
		return v
	}
	v.layout, v.segs = e.cur.Layout, e.segs
	switch {
	case !q.isScheduled():
		return v
	case !e.isLaidOutFor(q.job, q.at.Epoch): // a sample that is already being read serves such a job, too
		return v
	}
	state := e.view()
	expected := state.outlook()
	e.noteOutlook(expected)
	v.soon = q.at.Epoch == expected.next
	v.inPlace = q.at.Epoch == e.cur.Epoch
	v.mayWait = !q.rank.gaveUpWaiting
	if v.inPlace {
		v.first = state.unloaded
		// A batch further ahead waits for the batches before it, if they are in the window.
		v.mayQueue = q.mayWait() && rankSegment(q.rank, e.cur) < v.first+e.cache.Sizing.Slots
	}
	return v
}

// isInWindow reports whether the scan loads a rank's samples of an epoch, as far as the log keeps them. If not, the prefetcher does. e.mu is held.
func (e *Engine) isInWindow(v *view, j *job, r *rank, epoch int) bool {
	if e.cur == nil || r.diverged || r.gaveUpWaiting || !e.isLaidOutFor(j, epoch) {
		return false
	}
	switch {
	case epoch == v.outlook().next:
		return true
	case e.cur.Layout == nil || epoch != e.cur.Epoch || r.outOfWindow || v.goesBack():
		return false
	case r.epoch != epoch || r.finished || r.front() == nil:
		return true
	}
	return v.unloaded < 0 || rankSegment(r, e.cur) < v.unloaded+e.cache.Sizing.Slots
}

// hasCaughtUp reports whether the samples of a rank's next request are in slots, or are still to be loaded. e.mu is held.
func (e *Engine) hasCaughtUp(j *job, r *rank) bool {
	if e.cur == nil || e.cur.Layout == nil || r.epoch != e.cur.Epoch || r.front() == nil {
		return false
	}
	if j != e.owner {
		return e.hasReached(r)
	}
	for _, index := range r.front() {
		if seg, ok := e.cur.Layout.Delivers(index); ok && e.segs[seg] == segDone && !e.staging.InSlot(index) {
			return false
		}
	}
	return true
}

// expect returns the availability of one sample.
func (v *scanView) expect(index sample.Index) deliver.Availability {
	seg := -1
	if v.layout != nil && v.layout.Segment[index] != chunker.None {
		seg = int(v.layout.Segment[index])
	}
	switch {
	case seg < 0 && (v.layout != nil || !v.keeps(index)): // the log does not keep it
		return deliver.Gone
	case seg >= 0 && v.segs[seg] == segLoading:
		return deliver.Loading
	case seg >= 0 && v.segs[seg] == segAbsent && v.inPlace:
		if v.mayQueue && v.first >= 0 && seg >= v.first && !v.layout.IsUnused(seg) {
			return deliver.Queued
		}
		return deliver.Gone
	case v.soon && v.mayWait:
		// The target is about to be read. At the boundary of an epoch that takes a moment, which is cheaper than reading by index.
		return deliver.Queued
	}
	return deliver.Gone
}

// lostPatience moves the window (rule 2): see decidePatience.
func (b scanProducer) lostPatience(at *deliver.Position) {
	e := b.Engine
	e.mu.Lock()
	defer e.mu.Unlock()
	j := e.jobOf(at)
	if j == nil || j.ranks[at.Rank] == nil || !e.isLaidOutFor(j, at.Epoch) {
		return
	}
	me := j.ranks[at.Rank]
	a := decidePatience(e.patienceView(at, j, me))
	if a.leave {
		me.leave(at.Batch)
	}
	if a.waits {
		e.grace.take(e.now(), e.deliver.Patience())
	}
	for _, n := range a.late {
		e.jobs[n.Job].ranks[n.Rank].outOfWindow = true
	}
	me.gaveUpWaiting = me.gaveUpWaiting || a.givesUp
}

// patienceView returns the input of decidePatience. A companion may keep slots in any epoch. A waiting companion never makes a rank of the owner late, and
// a companion is not made late by a rank of the owner that holds up the window. e.mu is held.
func (e *Engine) patienceView(at *deliver.Position, mine *job, me *rank) patienceView {
	now, wait := e.now(), e.deliver.Patience()
	v := patienceView{grace: e.grace.has(now, wait), epoch: at.Epoch, batch: at.Batch, me: me.standing(), waits: me.waits(), left: me.undelivered(at.Batch), others: map[chunker.JobRank]standing{},
		cur: viewOf(e.cur), slotless: e.slotless(), nearlyDrained: e.nearlyDrained(at.Epoch)}
	for _, r := range e.owner.ranks {
		switch {
		case r == me || r.outOfWindow || r.asked.IsZero() && mine != e.owner:
		case mine == e.owner:
			v.others[r.of] = r.standing()
		case r.standing().isBehind(v.me):
			return v
		}
	}
	for _, r := range e.companions {
		if r != me && !r.outOfWindow {
			s := r.standing()
			s.moves = now.Sub(r.moved) < wait
			v.others[r.of] = s
		}
	}
	return v
}

// slotless reports whether the scan has found no slot for as long as a request may wait for one: clients hold all slots, and may continue to do so. e.mu
// is held.
func (e *Engine) slotless() bool {
	return e.consumerWait.ForSlot(e.now()) >= e.deliver.Patience()
}

// nearlyDrained reports whether the scan will begin an epoch soon. Then waiting is cheaper than reading the epoch by index, and keeps the scan from
// staying behind permanently. e.mu is held.
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
