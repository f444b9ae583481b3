package session

import (
	"maps"
	"slices"

	"lcache/internal/importance/draw"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/state"
	"lcache/internal/importance/substitute"
	"lcache/internal/serve/deliver"
	"lcache/sample"
)

// If a job allows substitutes, an epoch has two orders (docs/adr/0031-two-orders.md). The schedule has the served
// order, which is read, laid out and delivered. The session has the requested order: the samples that a client
// requests by position, and how each is served.

// Requested is the requested order of an epoch. It never changes, and is kept as long as the schedule keeps the
// served order.
type Requested struct {
	byRank map[int][][]sample.Index // its batches
	kinds  substitute.Kinds         // by position in the drawn order
	places int                      // number of drawn positions
	world  int
	size   int   // samples in a batch
	taken  int64 // bytes of the job's memory for orders; 0: memory had no room, and it is kept regardless
}

// bytes returns the memory of the order.
func (o *Requested) bytes() (n int64) {
	for _, batches := range o.byRank {
		for _, batch := range batches {
			n += 24 + 4*int64(len(batch))
		}
	}
	return n + 4*int64(len(o.kinds))
}

// Batches returns a function that looks up the requested batches of a rank.
func (o *Requested) Batches(rank int) func(batch int) ([]sample.Index, bool) {
	batches := o.byRank[rank]
	return func(batch int) ([]sample.Index, bool) {
		if batch < 0 || batch >= len(batches) {
			return nil, false
		}
		return batches[batch], true
	}
}

// At returns the samples drawn for a position in the epoch; nil: they are the served ones. o may be nil.
func (o *Requested) At(at deliver.Position) []sample.Index {
	if o == nil {
		return nil
	}
	batch, _ := o.Batches(at.Rank)(at.Batch)
	return batch
}

// kind returns how the plan serves one sample of a batch.
func (o *Requested) kind(rank, batch, k int, served sample.Index) policy.Kind {
	requested := o.byRank[rank][batch][k]
	place := (batch*o.size+k)*o.world + rank
	switch {
	case served != requested:
		return policy.Substitute
	case place < o.places && o.kinds.At(place) == policy.Hit:
		return policy.Hit
	}
	return policy.Miss
}

// Requested returns the requested order of an epoch; nil: it equals the served order, or is not kept.
func (s *Session) Requested(epoch int) *Requested {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.orders.requested[epoch]
}

// Kinds returns, for each sample of a delivery, how the epoch's plan served it; nil: as drawn.
func (s *Session) Kinds(at deliver.Position, served, requested []sample.Index) []policy.Kind {
	if requested == nil {
		return nil
	}
	two := s.Requested(at.Epoch) // looked up once, because the worker may retract the order or plan it again meanwhile
	if two == nil {
		return nil
	}
	batch, _ := two.Batches(at.Rank)(at.Batch)
	kinds, next := make([]policy.Kind, len(served)), 0
	for k, id := range requested {
		for next < len(batch) && batch[next] != id { // skips unreadable samples, and samples of another part
			next++
		}
		if next == len(batch) {
			break
		}
		kinds[k] = two.kind(at.Rank, at.Batch, next, served[k])
		next++
	}
	return kinds
}

// keepRequested keeps the requested order of an epoch in the job's memory for orders. It drops orders of epochs that
// are over to make room.
func (w *worker) keepRequested(epoch int, two *Requested) {
	bytes := two.bytes()
	took := w.o.Orders.Take(bytes)
	for !took && w.dropSpareOrders() {
		took = w.o.Orders.Take(bytes)
	}
	if took {
		two.taken = bytes
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uncount(w.orders.requested[epoch]) // from an attempt that failed
	w.orders.requested[epoch] = two
}

// dropSpareOrders drops an order of an epoch that is over. It reports whether it found one.
func (w *worker) dropSpareOrders() bool {
	dropped := w.o.Schedule.DropSpare(w.isRead())
	if dropped {
		w.dropRequested(func(epoch int) bool { return !w.o.Schedule.IsKnown(epoch) })
	}
	return dropped
}

// uncount releases the memory of an order. two may be nil.
func (s *Session) uncount(two *Requested) {
	if two != nil && two.taken > 0 {
		s.o.Orders.Give(two.taken)
	}
}

// dropRequested drops the requested orders of the epochs for which old returns true.
func (s *Session) dropRequested(old func(epoch int) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.orders.requested, func(epoch int, two *Requested) bool {
		if !old(epoch) {
			return false
		}
		s.uncount(two)
		return true
	})
}

// cut cuts an order into batches for the ranks served here. It returns the served order by rank, and the requested
// order, which is nil if it is the same. Positions that pad the ranks' parts to one length serve the drawn samples.
func (w *worker) cut(o *state.Order) (served map[int][][]sample.Index, two *Requested) {
	c := &w.o.Config
	served = map[int][][]sample.Index{}
	whole := draw.Striped(o.Indices, c.WorldSize, c.DropLast)
	var requested []sample.Index
	if o.Requested != nil {
		requested, whole = draw.Striped(o.Requested, c.WorldSize, c.DropLast), slices.Clone(whole)
		planned := min(len(o.Indices), len(whole))
		copy(whole[planned:], requested[planned:])
		substitute.Recut(c.Substitute, requested, whole, planned, substitute.Cut{World: c.WorldSize, Batch: c.BatchSize})
		two = &Requested{byRank: map[int][][]sample.Index{}, kinds: append(substitute.Kinds(nil), o.Kinds...), places: len(o.Indices), world: c.WorldSize, size: c.BatchSize}
	}
	for rank := range c.WorldSize {
		if !w.o.Schedule.IsLocal(rank) {
			continue
		}
		served[rank] = w.batches(whole, rank)
		if two != nil {
			two.byRank[rank] = w.batches(requested, rank)
		}
	}
	return served, two
}
