package engine

import "time"

// Wear is the part of CacheStatus about what is written to the drives. An unknown figure is 0.
type Wear struct {
	WrittenPerDay     int64   `json:"written_per_day_bytes"`   // at the rate of the epoch that is read and the one before it
	DriveWritesPerDay float64 `json:"drive_writes_per_day"`    // the same as a part of drive_bytes
	EndurancePerDay   int64   `json:"endurance_per_day_bytes"` // what the drives are meant for
	DriveBytes        float64 `json:"drive_bytes"`             // the size of the file systems that the cache lies on
}

// PerDay is what so many bytes in a time are in a day; a time of less than a minute says nothing of a day.
func (w *Wear) PerDay(written int64, seconds float64) {
	if seconds < 60 || written < 0 {
		return
	}
	rate := float64(written) / seconds * (24 * time.Hour).Seconds()
	w.WrittenPerDay = int64(rate)
	if w.DriveBytes > 0 {
		w.DriveWritesPerDay = rate / w.DriveBytes
	}
}

// wear is what the drives are written now. e.mu is held.
func (e *Engine) wear(written int64) (w Wear) {
	then := e.owner.counts.before
	if then.at.IsZero() {
		then = totals{at: e.started}
	}
	d := e.cache.Disk()
	w.EndurancePerDay, w.DriveBytes = int64(min(d.WearPerDay, 1e18)), d.DriveBytes
	w.PerDay(written-then.logWrite, time.Since(then.at).Seconds())
	return w
}
