package engine

import "lcache/chunker"

// A standing is the progress of a rank.
type standing struct {
	asked    bool // if false, it has requested nothing, and counts as being at the start
	epoch    int
	batch    int  // the first undelivered one
	finished bool // the epoch
	moves    bool // it has received samples since the request began to wait
}

// isBehind reports whether a rank has not yet passed the position of another one.
func (s standing) isBehind(other standing) bool {
	switch {
	case !s.asked:
		return true
	case s.epoch != other.epoch:
		return s.epoch < other.epoch
	case s.finished != other.finished:
		return other.finished
	}
	return s.batch < other.batch
}

// patienceView is the state when a request has waited for a slot for longer than its patience. Every case is a paragraph of testdata/patience.txt.
type patienceView struct {
	epoch, batch  int // of the request
	me            standing
	waits         bool                         // some request is for the rank's first undelivered batch
	left          int                          // the rank's first undelivered batch from the request's batch on
	others        map[chunker.JobRank]standing // the other ranks that the window serves
	grace         bool                         // the window may wait longer for companions that make progress
	cur           logView                      // the log that is read
	slotless      bool                         // clients have held all slots for as long as a request may wait
	nearlyDrained bool                         // the scan begins the request's epoch soon
}

// patienceAction moves the window.
type patienceAction struct {
	leave   bool              // give up the rank's batches before the request's: no worker seems to want them
	late    []chunker.JobRank // ranks that are served by index from now on
	waits   bool              // wait for companions that make progress
	givesUp bool              // the rank does not wait for a slot until the window has served it again
}

// decidePatience decides how the window moves on. Ranks behind the request hold up the window. They are served by index from now on, unless they make
// progress and grace is left.
//
// If no rank is behind, or the request is for another epoch than the log's, the rank of the request gives up. If the scan begins its epoch soon, it waits
// instead, because that takes less time than reads by index. A rank that gives up grants no grace to others: it does not wait again, so it would not
// notice the end of the grace.
func decidePatience(v patienceView) (a patienceAction) {
	me, inPlace, soon := v.me, v.cur.exists && v.epoch == v.cur.epoch, v.nearlyDrained && !v.slotless
	if me.epoch == v.epoch && me.batch < v.batch && !v.waits { // the rank's first batch is slower than the window's patience, or was left out
		a.leave, me.batch = true, v.left
	}
	for n, other := range v.others {
		switch {
		case !other.isBehind(me):
		case other.moves && v.grace && (inPlace || soon):
			a.waits = true
		default:
			a.late = append(a.late, n)
		}
	}
	moved := a.leave || a.waits || len(a.late) > 0
	a.givesUp = !(moved && inPlace) && !soon
	return a
}
