package session

import (
	"maps"
	"time"
)

// A session's orders are published first; its file follows, on a goroutine of its own. An epoch's first request waits until the file has the order, so that a server that is killed goes on with it. It does not
// wait longer than a part of its timeout: a disk that hangs costs the order after a restart, not the training.

// fileShare is the part of a request's time that the file may take: 1/fileShare.
const fileShare = 3

// fileProgress says which orders the file has. A time is an argument of each method. Session.mu is held.
type fileProgress struct {
	version int64                // of the state: grows at each boundary
	saved   int64                // that the file has
	late    bool                 // the file hangs: no order waits for it
	pending map[int]pendingOrder // by epoch
}

// pendingOrder is an order that is published and not in the file yet.
type pendingOrder struct {
	version int64     // of the file that has it
	since   time.Time // when it was published
}

// published notes that the schedule has an epoch's order.
func (f *fileProgress) published(now time.Time, epoch int) {
	delete(f.pending, epoch)
	if f.saved < f.version && !f.late {
		f.pending[epoch] = pendingOrder{f.version, now}
	}
}

// left returns how long a request waits for the file to have an epoch's order, and whether the file is given up now: most is the time for it.
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

// has notes that the file has a version of the state, or never will.
func (f *fileProgress) has(version int64) {
	f.saved, f.late = version, false
	maps.DeleteFunc(f.pending, func(_ int, o pendingOrder) bool { return o.version <= version })
}

// save has the state written, after each boundary. No lock is held: only the worker changes the state.
func (w *worker) save() {
	w.mu.Lock()
	version := w.orders.file.version
	w.mu.Unlock()
	if err := w.file.Save(w.state, version); err != nil {
		w.o.Log.Warn("there is no memory to save the importance of a job: a server that is started again draws other orders", "name", w.o.Config.Name, "err", err)
		w.saved(version)
	}
}

// saved notes that the file has a version of the state, or never will.
func (s *Session) saved(version int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders.file.has(version)
	s.orders.wakeWaiters()
}

// IsSaved reports whether the boundary that an epoch begins with is made, and is in the file.
func (s *Session) IsSaved(epoch int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.positions.epoch == epoch && s.orders.file.saved == s.orders.file.version
}

// warnOfFile says that an epoch begins before the file has its order.
func (s *Session) warnOfFile(epoch int) {
	s.o.Log.Warn("the importance of a job is not saved in time, and an epoch begins without: a server that is started again now draws other orders; look at the disk (dmesg)",
		"name", s.o.Config.Name, "epoch", epoch, "waited", s.o.Timeout/fileShare)
}
