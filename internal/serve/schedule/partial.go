package schedule

import (
	"context"
	"maps"

	"lcache/sample"
)

// An order may be known partially: some of its positions are still open. A partial order can be laid out, but not read. When the whole
// order is pushed, it fills the open positions, and the layout stays valid.

// PushPartial takes the known part of a rank's order. Open positions hold sample.None. The later order of the whole epoch has the same
// batches. If orders leave no room, PushPartial drops epochs as Push does.
func (s *Schedule) PushPartial(epoch, rank int, batches [][]sample.Index, spare func(epoch, pid int) bool) error {
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
			return refuse("index %d of the partial order is not in the dataset of %d samples", index, s.n)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.look(epoch)
	before := e.ranks[rank]
	if transitions[e.state][pushPart] == states || before != nil && before.isPushed {
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
	s.apply(epoch, pushPart)
	s.changed(epoch)
	return nil
}

// refines reports whether an order completes the partial order g: the same batches, with the open positions filled.
func (g *rankOrder) refines(whole *rankOrder) bool {
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

// isOpen reports whether a position is open.
func (g *rankOrder) isOpen(k int) bool { return g.open != nil && g.open[k/64]&(1<<(k%64)) != 0 }

// ToLayOut returns the order to lay an epoch out by: its partial order, until the whole order is known.
func (s *Schedule) ToLayOut(ctx context.Context, epoch int) (*Order, error) {
	s.mu.Lock()
	e := s.look(epoch)
	parts := maps.Clone(e.ranks)
	s.mu.Unlock()
	if e.state != partial {
		return s.Order(ctx, epoch)
	}
	o := orderOf(parts)
	o.version = e.version
	return o, nil
}
