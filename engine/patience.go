package engine

import "lcache/chunker"

// A standing is how far a rank has come.
type standing struct {
	asked    bool // else it never attached, and counts as being at the start
	epoch    int
	batch    int  // the first that is not delivered
	finished bool // the epoch
	moves    bool // it has received samples since the request began to wait
}

// isBehind reports whether a rank has still to pass what another one has passed.
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

// patienceView is the state after a request has waited for a slot until its patience was over. Every case is a paragraph of testdata/patience.txt.
type patienceView struct {
	epoch, batch  int // of the request
	me            standing
	waits         bool                         // somebody has asked for the rank's first batch that is not delivered
	left          int                          // the rank's first batch that is not delivered, from the request's on
	others        map[chunker.JobRank]standing // that the window serves as well, and that are not late
	grace         bool                         // the window may wait longer for companions that move
	cur           logView                      // the log that is read
	slotless      bool                         // clients have held all slots for as long as a request waits
	nearlyDrained bool                         // the scan begins the request's epoch before long
}

// patienceAction moves the window.
type patienceAction struct {
	leave   bool              // the rank's batches before the request's are given up: no worker seems to want them
	late    []chunker.JobRank // that are served by index from now on
	waits   bool              // for companions that move
	givesUp bool              // the rank waits for no slot before it was served from the window again
}

// decidePatience decides how the window moves on. Ranks behind the request hold up the window, and are served by index from now on, unless they move and there is grace. If there is none, or the request is for another epoch than
// the log's, the rank itself gives up. Except if the scan begins its epoch before long: then waiting takes less time than reads by index. A rank that gives up gives nobody grace: it does not wait again, so it would not notice that
// the grace is over.
func decidePatience(v patienceView) (a patienceAction) {
	me, inPlace, soon := v.me, v.cur.exists && v.epoch == v.cur.epoch, v.nearlyDrained && !v.slotless
	if me.epoch == v.epoch && me.batch < v.batch && !v.waits { // the one in front is slower than the window may be, or was left out
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
