package engine

import (
	"slices"

	"lcache/deliver"
	"lcache/fetch"
	"lcache/internal/importance/memory"
	"lcache/sample"
)

// served counts a delivery, and keeps what the memory policy wants of it.
func (p *important) served(at *deliver.Position, d deliver.Delivery) {
	p.high.Served(memory.Delivery{Epoch: at.Epoch, Indices: d.Indices, Addresses: d.Addresses, Kinds: p.kindsOf(at, d)})
	p.along.Delivered(at.Epoch, d.Indices)
	p.packs.Delivered(d.Indices, d.Addresses)
}

// beginMemory begins an epoch of the memory policy. Only the worker calls it, and who makes it.
func (p *important) beginMemory() {
	epoch := p.state.Epoch()
	if p.state.Order(epoch) == nil {
		return
	}
	p.high.SetRatio(p.state.Ratio())
	p.beginPackages()
	order := p.orderOf(epoch)
	p.beginAlong(epoch, order)
	if err := p.decideBy(func(values, targets []float64) { p.high.Begin(epoch, values, targets, order, p.config) }); err != nil {
		p.e.cache.Logger.Warn("memory goes on by what was known an epoch ago", "name", p.config.Name, "epoch", epoch, "err", err)
	}
}

// beginAlong begins an epoch of what is read along. The line of a plain one delivers all of it.
func (p *important) beginAlong(epoch int, order []sample.Index) {
	if p.state.Order(epoch).Plain {
		order = nil
	}
	next, coming := p.state.Coming()
	if next != epoch+1 {
		coming = nil
	}
	if o := p.state.Order(epoch + 1); o != nil && !o.Plain {
		coming = o.Indices
	}
	p.along.Begin(epoch, order, coming)
}

// beginPackages begins an epoch of the job's packages, once epochs are drawn.
func (p *important) beginPackages() {
	drawn := false
	for epoch, o := range p.state.Orders() {
		drawn = drawn || epoch >= p.state.Epoch() && !o.Plain
	}
	p.drawn.Store(drawn)
	if !drawn || p.packs == nil {
		return
	}
	high, err := p.state.High()
	if err != nil {
		p.e.cache.Logger.Warn("which samples are of most importance can't be listed", "name", p.config.Name, "err", err)
		return
	}
	p.packs.Begin(high)
}

// holdBy adds a memory to the suppliers, or removes one.
func (e *Engine) holdBy(more, less fetch.Holder) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.holders = slices.Clone(e.holders) // readers use the old list without a lock
	if more != nil {
		e.holders = append(e.holders, more)
	} else {
		e.holders = slices.DeleteFunc(e.holders, func(one fetch.Holder) bool { return one == less })
	}
	list := e.holders
	e.fetcher.Held.Store(&list)
}
