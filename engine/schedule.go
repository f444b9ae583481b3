package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"lcache/deliver"
	"lcache/sample"
	"lcache/shuffle"
)

// schedule gives the orders of every epoch and rank: replayed from a seed, or pushed by clients, whose word is the last. Its lock is never held
// while an order is made, and is taken after Engine.mu.
type schedule struct {
	spec   shuffle.Spec
	replay *shuffle.Replay // nil: no recipe
	job    Job
	n      int
	local  []int // ranks served here
	limit  int64 // bytes of pushed orders
	makers sync.WaitGroup

	mu      sync.Mutex // guards the fields that follow
	pushed  map[int]map[int]*given
	kept    int64             // bytes of pushed
	owners  map[int]int       // by rank: the process that says its order
	since   map[int]time.Time // when the first of an epoch's orders was pushed
	version int               // pushes that have changed an order
	told    map[int]int       // by epoch: the version that changed its order last; missing: none
	gone    map[int]string    // epochs whose pushed orders were dropped, with the session that had pushed them; "": several
	goneAll int               // all epochs before it count as gone, unless they are pushed
	orderCache
	stopped bool
	before  func(epoch int) // for tests: called before an order is made
}

// errUnknownOrder: nobody has said yet what this epoch's order is.
var errUnknownOrder = &deliver.ArgumentError{Reason: "no order is known for this epoch: give the job a recipe and a batch size (--recipe and --batch-size of lcache run and lcache ingest, or of lcache.open), push one (job.push_order), or ask by index (job.get)"}

func newSchedule(j Job, n int) (*schedule, error) {
	s := &schedule{job: j, n: n, limit: pushedLimit(n, machineMemory()), pushed: map[int]map[int]*given{}, owners: map[int]int{}, since: map[int]time.Time{}, told: map[int]int{}, gone: map[int]string{},
		orderCache: orderCache{orders: map[int]*epochOrder{}, making: map[int]*making{}, last: -1}}
	world := max(j.World, 1)
	if err := j.check(); err != nil {
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
			return nil, &UsageError{fmt.Sprintf("rank %d does not exist in a world of %d: give --world-size %d or more, or ranks below %d", r, world, r+1, world)}
		}
	}
	return s, nil
}

// exists reports whether the job has that epoch.
func (s *schedule) exists(epoch int) bool {
	return epoch >= 0 && (s.job.Epochs == 0 || epoch < s.job.Epochs)
}

// isLocal reports whether a rank is served here. Without a recipe every rank that pushes is.
func (s *schedule) isLocal(rank int) bool {
	return slices.Contains(s.local, rank) || s.replay == nil && rank >= 0
}

// notServed is the error for a rank that the job does not have here. Most often the job was made without its world size.
func notServed(rank int, served []int) error {
	return &deliver.ArgumentError{Reason: fmt.Sprintf("rank %d is not served here, only %v: the job was made with another --world-size or --ranks than the training has", rank, served)}
}

// known reports whether an epoch's order could be made now.
func (s *schedule) known(epoch int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exists(epoch) && (s.replay != nil || len(s.pushed[epoch]) > 0)
}

// whole reports whether an epoch's order is known of all ranks here, or of some for so long that the others may not come.
func (s *schedule) whole(epoch int, patience time.Duration) bool {
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

// times is the version of pushed orders that changed an epoch's last; 0: none has.
func (s *schedule) times(epoch int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told[epoch]
}

// A place is what the schedule has at a position that a client names.
type place uint8

const (
	nowhere   place = iota // the job has no such position, or what it has there can't be told now
	unsaid                 // nobody has said an order for it
	scheduled              // a batch
)

// place looks up a position that a client names beside its indices. An order that has to be made for that is made apart from those that are needed.
func (s *schedule) place(ctx context.Context, at deliver.Position) (place, []sample.Index) {
	if at.Batch < 0 || !s.exists(at.Epoch) || !s.isLocal(at.Rank) {
		return nowhere, nil
	}
	given, gone := s.given(at.Epoch, at.Rank)
	switch {
	case given != nil && at.Batch < given.batches():
		return scheduled, given.batch(at.Batch)
	case given == nil && (gone || s.replay == nil):
		return unsaid, nil
	case at.Batch >= s.batches(at.Epoch, at.Rank):
		return nowhere, nil
	}
	o, err := s.find(ctx, at.Epoch, forHint)
	if err != nil {
		return nowhere, nil
	}
	if indices, ok := o.Chunk(at.Rank, at.Batch, nil); ok {
		return scheduled, indices
	}
	return nowhere, nil
}

// meant is what a session asks for by a position alone: the order that it pushed itself, else the recipe's, which no other session's push changes.
// Without a recipe it is the order that any session pushed.
func (s *schedule) meant(ctx context.Context, session string, at deliver.Position) (indices []sample.Index, ok bool, err error) {
	if s.replay == nil || !s.isOthers(session, at.Epoch, at.Rank) {
		return s.chunk(ctx, at)
	}
	o, err := s.ofRecipe(ctx, at.Epoch)
	if err != nil {
		return nil, false, err
	}
	indices, ok = o.Chunk(at.Rank, at.Batch, nil)
	return indices, ok, nil
}

// isOthers reports whether a rank's order for an epoch was pushed by another session, and for that session alone.
func (s *schedule) isOthers(session string, epoch, rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pusher := s.gone[epoch]
	if g := s.pushed[epoch][rank]; g != nil {
		pusher = g.by.Session
	}
	return pusher != "" && pusher != session
}

// chunk is what a rank asks for at a position. A pushed rank's own word counts even if the other ranks have not pushed.
func (s *schedule) chunk(ctx context.Context, at deliver.Position) (indices []sample.Index, ok bool, err error) {
	look, err := s.chunks(ctx, at.Epoch, at.Rank)
	if err != nil {
		return nil, false, err
	}
	indices, ok = look(at.Batch)
	return indices, ok, nil
}

// chunks looks up the batches of a rank's epoch.
func (s *schedule) chunks(ctx context.Context, epoch, rank int) (func(batch int) ([]sample.Index, bool), error) {
	given, gone := s.given(epoch, rank)
	switch {
	case given != nil:
		return func(batch int) ([]sample.Index, bool) {
			if batch < 0 || batch >= given.batches() {
				return nil, false
			}
			return given.batch(batch), true
		}, nil
	case gone:
		return nil, &deliver.ArgumentError{Reason: fmt.Sprintf("the order pushed for epoch %d was dropped: push it again", epoch)}
	}
	o, err := s.order(ctx, epoch)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(o.ranks, rank) {
		return nil, notServed(rank, o.ranks)
	}
	return func(batch int) ([]sample.Index, bool) { return o.Chunk(rank, batch, nil) }, nil
}

// batches is how many chunks a rank has in an epoch; 0 where that is not known. It makes no order.
func (s *schedule) batches(epoch, rank int) int {
	if given, _ := s.given(epoch, rank); given != nil {
		return given.batches()
	}
	if s.replay == nil || !s.exists(epoch) || !slices.Contains(s.local, rank) {
		return 0
	}
	split, err := s.replay.Split(epoch)
	if err != nil {
		return 0
	}
	return split.Batches(rank)
}

// stop ends what is being made, and returns when nothing is. Orders that are asked for later are errors.
func (s *schedule) stop() {
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

func (s *schedule) bytes() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.orders {
		n += 4 * int64(len(o.Global))
	}
	return n
}
