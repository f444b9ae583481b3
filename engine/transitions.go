package engine

import "log/slog"

// logfiles is the state of both Logfiles, the window and the mover. It is logged, so that the log's messages explain how an epoch came to be
// read as it was.
type logfiles struct {
	read, target       int // epochs; -1: no Logfile, or one in an unknown order
	hasTarget, sorting bool
	recovered          bool // the log that is read was found at the start, and its order is known
	loaded             int  // segments of the log that is read that are in slots
	scanned            bool // all segments of the log that is read are scanned
	served             int  // ranks that the window has served in the epoch of the log that is read
	inWindow           int  // ranks that the window serves now, or serves as soon as their log is read
	waits              bool // the mover waits, and nothing is being loaded
}

// logTransition logs the state of the Logfiles if it differs from the last one that was logged, and returns it. moved says that the mover has taken a
// step. Only the mover calls it.
func (e *Engine) logTransition(last *logfiles, moved bool) *logfiles {
	if !e.cache.Logger.Enabled(e.ctx, slog.LevelDebug) {
		return nil
	}
	e.mu.Lock()
	now := e.logfiles(moved)
	e.mu.Unlock()
	if last == nil || now != *last {
		e.cache.Logger.Debug("Logfiles", "read", now.read, "target", now.target, "has_target", now.hasTarget, "sorting", now.sorting, "recovered", now.recovered,
			"loaded", now.loaded, "scanned", now.scanned, "served", now.served, "in_window", now.inWindow, "waits", now.waits)
	}
	return &now
}

// logfiles returns the state of the Logfiles now. e.mu is held.
func (e *Engine) logfiles(moved bool) logfiles {
	now := logfiles{read: -1, target: -1, hasTarget: e.tgt != nil, sorting: e.tgt != nil && e.beginning.sorting, waits: !moved && e.loading == 0}
	if e.tgt != nil {
		now.target = e.tgt.Epoch
	}
	if e.cur == nil {
		return now
	}
	now.read, now.recovered = e.cur.Epoch, e.cur.Layout != nil && e.cache.WasRecovered(e.cur.Log.Num())
	now.scanned = e.firstUnscanned() < 0
	for _, s := range e.segs {
		if s == segDone {
			now.loaded++
		}
	}
	for _, j := range e.jobs {
		for _, r := range j.ranks {
			if r.asked.IsZero() {
				continue
			}
			if r.inWindow {
				now.inWindow++
			}
			if r.broughtTo == e.cur.Epoch && e.cur.Epoch >= 0 {
				now.served++
			}
		}
	}
	return now
}
