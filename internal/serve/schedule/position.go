package schedule

import (
	"context"
	"slices"

	"lcache/chunker"
	"lcache/sample"
)

// A Finding is the result of looking up a position that a client names.
type Finding uint8

const (
	Nowhere   Finding = iota // the job has no such position, or its order can't be made now
	Unknown                  // the order at the position is not known yet
	Scheduled                // the schedule has a batch there
)

// At looks up the position that a client names with its indices. If an order must be made for that, it is made apart.
func (s *Schedule) At(ctx context.Context, at chunker.Position) (Finding, []sample.Index) {
	if at.Batch < 0 || !s.Exists(at.Epoch) || !s.IsLocal(at.Rank) {
		return Nowhere, nil
	}
	state, g := s.stateOf(at.Epoch, at.Rank)
	pushed := g != nil && g.isPushed
	switch {
	case pushed && at.Batch < g.batches():
		return Scheduled, g.batch(at.Batch)
	case !pushed && (state.isDropped() || !state.hasRecipe()):
		return Unknown, nil
	case at.Batch >= s.Batches(at.Epoch, at.Rank):
		return Nowhere, nil
	}
	o, err := s.find(ctx, at.Epoch, forHint)
	if err != nil {
		return Nowhere, nil
	}
	if indices, ok := o.Chunk(at.Rank, at.Batch, nil); ok {
		return Scheduled, indices
	}
	return Nowhere, nil
}

// Meaning is the meaning of a position for the session that names it.
type Meaning struct {
	Indices   []sample.Index
	Exists    bool // false: the position is after the last batch
	Scheduled bool // the job's schedule has these samples there; also false while the order is not known
}

// Meant returns the samples that a session requests by a position alone: from the order that this session pushed, else from the recipe's
// order. Orders of other sessions do not count. Without a recipe, an order that any session pushed counts.
func (s *Schedule) Meant(ctx context.Context, session string, at chunker.Position) (m Meaning, err error) {
	if !s.IsLocal(at.Rank) {
		return m, notServed(at.Rank, s.local)
	}
	if at.Batch < 0 {
		return m, refuse("batch %d: batches are counted from 0", at.Batch)
	}
	if s.replay == nil || !s.isOthers(session, at.Epoch, at.Rank) {
		m.Indices, m.Exists, err = s.Chunk(ctx, at)
		m.Scheduled = m.Exists && !s.isHeld(at.Epoch)
		return m, err
	}
	o, err := s.ofRecipe(ctx, at.Epoch)
	if err != nil {
		return m, err
	}
	m.Indices, m.Exists = o.Chunk(at.Rank, at.Batch, nil)
	return m, nil
}

// OfRecipe returns the recipe's order of an epoch, even if another one was pushed. Callers have a recipe.
func (s *Schedule) OfRecipe(ctx context.Context, epoch int) (*Order, error) {
	return s.ofRecipe(ctx, epoch)
}

// isOthers reports whether another session pushed a rank's order for an epoch, and only for itself.
func (s *Schedule) isOthers(session string, epoch, rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.look(epoch)
	pusher := e.session
	if g := e.ranks[rank]; g != nil {
		pusher = g.by.Session
	}
	return pusher != "" && pusher != session
}

// Chunk returns the samples at a position. The order that a rank has pushed counts even if the other ranks have not pushed theirs. ok is
// false after the last batch.
func (s *Schedule) Chunk(ctx context.Context, at chunker.Position) (indices []sample.Index, ok bool, err error) {
	look, err := s.Chunks(ctx, at.Epoch, at.Rank)
	if err != nil {
		return nil, false, err
	}
	indices, ok = look(at.Batch)
	return indices, ok, nil
}

// Chunks returns a function that looks up the batches of a rank's epoch.
func (s *Schedule) Chunks(ctx context.Context, epoch, rank int) (func(batch int) ([]sample.Index, bool), error) {
	state, g := s.stateOf(epoch, rank)
	switch {
	case g != nil && g.isPushed:
		return func(batch int) ([]sample.Index, bool) {
			if batch < 0 || batch >= g.batches() {
				return nil, false
			}
			return g.batch(batch), true
		}, nil
	case g != nil: // a partial order: it has open positions
		return nil, errUnknownOrder
	case state.isDropped():
		return nil, refuse("the order pushed for epoch %d was dropped: push it again", epoch)
	}
	o, err := s.Order(ctx, epoch)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(o.Ranks, rank) {
		return nil, notServed(rank, o.Ranks)
	}
	return func(batch int) ([]sample.Index, bool) { return o.Chunk(rank, batch, nil) }, nil
}

// Batches returns the number of a rank's batches in an epoch, or 0 if it is not known. It makes no order.
func (s *Schedule) Batches(epoch, rank int) int {
	state, g := s.stateOf(epoch, rank)
	if g != nil && g.isPushed {
		return g.batches()
	}
	if !state.hasRecipe() || !s.Exists(epoch) || !slices.Contains(s.local, rank) {
		return 0
	}
	split, err := s.replay.Split(epoch)
	if err != nil {
		return 0
	}
	return split.Batches(rank)
}
