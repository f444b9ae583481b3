package engine

import (
	"time"

	"lcache/chunker"
	"lcache/logfile"
	"lcache/reorder"
	"lcache/sample"
	"lcache/schedule"
	"lcache/staging"
)

// An epochLine is a layout and, once begun or recovered, the Logfile that has it.
type epochLine struct {
	epoch int             // -1: an order that this job does not know, or nobody's
	order *schedule.Order // nil with an unknown order
	geo   *chunker.Line   // nil with an unknown order
	line  *reorder.Line   // nil until it has a Logfile
	route *reorder.Router // while it is the target
	stale bool            // its order was changed while it was begun
	tried int             // how often its epoch's order had been said when it was last compared with this Logfile
}

// free gives back the layout. Nothing may use the line after that.
func (el *epochLine) free() {
	el.freeRoute()
	if el.geo != nil {
		el.geo.Free()
		el.geo = nil
	}
}

func (el *epochLine) freeRoute() {
	if el.route != nil {
		el.route.Free()
		el.route = nil
	}
}

type segState uint8

const (
	segAbsent segState = iota // not loaded in this pass
	segLoading
	segDone // loaded and, with a target, written on
)

// state is the epoch state machine: rule 1 of the design. cur is the older Logfile, which the pass goes over; tgt is being filled,
// and never changes while cur holds blocks. tgt is nil when nothing is to be written on: in the last epoch, or while the next order
// is not known; then cur stays as it is.
type state struct {
	cur, tgt *epochLine
	stray    *epochLine // recovered beside cur, while there is no tgt: it was being filled for an order that nobody has said yet
	segs     []segState // of cur
	loading  int
	drained  bool // the pass goes on undelivered

	begun    bool             // a request has come: before that nobody knows which epoch is wanted
	forced   *schedule.Order  // ingest: re-sort to this, and that is all
	from     *logfile.Logfile // leaving this one, even if it has that order; nil: any
	reading  int
	ranks    map[int]*rank
	lines    map[uint64]*epochLine // that a slot may hold
	lineID   uint64
	built    map[int]*epochLine // prepared for later epochs
	begins   *epochLine         // on its way from built to tgt
	building map[int]bool
	broken   error // the next epoch could not be laid out
	brokenAt time.Time

	matched float64 // share of the last 1,000 samples or so that lay in the window
	paused  bool
	idle    time.Time  // since when the pass has nothing it may load
	missing missReader // what is read ahead of the samples that the log does not keep
}

// passed reports whether nobody will ask for a segment in its place any more. Late ranks don't count; they are served by index.
func (e *Engine) passed(owner staging.Segment) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lines[owner.Line]
	if l == nil || l.epoch < 0 || l.geo == nil || l.geo.Starts[owner.Segment] >= uint64(l.geo.Used) || e.superseded(l, owner.Line) {
		return true
	}
	held := false
	for _, r := range e.ranks {
		if !e.needs(r, l, owner.Segment) {
			continue
		}
		if !r.late {
			return false
		}
		held = true
	}
	if held {
		e.counts.evicted++
	}
	return true
}

// superseded reports whether what a slot holds under a line's number comes again: in a later pass over its Logfile, or from one that was laid out
// for the same epoch since. Kept as well it could take all slots. e.mu is held.
func (e *Engine) superseded(l *epochLine, id uint64) bool {
	again := func(by *epochLine) bool { return by != nil && by != l && by.epoch == l.epoch }
	return id != l.line.ID || l != e.cur && l != e.tgt && (again(e.cur) || again(e.tgt))
}

// members lists the samples of a segment, for withdrawing their addresses.
func (e *Engine) members(owner staging.Segment, f func(sample.Index)) {
	e.mu.Lock()
	l := e.lines[owner.Line]
	e.mu.Unlock()
	if l == nil {
		return
	}
	l.line.Members(owner.Segment, f)
}

// active reports whether a rank asked lately or holds something; held is by process.
func (e *Engine) active(r *rank, held map[int]int64) bool {
	return !r.asked.IsZero() && (time.Since(r.asked) < e.opts.LateEpoch || held[r.pid] > 0)
}

// updateReading decides which epoch is being read: cur's as long as an active rank is in it, else the furthest that one asks for.
func (e *Engine) updateReading() {
	held := e.deliver.Held()
	furthest, any, inCur := 0, false, false
	var needed []int
	for _, r := range e.ranks {
		if !e.active(r, held) {
			continue
		}
		at := r.at(e.cache.Schedule)
		needed = append(needed, r.epoch, at)
		inCur = inCur || e.cur != nil && at == e.cur.epoch
		if !any || at > furthest {
			furthest, any = at, true
		}
	}
	switch {
	case inCur:
		e.reading = e.cur.epoch
	case any:
		e.reading = furthest
	}
	needed = append(needed, e.reading, e.reading+1)
	if e.tgt != nil {
		needed = append(needed, e.tgt.epoch+1)
	}
	e.cache.Schedule.SetNeeded(needed)
}

// next is the epoch that should be laid out while reading is read; -1: none.
func (e *Engine) next() int {
	if e.forced != nil {
		if e.inForcedOrder() {
			return -1
		}
		return 0
	}
	n := e.reading + 1
	switch {
	case e.inWindow(e.cur.epoch):
		n = e.cur.epoch + 1
	case e.sparse() && e.cache.Schedule.IsComplete(e.reading, e.opts.LateEpoch):
		n = e.reading
	}
	if n == e.cur.epoch || !e.cache.Schedule.IsComplete(n, e.opts.LateEpoch) {
		return -1
	}
	return n
}

// inWindow reports whether an epoch is the one that is read or the next one.
func (e *Engine) inWindow(epoch int) bool {
	return epoch >= 0 && (epoch == e.reading || epoch == e.reading+1)
}

// goesBack reports whether the log is on its way from a later epoch to the one that is read, because a job began anew: nobody wants what is
// loaded before it is there.
func (e *Engine) goesBack() bool {
	return e.tgt != nil && e.tgt.epoch == e.reading && e.cur.epoch > e.reading
}

// sparse reports whether the log that is read holds less than half of what it is to keep: then the epoch that is read is laid out for itself, and
// read from the source in its order, instead of by index.
func (e *Engine) sparse() bool {
	kept := e.cache.Record.KeptBytes
	if bytes := e.cache.Manifest.Bytes(); e.cache.Record.IsPacked() && bytes > 0 {
		kept = uint64(float64(kept) * float64(e.cache.Record.Stored) / float64(bytes))
	}
	return e.cur.line.Log.Held() < kept/2
}

// reordered: an epoch's order is another one than it was. What has no Logfile yet is laid out anew. Where a rank has taken back what it said, a
// Logfile in the old order is in nobody's, and is sorted again; where one more rank has spoken it is still good for the others.
func (e *Engine) reordered(epoch int, replaced bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if el := e.built[epoch]; el != nil {
		delete(e.built, epoch)
		el.free()
	}
	if !replaced {
		return
	}
	if e.begins != nil && e.begins.epoch == epoch {
		e.begins.stale = true
	}
	for _, el := range e.lines {
		if el.epoch == epoch {
			el.epoch = -1
		}
	}
	if e.missing.epoch >= epoch { // what is read ahead is listed by the old order
		e.missing.turn++
		e.missing.epoch, e.missing.blocked = -2, false
	}
}

// inForcedOrder reports whether a re-sort is over.
func (e *Engine) inForcedOrder() bool {
	return e.cur != nil && e.cur.order != nil && e.cur.order.Key == e.forced.Key && e.cur.line.Log != e.from
}
