package logfile

import (
	"sync"
	"time"
)

const (
	// asideErrors errors within asideWindow quarantine a device, and so does no answer for Options.Deadline.
	asideErrors = 3
	asideWindow = time.Minute

	// hungTicks consecutive ticks with transfers in flight and none completed are a deadline. Ticks are counted instead of time, so that a
	// process that was stopped for a while does not blame its disks.
	hungTicks = 7

	// patientWrites is the ratio of a write's deadline to a read's, because a write may wait for the device to flush its cache.
	patientWrites = 2

	// mostProbeWait bounds the wait between two probes, in units of the first wait.
	mostProbeWait = 64
)

// health is the state of one direction of a device, reading or writing:
//
//	normal ── three errors in a minute, or nothing completes by the deadline ──▶ aside ── a probe succeeds ──▶ normal
//
// While a device is aside (quarantined), the Store only probes it. The wait doubles from probe to probe. It starts over with the first
// one only if the device stayed normal for longer than the last wait. So an unstable device is probed more and more rarely, but never
// abandoned. Reading and writing have separate states because a file system that turned read-only can still be read.
type health struct {
	most     int           // errors within asideWindow that quarantine it
	patience int           // ticks without a completion that count as a hang
	first    time.Duration // wait for the first probe

	mu       sync.Mutex // guards the fields that follow
	aside    bool
	gone     chan struct{} // closed while aside
	recent   []time.Time   // of the last errors, at most `most`
	errors   uint64
	asides   uint64
	last     error // why it was quarantined last, or the last error
	inFlight int   // transfers
	ended    bool  // a transfer ended since the last tick
	idle     int   // consecutive ticks without a completion
	wait     time.Duration
	next     time.Time // the next probe
	back     time.Time // end of the last quarantine
}

func newHealth(most, patience int, first time.Duration) *health {
	return &health{most: most, patience: patience, first: first, gone: make(chan struct{})}
}

// isQuarantined reports whether the device is quarantined.
func (h *health) isQuarantined() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.aside
}

// left returns a channel that is closed while the device is quarantined.
func (h *health) left() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gone
}

// began counts a transfer.
func (h *health) began() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.inFlight++; h.inFlight == 1 {
		h.idle = 0
	}
}

// done counts a transfer's end, and reports whether that quarantined the device.
func (h *health) done(now time.Time, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inFlight--
	h.ended = true
	if err == nil {
		return false
	}
	h.errors++
	h.last = err
	h.recent = append(h.recent, now)
	if len(h.recent) > h.most {
		h.recent = h.recent[1:]
	}
	if h.aside || len(h.recent) < h.most || now.Sub(h.recent[0]) > asideWindow {
		return false
	}
	h.quarantineLocked(now)
	return true
}

// tick looks for a hang, and reports whether that quarantined the device.
func (h *health) tick(now time.Time, hung error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || h.inFlight == 0 || h.aside {
		h.ended, h.idle = false, 0
		return false
	}
	if h.idle++; h.idle < h.patience {
		return false
	}
	h.errors++
	h.last = hung
	h.quarantineLocked(now)
	return true
}

// put quarantines the device for the caller's reason.
func (h *health) put(now time.Time, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = why
	if !h.aside {
		h.quarantineLocked(now)
	}
}

func (h *health) quarantineLocked(now time.Time) {
	h.aside = true
	h.asides++
	close(h.gone)
	if h.wait == 0 || now.Sub(h.back) > h.wait {
		h.wait = h.first
	}
	h.next = now.Add(h.wait)
}

// due reports whether it is time for a probe.
func (h *health) due(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.aside && !now.Before(h.next)
}

// probed ends the quarantine, or doubles the wait for the next probe.
func (h *health) probed(now time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.aside {
		return
	}
	h.wait = min(2*h.wait, mostProbeWait*h.first)
	if err != nil {
		h.errors++
		h.last = err
		h.next = now.Add(h.wait)
		return
	}
	h.aside = false
	h.back = now
	h.gone = make(chan struct{})
	h.recent, h.idle, h.ended = h.recent[:0], 0, false
}

// report returns the state for the status document.
func (h *health) report() (aside bool, errors, asides uint64, last error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.aside, h.errors, h.asides, h.last
}
