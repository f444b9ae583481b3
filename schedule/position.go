package schedule

import (
	"context"
	"slices"

	"lcache/chunker"
	"lcache/sample"
)

// A Finding is what the schedule has at a position that a client names.
type Finding uint8

const (
	Nowhere   Finding = iota // the job has no such position, or its order can't be told now
	Unknown                  // no order is known for it yet
	Scheduled                // a batch
)

// At looks up a position that a client names beside its indices. An order that has to be made for that is made apart from the orders that are
// needed.
func (s *Schedule) At(ctx context.Context, at chunker.Position) (Finding, []sample.Index) {
	if at.Batch < 0 || !s.Exists(at.Epoch) || !s.IsLocal(at.Rank) {
		return Nowhere, nil
	}
	given, dropped := s.given(at.Epoch, at.Rank)
	switch {
	case given != nil && at.Batch < given.batches():
		return Scheduled, given.batch(at.Batch)
	case given == nil && (dropped || s.replay == nil):
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

// Meant is what a session asks for by a position alone: the order that it pushed itself, else the recipe's, which no other session's push
// changes. Without a recipe it is the order that any session pushed. ok is false behind the last batch.
func (s *Schedule) Meant(ctx context.Context, session string, at chunker.Position) (indices []sample.Index, ok bool, err error) {
	if !s.IsLocal(at.Rank) {
		return nil, false, notServed(at.Rank, s.local)
	}
	if at.Batch < 0 {
		return nil, false, refuse("batch %d: batches are counted from 0", at.Batch)
	}
	if s.replay == nil || !s.isOthers(session, at.Epoch, at.Rank) {
		return s.Chunk(ctx, at)
	}
	o, err := s.ofRecipe(ctx, at.Epoch)
	if err != nil {
		return nil, false, err
	}
	indices, ok = o.Chunk(at.Rank, at.Batch, nil)
	return indices, ok, nil
}

// isOthers reports whether a rank's order for an epoch was pushed by another session, and for that session alone.
func (s *Schedule) isOthers(session string, epoch, rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	pusher := s.dropped[epoch]
	if g := s.pushed[epoch][rank]; g != nil {
		pusher = g.by.Session
	}
	return pusher != "" && pusher != session
}

// Chunk is the samples at a position. The order that a rank has pushed counts even if the other ranks have not pushed theirs. ok is false
// behind the last batch.
func (s *Schedule) Chunk(ctx context.Context, at chunker.Position) (indices []sample.Index, ok bool, err error) {
	look, err := s.Chunks(ctx, at.Epoch, at.Rank)
	if err != nil {
		return nil, false, err
	}
	indices, ok = look(at.Batch)
	return indices, ok, nil
}

// Chunks looks up the batches of a rank's epoch.
func (s *Schedule) Chunks(ctx context.Context, epoch, rank int) (func(batch int) ([]sample.Index, bool), error) {
	given, dropped := s.given(epoch, rank)
	switch {
	case given != nil:
		return func(batch int) ([]sample.Index, bool) {
			if batch < 0 || batch >= given.batches() {
				return nil, false
			}
			return given.batch(batch), true
		}, nil
	case dropped:
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

// Batches is how many chunks a rank has in an epoch; 0 where that is not known. No order is made for it.
func (s *Schedule) Batches(epoch, rank int) int {
	if given, _ := s.given(epoch, rank); given != nil {
		return given.batches()
	}
	if s.replay == nil || !s.Exists(epoch) || !slices.Contains(s.local, rank) {
		return 0
	}
	split, err := s.replay.Split(epoch)
	if err != nil {
		return 0
	}
	return split.Batches(rank)
}
