package engine

import (
	"iter"
	"maps"
	"time"

	"lcache/reorder"
)

// Jobs that have the owner's order of an epoch are served by the window as the owner is: eight searches with one seed are one pass over the log. Their ranks are companions
// of the owner's ranks. The window waits for a companion as long as for a rank of the owner (rule 2), and a little longer for one that makes progress: see grace. One that was too slow is read ahead for
// by location until its next epoch.

// compareOrders notes which jobs have the owner's orders of the epochs that the window is at. Only the mover calls it.
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
		if e.owner == owner && versions() == before { // reordered forgets what changes later
			p.j.alike[p.epoch] = is
			maps.DeleteFunc(p.j.alike, func(epoch int, _ bool) bool { return !e.isNear(epoch) })
		}
		e.mu.Unlock()
	}
}

// isNear reports whether an epoch is that of a Logfile, or the one before, which companions may still read. e.mu is held.
func (e *Engine) isNear(epoch int) bool {
	for _, l := range []*reorder.EpochLog{e.cur, e.tgt} {
		if l != nil && (epoch == l.Epoch || epoch == l.Epoch-1) {
			return true
		}
	}
	return false
}

// forgetLikeness has an epoch's orders compared again: that of one of the jobs has changed. e.mu is held.
func (e *Engine) forgetLikeness(j *job, epoch int) {
	delete(j.alike, epoch)
	if j != e.owner {
		return
	}
	for _, other := range e.jobs {
		delete(other.alike, epoch)
	}
}

// isLaidOutFor reports whether a log in the owner's order of an epoch is in the order of a job, too. e.mu is held.
func (e *Engine) isLaidOutFor(j *job, epoch int) bool {
	return j == e.owner || j.alike[epoch] && j.isConnected() && !j.onDemand.Load() && j.importance.Load() == nil
}

// windowRanks returns the ranks that a log of an epoch is laid out for: all of the owner's, and of other jobs those that are in this epoch, or that the window has brought
// the epoch before. e.mu is held while it is used.
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

// companions calls yield with the ranks of other jobs that slots may be kept for: of a log of the epoch that they come to next, or of the one after it. e.mu is held.
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

// hasReached reports whether a companion is where the window is: all that it asks for next lies in slots, and the window has not passed it. e.mu is held.
func (e *Engine) hasReached(r *rank) bool {
	for _, index := range r.front() {
		if _, ok := e.cur.Line.Delivers(index); ok && !e.staging.InSlot(index) {
			return false
		}
	}
	return floor(r, e.cur) >= e.hindmost()
}

// A grace is how long the window waits for companions that make progress but are slower: at most 1/8 of an epoch, because a companion that leaves the window reads the rest of its epoch from the disk again.
// Pauses of the owner are no part of an epoch's time: a server may wait for days until the next job begins.
type grace struct {
	before time.Duration // that the epoch before took
	took   time.Duration // that this epoch has taken
	last   time.Time     // when the owner received samples for the last time
	given  time.Duration // in this epoch
	until  time.Time     // when the last wait ends
}

const graceShare = 8 // an epoch's time is this many times its grace

// begin starts an epoch.
func (g *grace) begin() { *g = grace{before: g.took, last: g.last} }

// received counts the time since the owner received samples before. A pause counts as most.
func (g *grace) received(now time.Time, most time.Duration) {
	if !g.last.IsZero() {
		g.took += min(max(now.Sub(g.last), 0), most)
	}
	g.last = now
}

// cost is what another wait adds: requests that wait at the same time wait once.
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
