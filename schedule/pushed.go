package schedule

import (
	"context"
	"slices"
	"time"

	"lcache/sample"

	"github.com/dustin/go-humanize"
)

// given is a rank's order of an epoch as a client said it: batches of any sizes, one behind the other.
type given struct {
	flat []sample.Index
	ends []uint32 // by batch: where it ends in flat
	by   Pusher   // that said it last
}

// Pusher is the session that says an order, and the process that it belongs to. An order of no session holds for all of them.
type Pusher struct {
	Pid     int
	Session string
}

func give(batches [][]sample.Index, by Pusher) *given {
	total := 0
	for _, batch := range batches {
		total += len(batch)
	}
	g := &given{flat: make([]sample.Index, 0, total), ends: make([]uint32, len(batches)), by: by}
	for b, batch := range batches {
		g.flat = append(g.flat, batch...)
		g.ends[b] = uint32(len(g.flat))
	}
	return g
}

func (g *given) batches() int { return len(g.ends) }

func (g *given) batch(b int) []sample.Index {
	begin := uint32(0)
	if b > 0 {
		begin = g.ends[b-1]
	}
	return g.flat[begin:g.ends[b]:g.ends[b]]
}

// bytes is what an order takes: its numbers, and what any order takes in the tables.
func (g *given) bytes() int64 { return 1024 + 4*int64(len(g.flat)) + 4*int64(len(g.ends)) }

// PushBytes is how much of PushLimit an order takes.
func PushBytes(batches [][]sample.Index) int64 { return give(batches, Pusher{}).bytes() }

// pushLimit is how many bytes of pushed orders are kept: clients choose how many epochs ahead they push. Eight epochs of all samples fit, and the three
// that lcache.torch pushes at once with one sample a batch; beyond that a sixteenth of the machine's memory may be used.
func pushLimit(n int, machine uint64) int64 {
	return max(64<<20, 32*int64(n), int64(machine/16))
}

// PushLimit is how many bytes pushed orders may take, and SetPushLimit changes it.
func (s *Schedule) PushLimit() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

func (s *Schedule) SetPushLimit(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = bytes
}

// MostRanks is for how many ranks without a recipe orders are kept, whose numbers clients choose.
const MostRanks = 1024

// noEpoch is the error for an epoch that the job does not have.
func (s *Schedule) noEpoch(epoch int) error {
	return refuse("epoch %d does not exist: the job has %d", epoch, s.job.Epochs)
}

// Accepts refuses orders of what the job does not have.
func (s *Schedule) Accepts(epoch, rank int) error {
	if !s.Exists(epoch) {
		return s.noEpoch(epoch)
	}
	if !s.IsLocal(rank) {
		return notServed(rank, s.local)
	}
	return nil
}

// Claim makes a process the one that says the order of a rank, unless reads reports that the one before reads the rank: the one that has said its order,
// or reader, if nobody has.
func (s *Schedule) Claim(pid, rank, reader int, reads func(owner int) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner, known := s.owners[rank]
	if !known {
		owner = reader
	}
	switch {
	case owner != pid && reads(owner):
		return refuse("process %d reads rank %d in an order of its own: the log keeps that, and other processes are served by index", owner, rank)
	case !known && len(s.owners) >= MostRanks:
		return refuse("rank %d: orders of %d other ranks were pushed already, and no server keeps more", rank, MostRanks)
	}
	s.owners[rank] = pid
	return nil
}

// Push takes a rank's order for an epoch from the process that has claimed the rank. changed: the epoch's order is another one with it; replaced: because
// the rank, or the recipe, said another one before. Where there is no room it drops epochs, all of whose orders spare lets go.
func (s *Schedule) Push(ctx context.Context, by Pusher, epoch, rank int, batches [][]sample.Index, spare func(epoch, pid int) bool) (changed, replaced bool, err error) {
	if err := s.Accepts(epoch, rank); err != nil {
		return false, false, err
	}
	for b, batch := range batches {
		for _, index := range batch {
			if int(index) >= s.n {
				return false, false, refuse("index %d in batch %d of the pushed order is not in the dataset of %d samples", index, b, s.n)
			}
		}
	}
	g := give(batches, by)
	same := s.isSameOrder(ctx, epoch, rank, g)
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner := s.owners[rank]; owner != by.Pid {
		return false, false, refuse("process %d has taken over the order of rank %d meanwhile", owner, rank)
	}
	before := s.pushed[epoch][rank]
	if same {
		if before != nil {
			before.by = by
		}
		return false, false, nil
	}
	more := g.bytes()
	if before != nil {
		more -= before.bytes()
	}
	if err := s.makeRoom(more, epoch, rank, spare); err != nil {
		return false, false, err
	}
	if s.pushed[epoch] == nil {
		s.pushed[epoch], s.since[epoch] = map[int]*given{}, time.Now()
	}
	s.pushed[epoch][rank] = g
	s.kept += more
	delete(s.dropped, epoch)
	s.version++
	s.versions[epoch] = s.version
	s.dropOrder(epoch)
	return true, before != nil || s.replay != nil, nil
}

// isSameOrder reports whether a rank's order for an epoch is just that already, pushed or by the recipe.
func (s *Schedule) isSameOrder(ctx context.Context, epoch, rank int, g *given) bool {
	before, gone := s.given(epoch, rank)
	if before != nil || gone || s.replay == nil {
		return before != nil && slices.Equal(before.flat, g.flat) && slices.Equal(before.ends, g.ends)
	}
	if s.Batches(epoch, rank) != g.batches() {
		return false
	}
	o, err := s.find(ctx, epoch, toCompare)
	if err != nil || !slices.Contains(o.Ranks, rank) {
		return false
	}
	var mine []sample.Index
	for b := range g.batches() {
		if mine, _ = o.Chunk(rank, b, mine[:0]); !slices.Equal(mine, g.batch(b)) {
			return false
		}
	}
	return true
}

// given is what a rank has pushed for an epoch; gone reports that it was dropped since.
func (s *Schedule) given(epoch, rank int) (g *given, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ranks := s.pushed[epoch]
	_, gone = s.dropped[epoch]
	return ranks[rank], gone || ranks == nil && epoch < s.droppedBefore
}

// makeRoom drops epochs until an order fits, those first that come first. s.mu is held.
func (s *Schedule) makeRoom(more int64, epoch, rank int, spare func(epoch, pid int) bool) error {
	for s.kept+more > s.limit {
		oldest := -1
		for e, ranks := range s.pushed {
			if e == epoch || oldest >= 0 && e > oldest {
				continue
			}
			free := true
			for _, g := range ranks {
				free = free && spare(e, g.by.Pid)
			}
			if free {
				oldest = e
			}
		}
		if oldest < 0 {
			return refuse("the order of epoch %d rank %d takes %s; with those of the %d epochs pushed already that is more than %s: push it when one of them has been read",
				epoch, rank, humanize.Bytes(uint64(more)), len(s.pushed), humanize.Bytes(uint64(s.limit)))
		}
		s.drop(oldest)
	}
	return nil
}

// mostDropped is how many epochs are remembered one by one that were dropped.
const mostDropped = 1 << 16

// drop forgets what was pushed for an epoch. It is not replaced by the recipe's order: clients that ask for one again are told to push it again.
// s.mu is held.
func (s *Schedule) drop(epoch int) {
	var sessions []string
	for _, g := range s.pushed[epoch] {
		s.kept -= g.bytes()
		sessions = append(sessions, g.by.Session)
	}
	slices.Sort(sessions)
	delete(s.pushed, epoch)
	delete(s.since, epoch)
	delete(s.versions, epoch)
	s.dropOrder(epoch)
	s.dropped[epoch] = ""
	if sessions = slices.Compact(sessions); len(sessions) == 1 {
		s.dropped[epoch] = sessions[0]
	}
	if len(s.dropped) > mostDropped {
		for e := range s.dropped {
			s.droppedBefore = max(s.droppedBefore, e+1)
		}
		clear(s.dropped)
	}
}

// keepPushed is how many epochs' pushed orders are kept.
const keepPushed = 16

// EpochOver drops pushed orders once an epoch is over, the oldest first, if there are many.
func (s *Schedule) EpochOver(over int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pushed) > keepPushed {
		oldest := over
		for epoch := range s.pushed {
			oldest = min(oldest, epoch)
		}
		if oldest == over {
			return
		}
		s.drop(oldest)
	}
}
