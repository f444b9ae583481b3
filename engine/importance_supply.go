package engine

import (
	"slices"

	"lcache/deliver"
	"lcache/fetch"
	"lcache/offheap"
	"lcache/sample"
)

// served counts a delivery, and keeps what the memory policy wants of it.
func (p *important) served(d deliver.Delivery) {
	p.high.served(d)
}

// beginMemory begins an epoch of the memory policy. Only the worker calls it, and who makes it.
func (p *important) beginMemory() {
	epoch := p.state.Epoch()
	o := p.state.Order(epoch)
	if o == nil {
		return
	}
	order := o.Indices
	if order == nil { // the recipe's
		if whole, err := p.j.schedule.OfRecipe(p.e.ctx, epoch); err == nil {
			order = whole.Global
		}
	}
	values, err := p.state.Values()
	if err != nil {
		return
	}
	defer offheap.Free(values)
	targets, err := p.state.Targets()
	if err != nil {
		return
	}
	defer offheap.Free(targets)
	p.high.begin(epoch, values, targets, order, p.config)
}

// holders are the memories of all jobs with importance, as one supplier.
type holders []*highMemory

// Has reports whether any of them has a sample (fetch.Holder).
func (h holders) Has(index sample.Index) bool {
	return slices.ContainsFunc(h, func(one *highMemory) bool { return one.Has(index) })
}

// Copy copies a sample that any of them has (fetch.Holder).
func (h holders) Copy(index sample.Index, dst []byte) bool {
	return slices.ContainsFunc(h, func(one *highMemory) bool { return one.Copy(index, dst) })
}

// holdBy adds a memory to the suppliers, or takes one out.
func (e *Engine) holdBy(more, less *highMemory) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holders = slices.DeleteFunc(slices.Clone(e.holders), func(h *highMemory) bool { return h == less })
	if more != nil {
		e.holders = append(e.holders, more)
	}
	if len(e.holders) == 0 {
		e.fetcher.First.Store(nil)
		return
	}
	var first fetch.Holder = e.holders
	e.fetcher.First.Store(&first)
}
