package schedule

import (
	"context"
	"fmt"
	"slices"

	"lcache/sample"

	"github.com/dustin/go-humanize"
)

// A rankOrder is a rank's order of an epoch, pushed by a client or partial: batches of any size, one after the other.
type rankOrder struct {
	flat     []sample.Index
	ends     []uint32 // by batch: its end in flat
	isPushed bool     // false: it is partial
	by       Pusher   // the last session that pushed it
	open     []uint64 // a bit for each open position of flat; nil: none
}

// A Pusher is the session that pushes an order, and the session's process. An order without a session is valid for all sessions.
type Pusher struct {
	Pid     int
	Session string
}

// Batches are the batches of an order, one after the other. Ends[i] is the number of indices up to the end of batch i.
type Batches struct {
	Indices []sample.Index
	Ends    []uint32
}

// Cut copies batches.
func Cut(batches [][]sample.Index) Batches {
	total := 0
	for _, batch := range batches {
		total += len(batch)
	}
	o := Batches{make([]sample.Index, 0, total), make([]uint32, len(batches))}
	for b, batch := range batches {
		o.Indices = append(o.Indices, batch...)
		o.Ends[b] = uint32(len(o.Indices))
	}
	return o
}

func (g *rankOrder) batches() int { return len(g.ends) }

func (g *rankOrder) batch(b int) []sample.Index {
	begin := uint32(0)
	if b > 0 {
		begin = g.ends[b-1]
	}
	return g.flat[begin:g.ends[b]:g.ends[b]]
}

// bytes returns the memory of an order: its indices, and its entries in the tables.
func (g *rankOrder) bytes() int64 {
	return 1024 + 4*int64(len(g.flat)) + 4*int64(len(g.ends)) + 8*int64(len(g.open))
}

// PushBytes returns the bytes that an order takes.
func PushBytes(batches [][]sample.Index) int64 {
	o := Cut(batches)
	return (&rankOrder{flat: o.Indices, ends: o.Ends}).bytes()
}

// MostRanks is the number of ranks whose orders are kept without a recipe: clients choose the ranks' numbers.
const MostRanks = 1024

// noEpoch returns the error for an epoch that the job does not have.
func (s *Schedule) noEpoch(epoch int) error {
	return refuse("epoch %d does not exist: the job has %d", epoch, s.job.Epochs)
}

// Accepts returns an error for an epoch or a rank that the job does not have.
func (s *Schedule) Accepts(epoch, rank int) error {
	if !s.Exists(epoch) {
		return s.noEpoch(epoch)
	}
	if !s.IsLocal(rank) {
		return notServed(rank, s.local)
	}
	return nil
}

// Claim reserves a rank's order for a process: only this process may then push it. Claim fails if reads reports that the previous owner
// still reads the rank. Without a previous owner, reader counts as the owner.
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

// Push takes a rank's order for an epoch from the process that has claimed the rank. changed reports that the epoch's order differs from
// the previous one. replaced reports that the epoch had an order before, pushed or the recipe's. If orders leave no room, Push drops
// epochs for which spare returns true for all orders. The Schedule owns the order from then on.
func (s *Schedule) Push(ctx context.Context, by Pusher, epoch, rank int, order Batches, spare func(epoch, pid int) bool) (changed, replaced bool, err error) {
	if err := s.Accepts(epoch, rank); err != nil {
		return false, false, err
	}
	for k, index := range order.Indices {
		if int(index) >= s.n {
			b, _ := slices.BinarySearch(order.Ends, uint32(k+1))
			return false, false, refuse("index %d in batch %d of the pushed order is not in the dataset of %d samples", index, b, s.n)
		}
	}
	g := &rankOrder{flat: order.Indices, ends: order.Ends, isPushed: true, by: by}
	same := s.isSameOrder(ctx, epoch, rank, g)
	_, told := s.stateOf(epoch, rank)
	fills := told.refines(g) // before the lock is taken: an order may have millions of positions
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner := s.owners[rank]; owner != by.Pid {
		return false, false, refuse("process %d has taken over the order of rank %d meanwhile", owner, rank)
	}
	before := s.look(epoch).ranks[rank]
	pushedBefore := before != nil && before.isPushed
	if same {
		if pushedBefore {
			before.by = by
		}
		return false, false, nil
	}
	if fills = fills && before == told; fills {
		g.open = before.open
	}
	more := g.bytes()
	if before != nil {
		more -= before.bytes()
	}
	if err := s.makeRoom(more, epoch, rank, spare); err != nil {
		return false, false, err
	}
	e := s.record(epoch)
	if !e.state.hasPushed() {
		e.since = s.now()
	}
	e.ranks[rank] = g
	s.apply(epoch, s.pushEvent(e.ranks))
	if fills { // the layout stays valid
		s.dropOrder(epoch)
		return false, false, nil
	}
	s.forget(e, isPartial)
	s.changed(epoch)
	return true, pushedBefore || s.replay != nil, nil
}

// pushEvent returns the event of a push after which the ranks of an epoch have these orders. s.mu is held.
func (s *Schedule) pushEvent(ranks map[int]*rankOrder) event {
	for _, r := range s.local {
		if g := ranks[r]; g == nil || !g.isPushed {
			return pushSome
		}
	}
	return pushLast
}

// isSameOrder reports whether a rank already has this order for an epoch, pushed or from the recipe.
func (s *Schedule) isSameOrder(ctx context.Context, epoch, rank int, g *rankOrder) bool {
	state, before := s.stateOf(epoch, rank)
	switch {
	case before != nil && before.isPushed:
		return slices.Equal(before.flat, g.flat) && slices.Equal(before.ends, g.ends)
	case state.isDropped() || !state.hasRecipe():
		return false
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

// makeRoom reserves the memory of an order. It drops epochs until the order fits, the lowest epoch first. s.mu is held.
func (s *Schedule) makeRoom(more int64, epoch, rank int, spare func(epoch, pid int) bool) error {
	for !s.keep(more) {
		i := slices.IndexFunc(s.pushed, func(n int) bool { return n != epoch && s.isSpare(n, spare) })
		if i < 0 {
			return s.full(more, epoch, rank)
		}
		s.drop(s.pushed[i])
	}
	return nil
}

// isSpare reports whether spare returns true for all pushed orders of an epoch. s.mu is held.
func (s *Schedule) isSpare(epoch int, spare func(epoch, pid int) bool) bool {
	for _, g := range s.look(epoch).ranks {
		if g.isPushed && !spare(epoch, g.by.Pid) {
			return false
		}
	}
	return true
}

// full returns the error for an order that does not fit.
func (s *Schedule) full(more int64, epoch, rank int) error {
	if more > s.room.Limit() {
		return refuse("the order of epoch %d rank %d takes %s, more than the %s that --memory has for the orders of all jobs: give the server more --memory",
			epoch, rank, humanize.Bytes(uint64(more)), humanize.Bytes(uint64(s.room.Limit())))
	}
	return &Error{IsFull: true, Reason: fmt.Sprintf("the order of epoch %d rank %d takes %s, and the orders of all jobs have %s of the %s that --memory has for them: push it when one of them has been read",
		epoch, rank, humanize.Bytes(uint64(max(more, 0))), humanize.Bytes(uint64(s.room.Taken())), humanize.Bytes(uint64(s.room.Limit())))}
}

// DropSpare drops the pushed orders of epochs for which spare returns true for all orders. It reports whether it dropped any.
func (s *Schedule) DropSpare(spare func(epoch, pid int) bool) (dropped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, epoch := range slices.Clone(s.pushed) {
		if s.isSpare(epoch, spare) {
			s.drop(epoch)
			dropped = true
		}
	}
	return dropped
}

// mostDropped bounds the dropped epochs that are remembered one by one.
const mostDropped = 1 << 16

// drop removes the pushed orders of an epoch. The recipe's order does not replace them: clients that request the epoch get an error and
// must push again. s.mu is held.
func (s *Schedule) drop(epoch int) {
	e := s.record(epoch)
	var sessions []string
	for _, g := range e.ranks {
		if g.isPushed {
			sessions = append(sessions, g.by.Session)
		}
	}
	slices.Sort(sessions)
	s.forget(e, all)
	s.apply(epoch, drop)
	s.dropOrder(epoch)
	e.version, e.session = 0, ""
	if sessions = slices.Compact(sessions); len(sessions) == 1 {
		e.session = sessions[0]
	}
	if s.dropped > mostDropped {
		s.forgetDropped()
	}
}

// forgetDropped replaces the record of single dropped epochs: from now on all epochs up to the last of them count as dropped. s.mu is held.
func (s *Schedule) forgetDropped() {
	for n, e := range s.epochs {
		if e.state.isDropped() {
			s.droppedBefore = max(s.droppedBefore, n+1)
		}
	}
	for n, e := range s.epochs {
		if n < s.droppedBefore && len(e.ranks) == 0 {
			delete(s.epochs, n)
		}
	}
	s.dropped = 0
}

// keepPushed is the number of epochs whose pushed orders are kept when an epoch ends.
const keepPushed = 16

// EpochOver notes that an epoch has ended. It drops the pushed orders of earlier epochs, the lowest first, while there are more than keepPushed.
func (s *Schedule) EpochOver(over int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pushed) > keepPushed && s.pushed[0] < over {
		s.drop(s.pushed[0])
	}
}
