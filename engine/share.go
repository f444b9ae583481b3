package engine

import "lcache/fetch"

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
}

// depth returns how many reads by place may be in flight; 0: as many as the device wants. A sort comes first, because the window is to take over. Where the next
// epoch's log is being written, the pass is to get to its end when the ranks get to theirs.
func (s sharing) depth() int {
	switch {
	case s.inWindow:
		return fetch.BesideTheWindow
	case !s.moving || s.measuring:
		return 0
	case s.sorting, s.sweeping && (s.moved < s.read || s.begun):
		return fetch.BesideThePass
	}
	return 0
}

// shareDevice bounds what the prefetcher keeps in flight beside the pass. e.mu is held.
func (e *Engine) shareDevice(v *view) {
	s := sharing{inWindow: e.anyInWindow(), moving: v.tgt.exists && !v.inWindow(), measuring: e.beginning.measuring}
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
