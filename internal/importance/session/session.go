// Package session draws the orders of one job by importance. A Session receives the observations of training
// processes, ends an epoch when its ranks do, draws the order of the next epoch, and pushes it to the job's schedule.
// It saves its state in a file, so that a restarted server draws the same orders.
//
// One goroutine, the worker, owns the state (state.State). It makes the boundary between two epochs when
// decideBoundary says so. A request waits for the worker only at the beginning of an epoch, for that epoch's order.
// The package reads no samples. Its owner passes in memory and packages, and the worker begins each epoch of them.
//
// Methods of a Session may be called concurrently.
//
// There are three locks, taken in this order. Session.stateMu is held while the state changes, or while View reads
// it. Session.mu guards the data of requests: positions and published orders. inbox.mu guards the worker's queue.
package session

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"lcache/internal/disk/durable"
	"lcache/internal/importance/draw"
	"lcache/internal/importance/memory"
	"lcache/internal/importance/score"
	"lcache/internal/importance/state"
	"lcache/internal/memquota"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
	"lcache/sample"
)

// Host is the server of a session's job. The worker calls it without a lock, except Units, which is called under
// Session.stateMu while an order is drawn.
type Host interface {
	// LaidOut returns the epochs for which the job has a layout or a Logfile, in ascending order.
	LaidOut() []int
	// OrderChanged is called after the order of an epoch changed in the schedule. replaced says that there was an order
	// or partial order before, so the epoch's layout is stale.
	OrderChanged(epoch int, replaced bool)
	// OrderPublished is called for each rank after an epoch's order is complete, so that the prefetcher can continue.
	OrderPublished(epoch, rank int)
	// Wake is called after orders were published or retracted.
	Wake()
	// Units lists groups of L-samples that are stored together on the disk, for a job whose L-samples may replace each
	// other.
	Units(high *sample.Set, epoch int, seed uint64) [][]sample.Index
}

// Options configure a Session. They never change.
type Options struct {
	Config   state.Config
	Manifest *sample.Manifest
	Schedule *schedule.Schedule // of the job; no other code pushes orders to it
	Host     Host
	Log      *slog.Logger

	High          *memory.High          // samples that the policy keeps
	Opportunistic *memory.Opportunistic // samples that were read opportunistically; nil: none are
	// BeginPackages begins an epoch of the packages, which own its set of H-samples from then on; nil: L-samples stay where they are.
	BeginPackages func(high *sample.Set)

	Observations *memquota.Share // memory for queued observations, of all jobs
	Orders       *memquota.Share // memory for the job's orders

	Path  string // of the file
	Trace durable.Trace
	Room  func(bytes int64) error // returns an error if a version of the file has no room

	Epochs    int              // of the job; 0: unknown
	LateEpoch time.Duration    // how long ranks wait for another rank; a rank that was silent for this long may be gone
	Timeout   time.Duration    // of one request
	Now       func() time.Time // the clock
}

// Session is the importance of one job.
type Session struct {
	o       Options
	inbox   *inbox
	ended   chan struct{} // closed when the worker ends
	file    *state.Saver
	status  atomic.Pointer[status.Importance]
	isDrawn atomic.Bool // an order that was drawn is known

	stateMu sync.Mutex
	state   *state.State // only the worker changes it

	mu        sync.Mutex // guards the fields that follow
	positions positions
	orders    announced
}

// announced has the orders that requests may read.
type announced struct {
	given     map[int]bool       // epochs whose orders were pushed to the schedule, which may have dropped early ones
	requested map[int]*Requested // by epoch; only epochs with substitutes
	changed   chan struct{}      // closed when an order is published, or err changes
	err       error              // set after the last order: why no more will come
	giveErr   error              // why a drawn order is not published
	stopped   bool
	file      fileProgress
}

// worker is the state of the worker's goroutine. New uses it before the goroutine runs.
type worker struct {
	*Session
	ctx context.Context // of the server

	partial int       // epoch with a partial order in the schedule; -1: none
	tried   time.Time // when publishing an order failed

	early      []score.Observation // observations of the epoch after the trained one
	earlyBytes int64
	looked     bool // ranks re-evaluated unstable samples in this epoch

	// Counters of the status.
	undelivered, missed int64
	loaded, loads       int64      // loaded: bytes that the newest plan loads at once; loads: units that all plans load
	shape               draw.Shape // of the epoch in shapeOf
	shapeOf             int
}

// New restores or begins the state of a job, pushes the known orders to the schedule, and starts the worker. ctx ends
// with the server.
func New(ctx context.Context, o Options) (*Session, error) {
	st, err := state.Open(o.Config, o.Path, state.Dataset{Fingerprint: o.Manifest.Fingerprint().String(), Labels: o.Manifest.Labels(), Sizes: o.Manifest.Sizes()}, o.Schedule.Replays(), o.Log)
	if err != nil {
		return nil, fmt.Errorf("importance %s: %w", o.Config.Name, err)
	}
	s := &Session{o: o, inbox: newInbox(o.Observations), ended: make(chan struct{}), state: st}
	s.orders = announced{given: map[int]bool{}, requested: map[int]*Requested{}, changed: make(chan struct{}), file: fileProgress{version: 1, pending: map[int]pendingOrder{}}}
	s.positions = positions{world: o.Config.WorldSize, silence: o.LateEpoch, published: s.isPublished, epoch: st.Epoch(), ranks: map[int]*rankState{}}
	s.file = state.NewSaver(o.Path, o.Trace, o.Log, s.saved)
	s.file.Room = o.Room
	w := &worker{Session: s, ctx: ctx, partial: -1, shapeOf: -1}
	if o.Config.Policy == "paper" { // other policies decide by orders and targets
		st.OnObserve = o.High.Observe
	}
	st.Serve = w.plan
	if o.Config.Policy != "next-use" { // next-use instead follows the greatest values beyond the end of an epoch
		st.Held = o.High.Held().Set
	}
	st.OnNode = o.High.OnNode()
	if err := st.Advance(st.Epoch(), score.Progress{}); err != nil {
		st.Close()
		return nil, fmt.Errorf("importance %s: %w", o.Config.Name, err)
	}
	w.begin()
	go w.work()
	return s, nil
}

// begin publishes the restored orders.
func (w *worker) begin() {
	before := w.o.Host.LaidOut()
	w.o.Schedule.Hold()
	w.o.Schedule.CountIn(w.o.Orders)
	w.beginMemory()
	w.publish()
	for _, epoch := range before {
		if !w.orders.given[epoch] {
			w.o.Host.OrderChanged(epoch, true)
		}
	}
	w.report()
	w.save()
}

// Draws reports whether the job has a drawn order. Before that, epochs are plain permutations.
func (s *Session) Draws() bool { return s.isDrawn.Load() }

// Stop ends the worker and frees the state. Requests get why as their error. If the session was stopped before, Stop
// returns false at once. The file may still be written afterwards: see Wait.
func (s *Session) Stop(why error) bool {
	s.mu.Lock()
	if s.orders.stopped {
		s.mu.Unlock()
		return false
	}
	s.orders.stopped, s.orders.err = true, why
	s.orders.wakeWaiters()
	s.mu.Unlock()
	s.inbox.nudge()
	<-s.ended
	s.isDrawn.Store(false)
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	s.state.Close()
	return true
}

// Wait waits until the file of a stopped session is written, and then releases the memory of its orders. A hung disk
// can make it wait without a limit.
func (s *Session) Wait() {
	s.file.Wait()
	s.dropRequested(func(int) bool { return true })
}

// IsStopped reports whether the session has ended or is about to end.
func (s *Session) IsStopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orders.stopped
}

// View calls f with the state while the worker does not change it. f may not change it.
func (s *Session) View(f func(*state.State)) error {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	if s.state.Closed() {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.orders.err
	}
	f(s.state)
	return nil
}

// isPublished reports whether requests can read an epoch's order. The schedule drops orders of epochs that ended long
// ago. Session.mu is held.
func (s *Session) isPublished(epoch int) bool {
	return s.orders.given[epoch] && s.o.Schedule.IsKnown(epoch)
}

// wakeWaiters wakes the requests that wait for an order. Session.mu is held.
func (a *announced) wakeWaiters() {
	close(a.changed)
	a.changed = make(chan struct{})
}
