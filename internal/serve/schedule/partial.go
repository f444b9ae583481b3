package schedule

import (
	"context"
	"maps"

	"lcache/sample"
)

// An order may be foretold before it is known: with some of its places open. What is foretold can be laid out, and not be read. When the order is pushed it fills the
// open places, and what was laid out stands.

// Foretell takes a part of a rank's order that is not known yet. Open places hold sample.None. An order of the whole epoch has the same batches.
// If there is no room, Foretell drops epochs as Push does.
func (s *Schedule) Foretell(epoch, rank int, batches [][]sample.Index, spare func(epoch, pid int) bool) error {
	if err := s.Accepts(epoch, rank); err != nil {
		return err
	}
	o := Cut(batches)
	g := &rankOrder{flat: o.Indices, ends: o.Ends}
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
	e := s.look(epoch)
	before := e.ranks[rank]
	if transitions[e.state][tell] == states || before != nil && before.isPushed {
		return refuse("the order of epoch %d rank %d is known", epoch, rank)
	}
	more := g.bytes()
	if before != nil {
		more -= before.bytes()
	}
	if err := s.makeRoom(more, epoch, rank, spare); err != nil {
		return err
	}
	s.record(epoch).ranks[rank] = g
	s.apply(epoch, tell)
	s.changed(epoch)
	return nil
}

// isFilledBy reports whether an order is what was foretold, with its open places filled.
func (g *rankOrder) isFilledBy(whole *rankOrder) bool {
	if g == nil || g.isPushed || len(g.flat) != len(whole.flat) || len(g.ends) != len(whole.ends) {
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
func (g *rankOrder) isOpen(k int) bool { return g.open != nil && g.open[k/64]&(1<<(k%64)) != 0 }

// ToLayOut returns the order that an epoch is to be laid out by: what is foretold of it, until it is known.
func (s *Schedule) ToLayOut(ctx context.Context, epoch int) (*Order, error) {
	s.mu.Lock()
	e := s.look(epoch)
	parts := maps.Clone(e.ranks)
	s.mu.Unlock()
	if e.state != foretold {
		return s.Order(ctx, epoch)
	}
	o := orderOf(parts)
	o.version = e.version
	return o, nil
}
