package session

import "lcache/sample"

// beginMemory begins an epoch of the memory policy.
func (w *worker) beginMemory() {
	epoch := w.state.Epoch()
	if w.state.Order(epoch) == nil {
		return
	}
	w.o.High.SetRatio(w.state.Ratio())
	w.beginPackages()
	order := w.orderOf(epoch)
	w.beginOpportunistic(epoch, order)
	if err := w.decideBy(func(values, targets []float64) { w.o.High.Begin(epoch, values, targets, order, w.o.Config) }); err != nil {
		w.o.Log.Warn("the memory policy could not begin the epoch; it keeps the samples of the epoch before", "name", w.o.Config.Name, "epoch", epoch, "err", err)
	}
}

// beginOpportunistic begins an epoch of opportunistic reads. A plain epoch has none, because it delivers all samples
// of its layout in order.
func (w *worker) beginOpportunistic(epoch int, order []sample.Index) {
	if w.state.Order(epoch).Plain {
		order = nil
	}
	next, partial := w.state.Partial()
	if next != epoch+1 {
		partial = nil
	}
	if o := w.state.Order(epoch + 1); o != nil && !o.Plain {
		partial = o.Indices
	}
	w.o.Opportunistic.Begin(epoch, order, partial)
}

// beginPackages begins an epoch of the job's packages, if epochs are already drawn.
func (w *worker) beginPackages() {
	drawn := false
	for epoch, o := range w.state.Orders() {
		drawn = drawn || epoch >= w.state.Epoch() && !o.Plain
	}
	w.isDrawn.Store(drawn)
	if !drawn || w.o.BeginPackages == nil {
		return
	}
	high, err := w.state.High()
	if err != nil {
		w.o.Log.Warn("the packer could not begin the epoch; it keeps the H-samples of the epoch before", "name", w.o.Config.Name, "err", err)
		return
	}
	w.o.BeginPackages(high)
}
