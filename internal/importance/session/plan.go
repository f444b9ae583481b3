package session

import (
	"fmt"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/substitute"
	"lcache/sample"
)

// plan makes the served order for an order that was just drawn. The state calls it while it draws.
func (w *worker) plan(epoch int, requested []sample.Index) (plan substitute.Plan, err error) {
	switch w.o.Config.Substitute {
	case substitute.Low:
		return w.planLow(epoch, requested)
	case substitute.Class:
		return w.planClass(epoch, requested)
	}
	return plan, fmt.Errorf("substitute=%q is not a kind of substitutes", w.o.Config.Substitute)
}

// planLow replaces L-samples that are not loaded by loaded ones (ImPACT §III-D).
func (w *worker) planLow(epoch int, requested []sample.Index) (plan substitute.Plan, err error) {
	high, err := w.state.High()
	if err != nil {
		return plan, err
	}
	defer high.Close()
	m := w.o.Manifest
	loading, err := substitute.NewLoading(w.o.Host.Units(high, epoch, w.o.Config.Seed), substitute.LoadingOptions{Samples: m.Len(), Size: func(i sample.Index) int64 { return int64(m.Size(i)) },
		High: high.Has, Depth: w.o.Config.Params.LDepth, Seed: w.o.Config.Seed, Epoch: epoch})
	if err != nil {
		return plan, err
	}
	defer loading.Close()
	plan, err = substitute.NewRules(substitute.Low, loading, high.Has).Serve(requested, substitute.Cut{World: w.o.Config.WorldSize, Batch: w.o.Config.BatchSize})
	w.loaded, w.loads = loading.Most(), w.loads+int64(loading.Loads())
	return plan, err
}

// planClass replaces samples by nodes that are their neighbours, unless memory will have the requested samples or
// they are H-samples (SpiderCache §IV-B). If an order is drawn an epoch ahead, memory is simulated through the epoch
// in between.
func (w *worker) planClass(epoch int, requested []sample.Index) (plan substitute.Plan, err error) {
	w.o.High.SetRatio(w.state.Ratio())
	r, err := w.o.High.Rehearsal()
	if err != nil {
		return plan, err
	}
	defer r.Close()
	for between := w.state.Epoch(); between < epoch; between++ {
		if err := w.decideBy(func(values, targets []float64) { r.Play(between, values, targets, w.orderOf(between)) }); err != nil {
			return plan, err
		}
	}
	if err := w.decideBy(func(values, targets []float64) { r.Begin(epoch, values, targets, requested) }); err != nil {
		return plan, err
	}
	high, err := w.state.High()
	if err != nil {
		return plan, err
	}
	defer high.Close()
	return substitute.NewRules(substitute.Class, r, high.Has).Serve(requested, substitute.Cut{World: w.o.Config.WorldSize, Batch: w.o.Config.BatchSize})
}

// decideBy calls f with the input of memory policies: values, and for next-use targets. f must not keep them.
func (w *worker) decideBy(f func(values, targets []float64)) error {
	if w.o.Config.Policy == "next-use" {
		targets, err := w.state.Targets()
		if err == nil {
			f(nil, targets)
		}
		offheap.Free(targets)
		return err
	}
	values, err := w.state.Values()
	if err == nil {
		f(values, nil)
	}
	offheap.Free(values)
	return err
}

// orderOf returns the served order of a drawn epoch; nil: it is not known.
func (w *worker) orderOf(epoch int) []sample.Index {
	o := w.state.Order(epoch)
	if o == nil {
		return nil
	}
	if o.Indices == nil { // the order of the recipe
		if whole, err := w.o.Schedule.OfRecipe(w.ctx, epoch); err == nil {
			return whole.Global
		}
	}
	return o.Indices
}
