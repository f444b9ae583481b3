package engine

import (
	"time"

	"lcache/internal/serve/status"
)

// wear is what the drives are written now. e.mu is held.
func (e *Engine) wear(written int64) (w status.Wear) {
	then := e.owner.counts.before
	if then.at.IsZero() {
		then = totals{at: e.started}
	}
	d := e.cache.Disk()
	w.EndurancePerDay, w.DriveBytes = int64(min(d.WearPerDay, 1e18)), d.DriveBytes
	w.PerDay(written-then.logWrite, time.Since(then.at).Seconds())
	return w
}
