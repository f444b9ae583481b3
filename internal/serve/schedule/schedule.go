// Package schedule has the sample indices that every rank requests in every epoch of one job. A Schedule replays the orders from a
// recipe and a seed, or takes orders that clients push. A pushed order overrides the recipe's. The package reads no bytes and no disk.
//
// A [Job] describes the orders of a training run. An [Order] is one epoch's order: all its indices, their split into batches and
// ranks, and a key. Equal orders have equal keys, in every process. The key is written into a log's header, so that
// [Schedule.Identify] finds the epoch of a log that an earlier process wrote.
//
// Making an order takes about a second at 14 M samples. So no lock is held meanwhile, and the last few orders are kept. Every number
// from a client (epoch, rank, batch, size of an order) is checked here before it is used. A Schedule may be used concurrently, and
// while other locks are held. While it holds its own lock it calls only the functions given to Claim and Push, which must not call the
// Schedule.
package schedule

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"lcache/internal/memquota"
	"lcache/internal/usage"
	"lcache/shuffle"
)

// A Schedule has the orders of one job over one dataset.
type Schedule struct {
	spec   shuffle.Spec
	replay *shuffle.Replay // nil: no recipe
	job    Job
	n      int   // samples of the dataset
	local  []int // ranks served here
	makers sync.WaitGroup
	now    func() time.Time // time.Now, except in tests

	mu            sync.Mutex          // guards the fields that follow
	room          *memquota.Share     // for pushed and partial orders
	kept          int64               // bytes of these orders, reserved from room
	owners        map[int]int         // by rank: the process that claimed its order
	held          bool                // an epoch has the recipe's order only after Release
	epochs        map[int]*epochOrder // missing: no event has changed the epoch
	pushed        []int               // the epochs with pushed orders, ascending
	dropped       int                 // number of epochs whose orders were dropped
	droppedBefore int                 // every epoch below it counts as dropped, unless its order is pushed again
	version       int                 // number of changes of orders
	orderCache
	stopped bool
	before  func(epoch int) // for tests: called before an order is made
}

// An Error refuses a position or an order that this job does not have. Reason says why, and what to do.
type Error struct {
	Reason string
	IsFull bool // earlier pushed orders leave no room
}

// Error returns the reason.
func (e *Error) Error() string { return e.Reason }

func refuse(format string, args ...any) error { return &Error{Reason: fmt.Sprintf(format, args...)} }

// ErrStopped is the error of calls after Stop.
var ErrStopped = errors.New("the schedule is stopped")

var errUnknownOrder = &Error{Reason: "no order is known for this epoch: give the job a recipe and a batch size (lcache run, lcache ingest and lcache.open take both), push one (job.push_order), or ask by index (job.get)"}

// New makes the schedule of a job over a dataset of n samples. Pushed orders have no limit before CountIn.
func New(j Job, n int) (*Schedule, error) {
	s := &Schedule{job: j, n: n, room: endless(), owners: map[int]int{}, epochs: map[int]*epochOrder{}, now: time.Now,
		orderCache: orderCache{orders: map[int]*Order{}, making: map[int]*making{}, last: -1}}
	world := max(j.World, 1)
	if err := j.Check(); err != nil {
		return nil, err
	}
	if j.Recipe != "" {
		var err error
		s.spec = j.spec(n)
		if s.replay, err = shuffle.New(s.spec); err != nil {
			return nil, err
		}
		world = max(world, s.replay.World())
	}
	s.local = slices.Clone(j.Ranks)
	if s.local == nil {
		for r := range world {
			s.local = append(s.local, r)
		}
	}
	slices.Sort(s.local)
	s.local = slices.Compact(s.local)
	for _, r := range s.local {
		if r < 0 || r >= world {
			return nil, usage.Errorf("rank %d does not exist in a world of %d: give --world-size %d or more, or ranks below %d", r, world, r+1, world)
		}
	}
	return s, nil
}

// Replays reports whether the job has a recipe. Without one every order comes from clients.
func (s *Schedule) Replays() bool { return s.replay != nil }

// World returns the number of ranks that share an epoch, on all machines; 0 without a recipe.
func (s *Schedule) World() int {
	if s.replay == nil {
		return 0
	}
	return s.replay.World()
}

// Local returns the ranks that are served here, ascending. Callers must not change the list.
func (s *Schedule) Local() []int { return s.local }

// IsLocal reports whether a rank is served here. Without a recipe every rank is.
func (s *Schedule) IsLocal(rank int) bool {
	return slices.Contains(s.local, rank) || s.replay == nil && rank >= 0
}

// SetEpochs changes the number of the job's epochs; 0: unknown.
func (s *Schedule) SetEpochs(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.job.Epochs = n
}

// Exists reports whether the job has that epoch.
func (s *Schedule) Exists(epoch int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exists(epoch)
}

// exists is Exists with s.mu held.
func (s *Schedule) exists(epoch int) bool {
	return epoch >= 0 && (s.job.Epochs == 0 || epoch < s.job.Epochs)
}

// IsKnown reports whether an epoch's order can be made now, at least for one rank.
func (s *Schedule) IsKnown(epoch int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exists(epoch) && s.look(epoch).state.isKnown()
}

// IsComplete reports whether an epoch can be laid out: its order is known, at least partially, for all local ranks. After patience has
// passed since the first push, the orders of some ranks are enough, because the other ranks may never push.
func (s *Schedule) IsComplete(epoch int, patience time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.look(epoch)
	switch {
	case !s.exists(epoch) || e.state == unknown || e.state == dropped:
		return false
	case e.state == partial || e.state == somePushed:
		some := slices.ContainsFunc(s.local, func(r int) bool { return e.ranks[r] == nil })
		return !some || e.state == somePushed && s.now().Sub(e.since) > patience
	}
	return true
}

// Samples returns the number of samples that the local ranks get in an epoch, as far as their orders are known; 0 if none is. It makes no order.
func (s *Schedule) Samples(epoch int) (n int) {
	batches := 0
	for _, r := range s.local {
		if _, g := s.stateOf(epoch, r); g != nil && g.isPushed {
			n += len(g.flat)
		} else {
			batches += s.Batches(epoch, r)
		}
	}
	return n + min(batches*s.job.BatchSize, s.n)
}

// Version returns the version of the last change of an epoch's order; 0: it never changed.
func (s *Schedule) Version(epoch int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.look(epoch).version
}

// notServed returns the error for a rank that is not local. The usual cause is a job without its world size.
func notServed(rank int, served []int) error {
	return refuse("rank %d is not served here, only %v: the job was made with another --world-size or --ranks than the training has", rank, served)
}

// Stop cancels the orders in the making, and waits until they have ended. Later requests for an order get ErrStopped.
func (s *Schedule) Stop() {
	s.mu.Lock()
	s.stopped = true
	for _, r := range []*shuffle.Replay{s.replay, s.apart} {
		if r != nil {
			r.Stop()
		}
	}
	s.countIn(endless())
	s.mu.Unlock()
	s.makers.Wait()
}

// endless returns a share without a limit.
func endless() *memquota.Share { return memquota.New(0).Share(math.MaxInt64, math.MaxInt64) }

// CountIn takes the memory of pushed orders from a share, which several schedules may have in common. It drops orders that do not fit.
// Stop returns all memory to the share.
func (s *Schedule) CountIn(room *memquota.Share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped { // else there is nothing to count any longer
		s.countIn(room)
	}
}

// countIn is CountIn with s.mu held.
func (s *Schedule) countIn(room *memquota.Share) {
	if room.Take(s.kept) {
		s.room.Give(s.kept)
	} else {
		s.retract(0)
	}
	s.room = room
}

// keep counts bytes of orders. It returns false if they do not fit.
func (s *Schedule) keep(bytes int64) bool {
	if !s.room.Take(bytes) {
		return false
	}
	s.kept += bytes
	return true
}

// Bytes returns the memory of the orders in the cache.
func (s *Schedule) Bytes() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.orders {
		n += 4 * int64(len(o.Global))
	}
	return n
}

// Identify returns the order with a key, and its epoch: the named epoch, or -1 for the canonical order. A nil order means that neither
// has the key, or that the epoch's order is not known yet.
func (s *Schedule) Identify(ctx context.Context, epoch int, key [16]byte, patience time.Duration) (*Order, int, error) {
	if s.IsComplete(epoch, patience) {
		o, err := s.ToLayOut(ctx, epoch)
		if err != nil {
			return nil, -1, err
		}
		if o.Key == key {
			return o, epoch, nil
		}
	}
	if key == canonicalKey {
		return Canonical(s.n), -1, nil
	}
	return nil, -1, nil
}
