package schedule

import (
	"context"

	"lcache/sample"
)

// An order may be foretold before it is known: with some of its places open. What is foretold can be laid out, and not be read. When the order is pushed it fills the
// open places, and what was laid out stands.

// Foretell takes a part of a rank's order for an epoch that nobody has pushed yet. Open places hold sample.None. An order of the whole epoch has the same batches.
// If there is no room, Foretell drops epochs as Push does.
func (s *Schedule) Foretell(epoch, rank int, batches [][]sample.Index, spare func(epoch, pid int) bool) error {
	if err := s.Accepts(epoch, rank); err != nil {
		return err
	}
	o := Cut(batches)
	g := &pushedRank{flat: o.Indices, ends: o.Ends}
	g.open = make([]uint64, (len(g.flat)+63)/64)
	for k, index := range g.flat {
		switch {
		case index == sample.None:
			g.open[k/64] |= 1 << (k % 64)
		case int(index) >= s.n:
			return refuse("index %d of the order that is foretold is not in the dataset of %d samples", index, s.n)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pushed[epoch][rank] != nil {
		return refuse("the order of epoch %d rank %d is known", epoch, rank)
	}
	more := g.bytes()
	if before := s.foretold[epoch][rank]; before != nil {
		more -= before.bytes()
	}
	if err := s.makeRoom(more, epoch, rank, spare); err != nil {
		return err
	}
	if s.foretold[epoch] == nil {
		s.foretold[epoch] = map[int]*pushedRank{}
	}
	s.foretold[epoch][rank] = g
	s.changed(epoch)
	return nil
}

// isFilledBy reports whether an order is what was foretold, with its open places filled.
func (g *pushedRank) isFilledBy(whole *pushedRank) bool {
	if g == nil || len(g.flat) != len(whole.flat) || len(g.ends) != len(whole.ends) {
		return false
	}
	for b, end := range g.ends {
		if whole.ends[b] != end {
			return false
		}
	}
	for k, index := range g.flat {
		if index != sample.None && index != whole.flat[k] {
			return false
		}
	}
	return true
}

// isOpen reports whether a place was not foretold.
func (g *pushedRank) isOpen(k int) bool { return g.open != nil && g.open[k/64]&(1<<(k%64)) != 0 }

// forgetForetold drops what was foretold of an epoch and is not known yet. The caller holds s.mu.
func (s *Schedule) forgetForetold(epoch int) {
	for _, g := range s.foretold[epoch] {
		s.keep(-g.bytes())
	}
	delete(s.foretold, epoch)
}

// partsOf returns what is known of each rank's order of an epoch: pushed, or foretold. The caller holds s.mu.
func (s *Schedule) partsOf(epoch int) map[int]*pushedRank {
	parts := make(map[int]*pushedRank, len(s.pushed[epoch])+len(s.foretold[epoch]))
	for r, g := range s.foretold[epoch] {
		parts[r] = g
	}
	for r, g := range s.pushed[epoch] {
		parts[r] = g
	}
	return parts
}

// ToLayOut returns the order that an epoch is to be laid out by: what is foretold of it, until it is known.
func (s *Schedule) ToLayOut(ctx context.Context, epoch int) (*Order, error) {
	s.mu.Lock()
	if len(s.pushed[epoch]) > 0 || len(s.foretold[epoch]) == 0 || s.replays(epoch) {
		s.mu.Unlock()
		return s.Order(ctx, epoch)
	}
	parts, version := s.partsOf(epoch), s.versions[epoch]
	s.mu.Unlock()
	o := pushedOrder(parts)
	o.version = version
	return o, nil
}
