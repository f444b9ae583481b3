package engine

import (
	"time"

	"lcache/fetch"
)

// The pass reads few large pieces, the prefetcher many small ones. A device that is limited in operations serves them in turn, so that what one has in flight keeps the
// other waiting. What the prefetcher may have in flight says how they share the device.

// sharing is what the depth of the prefetcher depends on.
type sharing struct {
	inWindow  bool    // ranks are served by the window, so that what is read by place is for others
	moving    bool    // a log that no rank reads in place is being moved
	sorting   bool    // into the epoch that is read
	sweeping  bool    // a part of it is left to be moved
	begun     bool    // the log that is moved to is of the epoch that is read
	measuring bool    // reads in order are being measured, which sets the depth itself
	moved     float64 // part of the log
	read      float64 // part of what was left of the epoch when the move began
	others    float64 // samples an epoch of the largest other job that reads, as a part of the owner's; 0: no other job reads
}

// depth returns how many reads by place may be in flight; 0: as many as the device wants. Beside the window a small job, as a validation pass, has fewer than a job
// that reads as much as the owner. A sort comes first, because the window is to take over; another job has as many beside it as the owner. Where the next epoch's log
// is being written, the pass is to get to its end when the ranks get to theirs.
func (s sharing) depth() int {
	switch {
	case s.inWindow && s.others > 0:
		return fetch.LeastBesideTheWindow + int(min(1, s.others)*(fetch.BesideTheWindow-fetch.LeastBesideTheWindow))
	case s.inWindow:
		return fetch.BesideTheWindow
	case !s.moving || s.measuring:
		return 0
	case s.sorting && s.others > 0:
		return 2 * fetch.BesideThePass
	case s.sorting, s.sweeping && (s.moved < s.read || s.begun):
		return fetch.BesideThePass
	}
	return 0
}

// shareDevice bounds what the prefetcher keeps in flight beside the pass. e.mu is held.
func (e *Engine) shareDevice(v *view) {
	s := sharing{inWindow: e.anyInWindow(), moving: v.tgt.exists && !v.inWindow(), measuring: e.beginning.measuring, others: e.others()}
	if s.moving {
		_, left := e.epochBytes(v.readEpoch)
		s.sorting, s.sweeping, s.begun = v.sorting, v.unswept >= 0, v.readEpoch == v.tgt.epoch
		s.moved, s.read = float64(v.unswept)/float64(max(1, len(e.segs))), 1-float64(left)/float64(max(1, e.beginning.left))
	}
	if depth := s.depth(); depth != e.beginning.depth {
		e.beginning.depth = depth
		e.prefetcher.SetDepth(depth)
	}
}

// others returns how many samples an epoch the largest other job reads that has asked lately, as a part of the owner's. e.mu is held.
func (e *Engine) others() float64 {
	most := 0
	for _, j := range e.jobs {
		for _, r := range j.ranks {
			if j != e.owner && !r.asked.IsZero() && time.Since(r.asked) < e.opts.LateEpoch {
				most = max(most, j.schedule.Samples(r.epoch))
			}
		}
	}
	owner := 1
	for _, r := range e.owner.ranks {
		owner = max(owner, e.owner.schedule.Samples(r.epoch))
	}
	return float64(most) / float64(owner)
}
