package engine

import (
	"iter"
	"maps"
	"time"

	"lcache/reorder"
)

// The window serves jobs with the owner's order of an epoch as it serves the owner: eight searches with one seed share one scan of the log. Their ranks
// are companions of the owner's ranks. The window waits for a companion as long as for a rank of the owner (rule 2), and longer for one that makes
// progress: see grace. For a companion that is too slow, the prefetcher uses random reads until the companion's next epoch.

// compareOrders notes which jobs have the owner's orders in the epochs that the window serves. Only the mover calls it.
func (e *Engine) compareOrders() {
	type pair struct {
		j     *job
		epoch int
	}
	var open []pair
	e.mu.Lock()
	owner := e.owner
	for _, j := range e.jobs {
		if j == owner || !j.anyAsked() || j.importance.Load() != nil {
			continue
		}
		for _, l := range []*reorder.EpochLog{e.cur, e.tgt} {
			if l == nil || l.Epoch < 0 {
				continue
			}
			if _, compared := j.alike[l.Epoch]; !compared && j.schedule.IsKnown(l.Epoch) {
				open = append(open, pair{j, l.Epoch})
			}
		}
	}
	e.mu.Unlock()
	for _, p := range open {
		versions := func() [2]int { return [2]int{p.j.schedule.Version(p.epoch), owner.schedule.Version(p.epoch)} }
		before := versions()
		is := p.j.schedule.IsLike(owner.schedule, p.epoch)
		e.mu.Lock()
		if e.owner == owner && versions() == before { // if an order changes later, reordered deletes the result
			p.j.alike[p.epoch] = is
			maps.DeleteFunc(p.j.alike, func(epoch int, _ bool) bool { return !e.isNear(epoch) })
		}
		e.mu.Unlock()
	}
}

// isNear reports whether an epoch is the epoch of a Logfile, or the one before it, which companions may still read. e.mu is held.
func (e *Engine) isNear(epoch int) bool {
	for _, l := range []*reorder.EpochLog{e.cur, e.tgt} {
		if l != nil && (epoch == l.Epoch || epoch == l.Epoch-1) {
			return true
		}
	}
	return false
}

// forgetComparison discards the comparison of an epoch's orders, because the order of a job has changed. e.mu is held.
func (e *Engine) forgetComparison(j *job, epoch int) {
	delete(j.alike, epoch)
	if j != e.owner {
		return
	}
	for _, other := range e.jobs {
		delete(other.alike, epoch)
	}
}

// isLaidOutFor reports whether a log in the owner's order of an epoch is also in a job's order. e.mu is held.
func (e *Engine) isLaidOutFor(j *job, epoch int) bool {
	return j == e.owner || j.alike[epoch] && j.isConnected() && !j.onDemand.Load() && j.importance.Load() == nil
}

// windowRanks yields the ranks that an epoch's log is laid out for. These are all ranks of the owner, and the ranks of other jobs that are in this
// epoch or received the epoch before from the window. e.mu is held while it is used.
func (e *Engine) windowRanks(epoch int) iter.Seq2[*job, *rank] {
	return func(yield func(*job, *rank) bool) {
		for _, r := range e.owner.ranks {
			if !yield(e.owner, r) {
				return
			}
		}
		for j, r := range e.companions {
			at := j.at(r)
			if e.isLaidOutFor(j, epoch) && (at == epoch || at == epoch-1 && r.broughtTo == epoch-1) && !yield(j, r) {
				return
			}
		}
	}
}

// companions yields the ranks of other jobs that may keep slots of the log of their next epoch, or of the one after it. e.mu is held.
func (e *Engine) companions(yield func(*job, *rank) bool) {
	for _, j := range e.jobs {
		if j == e.owner {
			continue
		}
		for _, r := range j.ranks {
			at := j.at(r)
			if !r.asked.IsZero() && (e.isLaidOutFor(j, at) || e.isLaidOutFor(j, at+1)) && !yield(j, r) {
				return
			}
		}
	}
}

// hasReached reports whether a companion has reached the window: all samples of its next request are in slots, and the window has not passed it. e.mu is
// held.
func (e *Engine) hasReached(r *rank) bool {
	for _, index := range r.front() {
		if _, ok := e.cur.Layout.Delivers(index); ok && !e.staging.InSlot(index) {
			return false
		}
	}
	return rankSegment(r, e.cur) >= e.slowestSegment()
}

// A grace is how long the window waits for companions that make progress but are slower. It is at most 1/8 of an epoch's time, because a companion that
// leaves the window reads the rest of its epoch from the disk again. Pauses of the owner do not count towards an epoch's time, because a server may wait
// for days until the next job begins.
type grace struct {
	before time.Duration // how long the epoch before took
	took   time.Duration // how long this epoch has taken so far
	last   time.Time     // when the owner last received samples
	given  time.Duration // waited so far in this epoch
	until  time.Time     // when the last wait ends
}

const graceShare = 8 // a grace is an epoch's time divided by graceShare

// begin starts an epoch.
func (g *grace) begin() { *g = grace{before: g.took, last: g.last} }

// received adds the time since the owner last received samples, at most the given time.
func (g *grace) received(now time.Time, most time.Duration) {
	if !g.last.IsZero() {
		g.took += min(max(now.Sub(g.last), 0), most)
	}
	g.last = now
}

// cost returns the time that another wait adds. Requests that wait at the same time count once.
func (g *grace) cost(now time.Time, wait time.Duration) time.Duration {
	if left := g.until.Sub(now); left > 0 {
		return max(wait-left, 0)
	}
	return wait
}

// has reports whether the window may wait again.
func (g *grace) has(now time.Time, wait time.Duration) bool {
	return g.given+g.cost(now, wait) <= max(g.before, g.took)/graceShare
}

// take counts a wait.
func (g *grace) take(now time.Time, wait time.Duration) {
	g.given += g.cost(now, wait)
	g.until = now.Add(wait)
}
