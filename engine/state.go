package engine

import (
	"time"

	"lcache/chunker"
	"lcache/logfile"
	"lcache/reorder"
	"lcache/sample"
	"lcache/staging"
)

// An epochLine is a layout and, once begun or recovered, the Logfile that has it.
type epochLine struct {
	epoch int             // -1: an order that this job does not know, or nobody's
	order *epochOrder     // nil with an unknown order
	geo   *chunker.Line   // nil with an unknown order
	line  *reorder.Line   // nil until it has a Logfile
	route *reorder.Router // while it is the target
}

type segState uint8

const (
	segAbsent segState = iota // not loaded in this pass
	segLoading
	segDone // loaded and, with a target, written on
)

// A rank is how far one rank has come. Ranks that never attached count as being at the start.
type rank struct {
	pid      int
	epoch    int
	batch    int  // asked for last
	finished bool // with epoch: its last batch is delivered
	asked    time.Time
	indices  []sample.Index // of that batch
	hungry   bool           // it waited for a slot in vain: it does not wait again before it was served from the window
	late     bool           // it holds the window no longer: served by index until it is back in it
	missFrom int            // batches before it are not read ahead any more
	seen     int            // the epoch of the last request, also of one that differed from the schedule
	floorOf  uint64         // the line that floor is for
	floor    int            // the segment that the rank is at
}

// at is the epoch that the rank will ask for next.
func (r *rank) at(s *schedule) int {
	if r.finished && s.exists(r.epoch+1) {
		return r.epoch + 1
	}
	return r.epoch
}

// state is the epoch state machine: rule 1 of the design. cur is the older Logfile, which the pass goes over; tgt is being filled,
// and never changes while cur holds blocks. tgt is nil when nothing is to be written on: in the last epoch, or while the next order
// is not known; then cur stays as it is.
type state struct {
	cur, tgt *epochLine
	segs     []segState // of cur
	loading  int
	drained  bool // the pass goes on undelivered

	begun    bool             // a request has come: before that nobody knows which epoch is wanted
	forced   *epochOrder      // ingest: re-sort to this, and that is all
	from     *logfile.Logfile // leaving this one, even if it has that order; nil: any
	reading  int
	ranks    map[int]*rank
	lines    map[uint64]*epochLine // that a slot may hold
	lineID   uint64
	built    map[int]*epochLine // prepared for later epochs
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
	if l == nil || l.epoch < 0 || l.geo == nil || l.geo.Starts[owner.Segment] >= uint64(l.geo.Used) {
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

// needs reports whether a rank has still to pass a segment.
func (e *Engine) needs(r *rank, l *epochLine, seg int) bool {
	switch at := r.at(e.schedule); {
	case at > l.epoch || r.finished && r.epoch == l.epoch:
		return false
	case at < l.epoch || r.finished || r.indices == nil:
		return true
	}
	return seg >= e.floor(r, l)
}

// floor is the segment that a rank's last request begins in.
func (e *Engine) floor(r *rank, l *epochLine) int {
	if r.floorOf == l.line.ID {
		return r.floor
	}
	r.floorOf, r.floor = l.line.ID, 0
	for _, index := range r.indices {
		if seg := l.geo.Segment[index]; seg != chunker.None {
			r.floor = int(seg)
			break
		}
	}
	return r.floor
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
	furthest, any := 0, false
	for _, r := range e.ranks {
		if !e.active(r, held) {
			continue
		}
		at := r.at(e.schedule)
		if e.cur != nil && at == e.cur.epoch {
			e.reading = at
			return
		}
		if !any || at > furthest {
			furthest, any = at, true
		}
	}
	if any {
		e.reading = furthest
	}
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
	if e.cur.epoch >= 0 && (e.cur.epoch == e.reading || e.cur.epoch == e.reading+1) {
		n = e.cur.epoch + 1
	}
	if n == e.cur.epoch || !e.schedule.known(n) {
		return -1
	}
	return n
}

// inForcedOrder reports whether a re-sort is over.
func (e *Engine) inForcedOrder() bool {
	return e.cur != nil && e.cur.order != nil && e.cur.order.key == e.forced.key && e.cur.line.Log != e.from
}
