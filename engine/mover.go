package engine

import (
	"time"

	"lcache/reorder"
	"lcache/staging"
)

// maxLoading is how many segments are loaded at once: enough that the disk is busy while the last blocks of one are verified.
const maxLoading = 2

type actionKind uint8

const (
	actWait actionKind = iota
	actLoad
	actRecognize
	actJoin
	actBegin
	actSwap
)

type action struct {
	kind  actionKind
	seg   int
	drain bool
	next  *epochLine
}

// move is the one goroutine that changes the state machine's Logfiles: rule 1, one mover.
func (e *Engine) move() {
	defer e.mover.Done()
	tick := time.NewTicker(e.opts.LateEpoch / 10)
	defer tick.Stop()
	for last := (outlook{}); e.ctx.Err() == nil; {
		changed := e.staging.Changed()
		e.mu.Lock()
		if e.forced == nil { // a sort ends with its first failure
			e.tryAgain()
		}
		act, now := e.plan(), e.outlook()
		e.mu.Unlock()
		if now != last {
			last = now
			e.staging.Notify() // who waits for what does not come any more looks again
		}
		moved := false
		switch act.kind {
		case actLoad:
			moved = e.load(act)
		case actRecognize:
			moved = e.recognize(act.next)
		case actJoin:
			moved = e.joinStray()
		case actBegin:
			moved = e.beginTarget(act.next)
		case actSwap:
			moved = e.swap()
		}
		if moved {
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

// outlook is what a request that waits for the pass counts on.
type outlook struct{ reading, next int }

// outlook is what the pass is about to bring. e.mu is held.
func (e *Engine) outlook() outlook {
	o := outlook{e.reading, -1}
	switch {
	case e.cur == nil:
	case e.tgt != nil:
		o.next = e.tgt.epoch
	case e.mayLayOut():
		o.next = e.next()
	}
	return o
}

// plan decides the next step. e.mu is held.
func (e *Engine) plan() action {
	if e.reader != nil {
		e.updateReading()
		return action{}
	}
	if !e.begun && e.forced == nil || e.cur == nil || e.broken != nil && e.forced != nil {
		return action{}
	}
	e.updateReading()
	if e.tgt == nil {
		if el := e.unrecognized(); el != nil {
			return action{kind: actRecognize, next: el}
		}
		if n := e.outlook().next; n >= 0 {
			if e.stray != nil {
				if e.loading > 0 {
					return action{}
				}
				return action{kind: actJoin}
			}
			// Loading without a target would have to be done again; a layout takes a second at 14 M samples, the first time.
			if el := e.built[n]; el == nil {
				e.prepare(n)
			} else if e.loading == 0 {
				delete(e.built, n)
				e.begins = el
				return action{kind: actBegin, next: el}
			}
			return action{}
		}
	} else if n := e.tgt.epoch + 1; e.forced == nil && e.tgt.epoch >= 0 && e.cache.Schedule.IsComplete(n, e.opts.LateEpoch) {
		e.prepare(n) // ready before the target is read
	}
	windowed := e.forced == nil && e.inWindow(e.cur.epoch) && !e.goesBack()
	seg, drain := -1, false
	if windowed && !e.paused && e.anyInTime() {
		seg = e.unloaded()
	}
	if seg < 0 && e.tgt != nil && (!windowed || !e.pending()) {
		seg, drain = e.left(), true
	}
	switch {
	case seg < 0 && e.tgt != nil && e.loading == 0 && e.left() < 0:
		if windowed && e.cur.epoch == e.reading+1 {
			return action{} // the window would lose the epoch that is read: a log that fits in memory is passed over at once
		}
		return action{kind: actSwap}
	case seg < 0 || e.loading >= maxLoading:
		return action{}
	}
	if drain && !windowed {
		e.drained = true
		for _, r := range e.ranks {
			if r.at(e.cache.Schedule) <= e.cur.epoch {
				r.late = true
			}
		}
	}
	return action{kind: actLoad, seg: seg, drain: drain}
}

// layOutAgain is how long nothing is laid out after that failed: a full or read-only disk may be mended meanwhile.
const layOutAgain = 30 * time.Second

// mayLayOut reports whether the next line may be begun. Else the log is read as it is, and nothing is written on. e.mu is held.
func (e *Engine) mayLayOut() bool {
	if e.broken != nil && time.Since(e.brokenAt) <= layOutAgain {
		return false
	}
	// A device that takes blocks again is noticed at the next tick. Without one everything that is written on would be lost.
	return e.forced != nil || e.cache.Store.Writable()
}

// tryAgain forgets a failure to lay out the next line, once that may be tried again. e.mu is held.
func (e *Engine) tryAgain() {
	if e.broken != nil && time.Since(e.brokenAt) > layOutAgain {
		e.broken = nil
	}
}

// unloaded is the first segment not yet loaded, from the one that the hindmost rank is at.
func (e *Engine) unloaded() int {
	for k := e.hindmost(); k < len(e.segs) && e.cur.geo.Starts[k] < uint64(e.cur.geo.Used); k++ {
		if e.segs[k] == segAbsent {
			return k
		}
	}
	return -1
}

// pending reports whether a segment that will be delivered is still to be loaded.
func (e *Engine) pending() bool { return e.unloaded() >= 0 }

// hindmost is the first segment of cur that a rank in time is at; where all are late, that any of them is at.
func (e *Engine) hindmost() int {
	first, late := -1, -1
	least := func(a *int, f int) {
		if *a < 0 || f < *a {
			*a = f
		}
	}
	asked := e.anyAsked()
	for _, r := range e.ranks {
		if r.asked.IsZero() && asked {
			continue
		}
		f := 0
		if r.at(e.cache.Schedule) == e.cur.epoch && !r.finished && r.front() != nil {
			f = e.floor(r, e.cur)
		}
		if r.late {
			least(&late, f)
		} else {
			least(&first, f)
		}
	}
	if first < 0 {
		first = late
	}
	return max(first, 0)
}

// anyInTime reports whether some rank is to be served from the window.
func (e *Engine) anyInTime() bool {
	for _, r := range e.ranks {
		if !r.asked.IsZero() && !r.late {
			return true
		}
	}
	return false
}

func (e *Engine) anyAsked() bool {
	for _, r := range e.ranks {
		if !r.asked.IsZero() {
			return true
		}
	}
	return false
}

// left is the first segment that this pass has not gone over.
func (e *Engine) left() int {
	for k, s := range e.segs {
		if s == segAbsent {
			return k
		}
	}
	return -1
}

// load finds a slot and starts the segment. It reports whether it did.
func (e *Engine) load(act action) bool {
	e.mu.Lock()
	cur, tgt := e.cur, e.tgt
	e.mu.Unlock()
	owner := cur.line.Owner(act.seg)
	slot, ok := e.staging.Acquire(owner)
	if !ok && e.staging.Reclaim(e.passed, e.members) > 0 {
		e.reread()
		slot, ok = e.staging.Acquire(owner)
	}
	e.noteIdle(!ok)
	if !ok {
		return false
	}
	var target *reorder.Target
	if tgt != nil {
		target = &reorder.Target{Log: tgt.line.Log, Slot: tgt.line.Slot, Router: tgt.route}
	}
	e.mu.Lock()
	e.segs[act.seg] = segLoading
	e.loading++
	e.mu.Unlock()
	e.pass.Load(slot, cur.line, act.seg, target, act.drain, func() {
		e.mu.Lock()
		if e.cur == cur {
			e.segs[act.seg] = segDone
		}
		e.loading--
		e.mu.Unlock()
		e.nudge()
	})
	return true
}

// noteIdle keeps the clock of consumer_wait: nothing more may be loaded until somebody has consumed.
func (e *Engine) noteIdle(idle bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if idle && e.idle.IsZero() {
		e.idle = time.Now()
	}
	if !idle && !e.idle.IsZero() {
		e.counts.consumerWait += time.Since(e.idle)
		e.idle = time.Time{}
	}
}

// reread lets segments be loaded again that were given up while nothing is written on: the epoch may be asked for once more.
func (e *Engine) reread() {
	alive := map[staging.Segment]bool{}
	e.staging.Holders(func(owner staging.Segment, _ int) { alive[owner] = true })
	e.mu.Lock()
	if e.tgt == nil {
		for k, s := range e.segs {
			if s == segDone && !alive[e.cur.line.Owner(k)] {
				e.segs[k] = segAbsent
			}
		}
	}
	e.mu.Unlock()
	e.retire()
}

func (e *Engine) noteOwner(alive map[uint64]bool) func(staging.Segment, int) {
	return func(owner staging.Segment, _ int) { alive[owner.Line] = true }
}

// beginTarget starts the Logfile of the next line. The pass begins anew: nothing was written on so far.
func (e *Engine) beginTarget(el *epochLine) bool {
	e.stopFilling()
	slot := 1 - e.cur.line.Slot
	l, err := e.cache.Begin(slot, el.geo, el.order, uint32(max(el.epoch, 0)))
	if err == nil {
		err = e.register(l)
	}
	if err == nil {
		el.line = &reorder.Line{Log: l, Slot: slot, Order: el.geo.Order, Starts: el.geo.Starts}
		err = e.aim(el)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begins = nil
	if err != nil {
		el.free()
		e.broken, e.brokenAt = err, time.Now()
		e.cache.Logger.Error("the next epoch's log can't be begun; samples stay where they are", "error", err)
		e.startFilling(e.cur)
		return true
	}
	e.fillInto(el)
	if el.stale {
		el.epoch = -1
	}
	if e.forced == nil && el.epoch == e.reading {
		// What the log holds is moved to where it is wanted, at once; what it lacks is read when that is the log that is read.
		old := e.cur.line
		e.cur = &epochLine{epoch: -1, line: &reorder.Line{Log: old.Log, Slot: old.Slot, Starts: old.Starts}}
		e.adopt(e.cur)
	}
	return true
}

// fillInto makes a line the target; the pass begins anew, with a number of its own. e.mu is held.
func (e *Engine) fillInto(el *epochLine) {
	e.adopt(el)
	e.tgt = el
	again := *e.cur.line
	e.cur.line = &again
	e.adopt(e.cur)
	clear(e.segs)
	e.drained = false
}

// readFrom makes a line, whose order is known, the log that is read. e.mu is held.
func (e *Engine) readFrom(el *epochLine) {
	e.cur = el
	e.segs = make([]segState, el.geo.Segments())
	e.drained = false
	e.paused, e.matched = false, 1 // how the old log fitted says nothing of this one, and who waits for it does not ask again
	for _, r := range e.ranks {
		r.hungry = false
		if r.at(e.cache.Schedule) == el.epoch {
			r.late = false // it was late for what was read before
		}
	}
	if e.stray == nil {
		e.startFilling(el)
	}
}

// swap makes the target the log that is read. The old one holds nothing any more.
func (e *Engine) swap() bool {
	e.mu.Lock()
	old := e.cur
	el := e.tgt
	e.tgt = nil
	el.freeRoute()
	e.readFrom(el)
	e.mu.Unlock()
	if err := e.cache.Store.Drop(old.line.Slot); err != nil {
		e.cache.Logger.Error("the old log can't be removed", "error", err)
	}
	e.retire()
	return true
}
