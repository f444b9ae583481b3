package engine

import (
	"fmt"
	"maps"
	"slices"

	"lcache/deliver"
	"lcache/drawn"
	"lcache/importance"
	"lcache/sample"
)

// A job that allows substitutes has two orders of an epoch (docs/adr/0031-two-orders.md). The served one is the epoch's order for all that reads, lays out and delivers. The requested one is here: what a client
// asks for by position, and how each sample is served for it.

// twoOrders is the requested order of an epoch. It does not change, and is kept for as long as the schedule keeps the served one.
type twoOrders struct {
	requested map[int][][]sample.Index // by rank and batch
	kinds     importance.Kinds         // by place in the order that was drawn
	places    int                      // that were drawn
	world     int
	size      int  // of a batch
	counted   bool // in the memory of the job's orders; where there was no room it is kept all the same
}

// bytes is the memory of the order.
func (o *twoOrders) bytes() (n int64) {
	for _, batches := range o.requested {
		for _, batch := range batches {
			n += 24 + 4*int64(len(batch))
		}
	}
	return n + 4*int64(len(o.kinds))
}

// addTwo keeps the requested order of an epoch, in the memory of the job's orders. Orders of epochs that are over make room.
func (p *important) addTwo(epoch int, two *twoOrders) {
	two.counted = p.room.orders.Take(two.bytes())
	for !two.counted && p.dropSpareOrders() {
		two.counted = p.room.orders.Take(two.bytes())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uncount(p.two[epoch]) // of a try that failed
	p.two[epoch] = two
}

// dropSpareOrders drops an order of an epoch that is over. It reports whether there was one.
func (p *important) dropSpareOrders() bool {
	first := p.state.Epoch() - 1
	dropped := p.j.schedule.DropSpare(func(epoch, _ int) bool { return epoch < first })
	if dropped {
		p.dropTwo(func(epoch int) bool { return !p.j.schedule.IsKnown(epoch) })
	}
	return dropped
}

// uncount gives back the memory of an order. two may be nil.
func (p *important) uncount(two *twoOrders) {
	if two != nil && two.counted {
		p.room.orders.Give(two.bytes())
	}
}

// dropTwo forgets the requested orders of the epochs for which old returns true.
func (p *important) dropTwo(old func(epoch int) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.two, func(epoch int, two *twoOrders) bool {
		if !old(epoch) {
			return false
		}
		p.uncount(two)
		return true
	})
}

// look returns a function that looks up the requested batches of a rank.
func (o *twoOrders) look(rank int) func(batch int) ([]sample.Index, bool) {
	batches := o.requested[rank]
	return func(batch int) ([]sample.Index, bool) {
		if batch < 0 || batch >= len(batches) {
			return nil, false
		}
		return batches[batch], true
	}
}

// kind says how a sample of a batch is served, by the plan.
func (o *twoOrders) kind(rank, batch, k int, served sample.Index) importance.Kind {
	requested := o.requested[rank][batch][k]
	place := (batch*o.size+k)*o.world + rank
	switch {
	case served != requested:
		return importance.Substitute
	case place < o.places && o.kinds.At(place) == importance.Hit:
		return importance.Hit
	}
	return importance.Miss
}

// cut cuts an order as the ranks served here read it: rank r has places r, r+W, …. What is served of it comes first, by rank and batch; two is nil where that was drawn. Places that make all ranks' parts equal
// serve what was drawn.
func (p *important) cut(o *drawn.Order) (served map[int][][]sample.Index, two *twoOrders) {
	served = map[int][][]sample.Index{}
	whole := importance.Striped(o.Indices, p.world, p.config.DropLast)
	var requested []sample.Index
	if o.Requested != nil {
		requested, whole = importance.Striped(o.Requested, p.world, p.config.DropLast), slices.Clone(whole)
		planned := min(len(o.Indices), len(whole))
		copy(whole[planned:], requested[planned:])
		importance.Recut(p.config.Substitute, requested, whole, planned, importance.Cut{World: p.world, Batch: p.config.BatchSize})
		two = &twoOrders{requested: map[int][][]sample.Index{}, kinds: append(importance.Kinds(nil), o.Kinds...), places: len(o.Indices), world: p.world, size: p.config.BatchSize}
	}
	for rank := range p.world {
		if !p.j.schedule.IsLocal(rank) {
			continue
		}
		served[rank] = batches(whole, rank, p.world, p.config.BatchSize, p.config.DropLast)
		if two != nil {
			two.requested[rank] = batches(requested, rank, p.world, p.config.BatchSize, p.config.DropLast)
		}
	}
	return served, two
}

// twoOf is the requested order of an epoch; nil: it is the served one, or not kept. p may be nil.
func (p *important) twoOf(epoch int) *twoOrders {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.two[epoch]
}

// requested are the samples that were drawn for a position; nil: those that are served. p may be nil.
func (p *important) requested(at deliver.Position) []sample.Index {
	two := p.twoOf(at.Epoch)
	if two == nil {
		return nil
	}
	batch, _ := two.look(at.Rank)(at.Batch)
	return batch
}

// kindsOf says of each sample of a delivery how it was served by the epoch's plan; nil: as what was drawn.
func (p *important) kindsOf(at *deliver.Position, d deliver.Delivery) []importance.Kind {
	if d.Requested == nil {
		return nil
	}
	two := p.twoOf(at.Epoch) // looked up once: the worker may take the order back, or plan it again, meanwhile
	if two == nil {
		return nil
	}
	batch, _ := two.look(at.Rank)(at.Batch)
	kinds, next := make([]importance.Kind, len(d.Indices)), 0
	for k, id := range d.Requested {
		for next < len(batch) && batch[next] != id { // samples that could not be had, or were in another part
			next++
		}
		if next == len(batch) {
			break
		}
		kinds[k] = two.kind(at.Rank, at.Batch, next, d.Indices[k])
		next++
	}
	return kinds
}

// plan decides what is served of an order that was just drawn. Only the worker calls it, and who makes it, while the state draws.
func (p *important) plan(epoch int, requested []sample.Index) (plan importance.Plan, err error) {
	switch p.config.Substitute {
	case importance.Low:
		return p.planLow(epoch, requested)
	case importance.Class:
		return p.planClass(epoch, requested)
	}
	return plan, fmt.Errorf("substitute=%q can't be served", p.config.Substitute)
}

// planLow serves loaded L-samples for those that are not (ImPACT §III-D).
func (p *important) planLow(epoch int, requested []sample.Index) (plan importance.Plan, err error) {
	high, err := p.state.High()
	if err != nil {
		return plan, err
	}
	defer high.Close()
	m := p.e.cache.Manifest
	loading, err := importance.NewLoading(p.e.units(high, epoch, p.config.Seed), importance.LoadingOptions{Samples: m.Len(), Size: func(i sample.Index) int64 { return int64(m.Size(i)) },
		High: high.Has, Depth: p.config.Params.LDepth, Seed: p.config.Seed, Epoch: epoch})
	if err != nil {
		return plan, err
	}
	defer loading.Close()
	plan, err = importance.NewLaw(importance.Low, loading, high.Has).Serve(requested, importance.Cut{World: p.world, Batch: p.config.BatchSize})
	p.loaded, p.loads = loading.Most(), p.loads+int64(loading.Loads())
	return plan, err
}
