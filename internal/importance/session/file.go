package session

import (
	"maps"
	"time"
)

// A session publishes its orders first. A goroutine writes the file afterwards. The first request of an epoch waits
// until the file has the order, so that a server that was killed continues with the same order. It waits for at most
// a part of its timeout. So a hung disk costs the order after a restart, but does not stop the training.

// fileShare limits the wait for the file to 1/fileShare of a request's timeout.
const fileShare = 3

// fileProgress tracks which orders the file has. Each method gets the time as an argument. Session.mu is held.
type fileProgress struct {
	version int64                // of the state; it grows at each boundary
	saved   int64                // newest version that the file has
	late    bool                 // the file hangs, so requests do not wait for it
	pending map[int]pendingOrder // by epoch
}

// pendingOrder is a published order that the file does not have yet.
type pendingOrder struct {
	version int64     // the first version of the state with the order
	since   time.Time // when it was published
}

// published notes that the schedule has an epoch's order.
func (f *fileProgress) published(now time.Time, epoch int) {
	delete(f.pending, epoch)
	if f.saved < f.version && !f.late {
		f.pending[epoch] = pendingOrder{f.version, now}
	}
}

// left returns how long a request should wait until the file has an epoch's order. most is the time for the file;
// when that is over, late is true.
func (f *fileProgress) left(now time.Time, epoch int, most time.Duration) (left time.Duration, late bool) {
	o, waits := f.pending[epoch]
	if !waits {
		return 0, false
	}
	if left = o.since.Add(most).Sub(now); left > 0 {
		return left, false
	}
	f.late = true
	clear(f.pending)
	return 0, true
}

// has notes that the file has a version of the state, or that writing it failed.
func (f *fileProgress) has(version int64) {
	f.saved, f.late = version, false
	maps.DeleteFunc(f.pending, func(_ int, o pendingOrder) bool { return o.version <= version })
}

// save queues the state for writing, after each boundary. No lock is held, because only the worker changes the state.
func (w *worker) save() {
	w.mu.Lock()
	version := w.orders.file.version
	w.mu.Unlock()
	if err := w.file.Save(w.state, version); err != nil {
		w.o.Log.Warn("cannot save the importance of a job, for lack of memory: after a restart the server would draw other orders", "name", w.o.Config.Name, "err", err)
		w.saved(version)
	}
}

// saved notes that the file has a version of the state, or that writing it failed.
func (s *Session) saved(version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders.file.has(version)
	s.orders.wakeWaiters()
}

// IsSaved reports whether the boundary at the beginning of an epoch is made and in the file.
func (s *Session) IsSaved(epoch int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.positions.epoch == epoch && s.orders.file.saved == s.orders.file.version
}

// warnOfFile logs that an epoch begins before the file has its order.
func (s *Session) warnOfFile(epoch int) {
	s.o.Log.Warn("the importance of a job is not saved in time; the epoch begins anyway, but after a restart now the server would draw other orders; look at the disk (dmesg)",
		"name", s.o.Config.Name, "epoch", epoch, "waited", s.o.Timeout/fileShare)
}
