// Package schedule says which sample indices every rank asks for in every epoch of one job. A Schedule replays the orders from a recipe
// and a seed, or takes them from clients, which push them; a pushed order beats the recipe's. It knows no bytes and no disk.
//
// A [Job] is what a training run will ask for. An [Order] is one epoch's: all its indices, how they are split into batches and ranks, and
// a key that is the same for the same order in every process. The key is written into a log's header, so that [Schedule.Identify] finds the
// epoch of a log that an earlier process wrote.
//
// Orders are made once, beside all locks, and the last few are kept: making one takes about a second at 14 M samples. Every number that a
// client names (epoch, rank, batch, the size of an order) is checked here before it is believed. A Schedule may be used concurrently. Its
// lock is the last one taken: it calls nothing of another package while it holds it.
package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"lcache/shuffle"
	"lcache/usage"
)

// A Schedule has the orders of one job over one dataset.
type Schedule struct {
	spec   shuffle.Spec
	replay *shuffle.Replay // nil: no recipe
	job    Job
	n      int   // samples of the dataset
	local  []int // ranks served here
	makers sync.WaitGroup

	mu            sync.Mutex // guards the fields that follow
	limit         int64      // bytes of pushed orders
	pushed        map[int]map[int]*given
	kept          int64             // bytes of pushed
	owners        map[int]int       // by rank: the process that pushes its order
	since         map[int]time.Time // by epoch: when the first of its orders was pushed
	version       int               // pushes that have changed an order
	versions      map[int]int       // by epoch: the version that changed its order last; missing: none
	dropped       map[int]string    // epochs whose pushed orders were dropped, with the session that had pushed them; "": several
	droppedBefore int               // all epochs below count as dropped, unless they are pushed
	orderCache
	stopped bool
	before  func(epoch int) // for tests: called before an order is made
}

// An Error is a position or an order that this job does not have, with the reason and what to do.
type Error struct{ Reason string }

func (e *Error) Error() string { return e.Reason }

func refuse(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// ErrStopped is the answer after Stop.
var ErrStopped = errors.New("the schedule is stopped")

var errUnknownOrder = &Error{"no order is known for this epoch: give the job a recipe and a batch size (--recipe and --batch-size of lcache run and lcache ingest, or of lcache.open), push one (job.push_order), or ask by index (job.get)"}

// New makes the schedule of a job over a dataset of n samples. machine is the bytes of memory that this process may count on: pushed orders
// take a part of it.
func New(j Job, n int, machine uint64) (*Schedule, error) {
	s := &Schedule{job: j, n: n, limit: pushLimit(n, machine), pushed: map[int]map[int]*given{}, owners: map[int]int{}, since: map[int]time.Time{},
		versions: map[int]int{}, dropped: map[int]string{}, orderCache: orderCache{orders: map[int]*Order{}, making: map[int]*making{}, last: -1}}
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

// World is the number of ranks that share an epoch, here and elsewhere; 0 without a recipe.
func (s *Schedule) World() int {
	if s.replay == nil {
		return 0
	}
	return s.replay.World()
}

// Local is the ranks served here, ascending. The caller must not change it.
func (s *Schedule) Local() []int { return s.local }

// IsLocal reports whether a rank is served here. Without a recipe every rank that pushes is.
func (s *Schedule) IsLocal(rank int) bool {
	return slices.Contains(s.local, rank) || s.replay == nil && rank >= 0
}

// SetEpochs changes how many epochs the job has; 0: unknown.
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

// IsKnown reports whether an epoch's order could be made now, at least of one rank.
func (s *Schedule) IsKnown(epoch int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exists(epoch) && (s.replay != nil || len(s.pushed[epoch]) > 0)
}

// IsComplete reports whether an epoch's order is known of all ranks here, or of some for so long that the others may not come.
func (s *Schedule) IsComplete(epoch int, patience time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.exists(epoch) || s.replay != nil {
		return s.exists(epoch)
	}
	pushed := s.pushed[epoch]
	for _, r := range s.local {
		if pushed[r] == nil {
			return len(pushed) > 0 && time.Since(s.since[epoch]) > patience
		}
	}
	return true
}

// Version is the number of the push that changed an epoch's order last; 0: none has.
func (s *Schedule) Version(epoch int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.versions[epoch]
}

// notServed is the error for a rank that the job does not have here. Most often the job was made without its world size.
func notServed(rank int, served []int) error {
	return refuse("rank %d is not served here, only %v: the job was made with another --world-size or --ranks than the training has", rank, served)
}

// Stop ends what is being made, and returns when nothing is. Orders that are asked for later are ErrStopped.
func (s *Schedule) Stop() {
	s.mu.Lock()
	s.stopped = true
	for _, r := range []*shuffle.Replay{s.replay, s.apart} {
		if r != nil {
			r.Stop()
		}
	}
	s.mu.Unlock()
	s.makers.Wait()
}

// Bytes is the memory that the kept orders take.
func (s *Schedule) Bytes() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.orders {
		n += 4 * int64(len(o.Global))
	}
	return n
}

// Identify finds the epoch whose order has a key: the one named, or none but the canonical order, whose epoch is -1. A nil order means that this
// job does not have it, or does not know it yet.
func (s *Schedule) Identify(ctx context.Context, epoch int, key [16]byte, patience time.Duration) (*Order, int, error) {
	if s.IsComplete(epoch, patience) {
		o, err := s.Order(ctx, epoch)
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
