package engine

import (
	"time"

	"lcache/reorder"
)

// maxLoading is how many segments are loaded at once: enough to keep the disk busy while the last blocks of one are verified.
const maxLoading = 2

// move runs the mover, the one goroutine that changes the Logfiles of the state machine: rule 1.
func (e *Engine) move() {
	tick := time.NewTicker(e.opts.LateEpoch / 10)
	defer tick.Stop()
	var logged *logfiles
	for e.ctx.Err() == nil {
		changed := e.staging.Changed()
		e.settleOwner()
		e.compareOrders()
		e.freeSlot()
		took := e.apply(e.look())
		logged = e.logTransition(logged, took)
		if took {
			continue
		}
		select {
		case <-changed:
		case <-e.wake:
		case <-tick.C:
		case <-e.ctx.Done():
		}
	}
}

// look returns the next step.
func (e *Engine) look() action {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.retryLayout()
	e.recordLayout()
	e.fillAgain()
	if e.relayout.lent {
		e.updateReadEpoch()
		e.noteOutlook(outlook{e.readEpoch, -1})
		if !e.relayout.inPlace && e.staging.SlotsBack() >= leastSlots {
			return action{kind: actSwitchToLog, layOut: -1}
		}
		return action{layOut: -1}
	}
	if e.requested && e.cur != nil {
		e.updateReadEpoch()
	}
	v := e.view()
	if v.unloaded >= 0 && v.unloaded > e.slowestSegment() && e.owner.importance.Load() != nil && len(e.jobs) == 1 { // other jobs find the unused segments in slots
		v.unused = e.lateUnused()
	}
	e.consider(&v)
	e.shareRanks(&v)
	e.shareDevice(&v)
	e.noteOutlook(v.outlook())
	return decide(v)
}

// noteOutlook wakes all waiters if the outlook differs from the last one that the mover or a request relied on: their samples may no longer arrive. e.mu is
// held.
func (e *Engine) noteOutlook(on outlook) {
	if on != e.outlook {
		e.outlook = on
		e.staging.Notify()
	}
}

// shareRanks notifies the prefetcher of each rank that the window begins or ceases to serve. e.mu is held.
func (e *Engine) shareRanks(v *view) {
	for _, j := range e.jobs {
		for n, r := range j.ranks {
			at := j.at(r)
			is := e.isInWindow(v, j, r, at)
			if is && at == v.cur.epoch {
				r.broughtTo = at
			}
			if is != r.inWindow || at != r.lookedAt { // the window may have been expected to serve a later epoch, and never reached it
				r.inWindow, r.lookedAt = is, at
				e.prefetcher.Refresh(j.next(n))
			}
		}
	}
}

// view returns the input of decide. e.mu is held.
func (e *Engine) view() view {
	v := view{requested: e.requested, readEpoch: e.readEpoch, loading: e.loading, inSlots: e.reloading, unloaded: -1, unscanned: -1, unused: -1, paused: e.paused,
		inTime: e.anyInTime(), mayBegin: e.mayBegin(), inPlace: e.relayout.inPlace, packs: e.packsNow(), choice: e.beginning.choiceFor(e.readEpoch, e.cur), sorting: e.beginning.sorting, unidentified: e.unidentified != nil, comparable: e.comparable() != nil,
		sparse:   e.isSparse,
		complete: func(epoch int) bool { return e.owner.schedule.IsComplete(epoch, e.opts.LateEpoch) },
		laidOut:  func(epoch int) bool { return e.layouts[epoch] != nil }}
	v.cur, v.tgt = viewOf(e.cur), viewOf(e.tgt)
	v.pack, v.hollow = e.packageLeft(v.packs)
	if e.cur != nil {
		v.unscanned = e.firstUnscanned()
		if e.cur.Layout != nil {
			v.unloaded = e.firstUnloaded(e.slowestSegment())
		}
	}
	return v
}

func viewOf(l *reorder.EpochLog) logView {
	if l == nil {
		return logView{}
	}
	return logView{true, l.Epoch}
}

// apply takes a step, and reports whether that changed anything. If it did, the next step follows at once.
func (e *Engine) apply(act action) bool {
	if act.layOut >= 0 {
		e.mu.Lock()
		e.layOut(act.layOut)
		e.mu.Unlock()
	}
	if act.kind == actWait {
		return false
	}
	e.moving.Lock()
	defer e.moving.Unlock()
	switch act.kind {
	case actLoad:
		return e.load(act)
	case actCompare:
		return e.compare()
	case actUnorder:
		return e.unorder()
	case actBegin:
		return e.beginTarget(act.epoch)
	case actSwap:
		return e.swap()
	case actEmpty:
		return e.emptyPackage(act.seg)
	case actDrop:
		return e.dropPackages()
	case actSwitchToLog:
		return e.switchToLog()
	}
	return false
}

// layOutAgain is how long nothing is laid out after a failure: somebody may repair a full or read-only disk meanwhile.
const layOutAgain = 30 * time.Second

// mayBegin reports whether a Logfile can be begun. If not, the log is read as it is, without a target. e.mu is held.
func (e *Engine) mayBegin() bool {
	// The next tick notices a device that accepts blocks again. If no device does, everything written to the target would be lost.
	return !e.failedLately() && e.cache.Store.Writable()
}

// failedLately reports whether laying out an epoch or beginning its Logfile failed recently, so that it is too early for another attempt. e.mu is held.
func (e *Engine) failedLately() bool {
	return e.broken != nil && e.now().Sub(e.brokenAt) <= layOutAgain
}

// retryLayout clears a failure to lay out the next epoch when it is time for another attempt. e.mu is held.
func (e *Engine) retryLayout() {
	if !e.failedLately() {
		e.broken = nil
	}
}

// slowestSegment returns the first segment of cur that a rank in time is at. If all ranks are late, it is the first segment that any of them is at. It
// ignores ranks that have read cur's epoch to its end. Without other ranks, it returns the number of segments. e.mu is held.
func (e *Engine) slowestSegment() int {
	first, late, over := -1, -1, false
	least := func(a *int, f int) {
		if *a < 0 || f < *a {
			*a = f
		}
	}
	asked := e.owner.anyAsked()
	for j, r := range e.windowRanks(e.cur.Epoch) {
		if r.asked.IsZero() && asked {
			continue
		}
		if j.at(r) > e.cur.Epoch || r.finished && r.epoch == e.cur.Epoch {
			over = true
			continue
		}
		f := 0
		if j.at(r) == e.cur.Epoch && !r.finished && r.front() != nil {
			f = rankSegment(r, e.cur)
		}
		if r.outOfWindow {
			least(&late, f)
		} else {
			least(&first, f)
		}
	}
	if first < 0 {
		first = late
	}
	if first < 0 && over {
		return len(e.segs)
	}
	return max(first, 0)
}

// anyInTime reports whether the window serves some rank. e.mu is held.
func (e *Engine) anyInTime() bool {
	if e.cur == nil {
		return false
	}
	for _, r := range e.windowRanks(e.cur.Epoch) {
		if !r.asked.IsZero() && !r.outOfWindow {
			return true
		}
	}
	return false
}

// anyAsked reports whether a rank of a job has requested anything. Engine.mu is held.
func (j *job) anyAsked() bool {
	for _, r := range j.ranks {
		if !r.asked.IsZero() {
			return true
		}
	}
	return false
}

// beginTarget begins the Logfile of an epoch whose layout is ready. The scan starts again, because nothing was written to the target so far.
func (e *Engine) beginTarget(epoch int) bool {
	e.mu.Lock()
	l := e.layouts[epoch]
	delete(e.layouts, epoch)
	e.starting = l
	e.mu.Unlock()
	if l == nil { // the order changed meanwhile
		return true
	}
	e.stopFilling()
	e.finishPackages()
	tgt := &reorder.EpochLog{Epoch: l.epoch, Layout: l.layout}
	err := e.beginLog(tgt, l)
	e.mu.Lock()
	e.starting = nil
	if err != nil {
		defer e.mu.Unlock()
		tgt.Free()
		e.setBroken(err)
		e.cache.Logger.Error("cannot begin the next epoch's log; samples stay where they are", "error", err)
		e.startFilling(e.cur)
		return true
	}
	cur, before := e.cur, e.cur.ID
	e.begun = true
	e.setTarget(tgt)
	if l.stale {
		tgt.Epoch = -1
	}
	_, left := e.epochBytes(e.readEpoch)
	e.beginning.begins(tgt.Epoch == e.readEpoch && !e.isSparse(), e.cache.Store.Stats().WriteBytes, left)
	if tgt.Epoch == e.readEpoch {
		// Samples that the log holds are moved at once to where tgt needs them. The others are read when tgt is the log that is read.
		e.cur = &reorder.EpochLog{Epoch: -1, Log: e.cur.Log}
		e.number(e.cur)
	}
	e.mu.Unlock()
	e.reload(cur, before)
	return true
}

func (e *Engine) beginLog(tgt *reorder.EpochLog, l *laterLayout) (err error) {
	if tgt.Log, err = e.cache.Begin(1-e.cur.Log.Num(), l.layout, l.order, uint32(l.epoch)); err != nil {
		return err
	}
	if err = e.mover.Register(tgt.Log); err != nil {
		return err
	}
	return e.mover.Aim(tgt)
}

// setTarget makes a log the target. The scan starts again, with a new number. e.mu is held.
func (e *Engine) setTarget(tgt *reorder.EpochLog) {
	e.number(tgt)
	e.tgt = tgt
	e.acceptMisses(tgt)
	e.number(e.cur)
	clear(e.segs)
	clear(e.emptying)
	e.drained = false
}

// setCurrent makes a log in a known order the log that is read. e.mu is held.
func (e *Engine) setCurrent(l *reorder.EpochLog) {
	e.cur = l
	e.segs = make([]segState, l.Log.Header().Segments)
	e.drained = false
	e.grace.begin()
	e.paused, e.windowHitRate = false, 1 // reset the hit rate: it describes the previous log, and no waiter resets it
	for j, r := range e.windowRanks(l.Epoch) {
		r.gaveUpWaiting = false
		if j.at(r) == l.Epoch {
			r.outOfWindow = false // it was late for the previous log
		}
	}
	if e.unidentified == nil {
		e.startFilling(l)
	}
}

// swap makes the target the log that is read. The old log is empty by then.
func (e *Engine) swap() bool {
	e.stopFilling()
	e.mu.Lock()
	old := e.cur
	l := e.tgt
	e.tgt = nil
	l.EndRouting()
	e.sortBytes += e.beginning.ends(e.cache.Store.Stats().WriteBytes)
	e.setCurrent(l)
	e.mu.Unlock()
	if err := e.cache.Store.Drop(old.Log.Num()); err != nil {
		e.cache.Logger.Error("cannot remove the old log", "error", err)
	}
	e.retire()
	return true
}

// rankSegment returns the segment that the rank's next batch begins in. If samples repeat, the earlier uses are before that batch, and the result is the
// segment of the batch's furthest sample.
func rankSegment(r *rank, l *reorder.EpochLog) int {
	furthest := 0
	for _, index := range r.front() {
		if seg, ok := l.Layout.Delivers(index); ok {
			if furthest = max(furthest, seg); !l.Layout.Repeats {
				return furthest
			}
		}
	}
	return furthest
}
