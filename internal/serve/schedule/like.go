package schedule

import (
	"maps"
	"slices"
)

// IsLike reports whether two jobs of one dataset have the same order of an epoch: the same batches for the same ranks. A partial order
// is like no other, because it may change. No lock is held during the comparison: orders never change.
func (s *Schedule) IsLike(other *Schedule, epoch int) bool {
	mine, ranks := s.pushedOf(epoch)
	theirs, others := other.pushedOf(epoch)
	switch {
	case !mine.isKnown() || !theirs.isKnown() || len(ranks) != len(others):
		return false
	case len(ranks) == 0: // both replay the recipe
		return s.replay.Key() == other.replay.Key() && slices.Equal(s.local, other.local)
	case mine.isOfRanks() != theirs.isOfRanks(): // one of them has other ranks, which read the recipe's order
		return false
	}
	for rank, g := range ranks {
		h := others[rank]
		if h == nil || !g.isPushed || !h.isPushed || !slices.Equal(g.ends, h.ends) || !slices.Equal(g.flat, h.flat) {
			return false
		}
	}
	return true
}

// pushedOf returns the state of an epoch, and the pushed and partial orders of its ranks.
func (s *Schedule) pushedOf(epoch int) (state, map[int]*rankOrder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.look(epoch)
	return e.state, maps.Clone(e.ranks)
}
