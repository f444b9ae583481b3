package engine

import (
	"lcache/importance"
	"lcache/offheap"
	"lcache/sample"
)

// planClass serves nodes for their neighbours, as far as memory will not have those and they are no H-samples (SpiderCache §IV-B). An order that is drawn an epoch ahead is planned by the memory that the epoch between will leave.
func (p *important) planClass(epoch int, requested []sample.Index) (plan importance.Plan, err error) {
	p.high.SetRatio(p.state.Ratio())
	r, err := p.high.Rehearsal()
	if err != nil {
		return plan, err
	}
	defer r.Close()
	for between := p.state.Epoch(); between < epoch; between++ {
		if err := p.decideBy(func(values, targets []float64) { r.Play(between, values, targets, p.orderOf(between)) }); err != nil {
			return plan, err
		}
	}
	if err := p.decideBy(func(values, targets []float64) { r.Begin(epoch, values, targets, requested) }); err != nil {
		return plan, err
	}
	high, err := p.state.High()
	if err != nil {
		return plan, err
	}
	defer high.Close()
	return importance.NewLaw(importance.Class, r, high.Has).Serve(requested, importance.Cut{World: p.world, Batch: p.config.BatchSize})
}

// decideBy calls f with what memory policies decide by: values, or targets for next-use alone. They are freed afterwards.
func (p *important) decideBy(f func(values, targets []float64)) error {
	if p.config.Policy == "next-use" {
		targets, err := p.state.Targets()
		if err == nil {
			f(nil, targets)
		}
		offheap.Free(targets)
		return err
	}
	values, err := p.state.Values()
	if err == nil {
		f(values, nil)
	}
	offheap.Free(values)
	return err
}

// orderOf is what is served in an epoch that was drawn; nil: that is not known.
func (p *important) orderOf(epoch int) []sample.Index {
	o := p.state.Order(epoch)
	if o == nil {
		return nil
	}
	if o.Indices == nil { // the recipe's
		if whole, err := p.j.schedule.OfRecipe(p.e.ctx, epoch); err == nil {
			return whole.Global
		}
	}
	return o.Indices
}
