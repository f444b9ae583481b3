package engine

import (
	"errors"

	"lcache/chunker"
	"lcache/drawn"
	"lcache/importance"
	"lcache/internal/importance/epochlayout"
	"lcache/reorder"
	"lcache/sample"
	"lcache/schedule"
)

// unusedBefore copies the unused segments of the layout of the epoch before one; nil if that is not known, or the owner's orders are not drawn. e.mu is held.
func (e *Engine) unusedBefore(epoch int) *epochlayout.Unused {
	if e.owner.importance.Load() == nil || epoch <= e.readEpoch {
		return nil
	}
	for _, l := range []*reorder.EpochLog{e.tgt, e.cur} {
		if l != nil && l.Line != nil && l.Epoch == epoch-1 {
			return epochlayout.CopyUnused(l.Line)
		}
	}
	return nil
}

// newLine lays out an epoch that may be drawn. unused are the unused segments of the epoch before; nil: not known.
func (p *important) newLine(epoch int, order *schedule.Order, unused *epochlayout.Unused) (*chunker.Line, error) {
	c := p.e.cache
	prediction, err := p.predict(epoch)
	if err != nil || prediction == nil {
		return c.NewLine(order, nil)
	}
	defer prediction.Free()
	log := epochlayout.Log{Sizes: c.Manifest.Sizes(), Align: c.Format.Align, Segment: c.Sizing.Segment, Block: c.Sizing.Block, Compressed: c.Form != nil,
		Admits: c.Placement().Keeps, Has: func(i sample.Index) bool { return c.Locations.Get(i) != 0 }}
	rest, kept := log.Rest(&epochlayout.Epoch{Prediction: prediction, Order: order.Global, Earlier: func() []sample.Index { return p.orderBefore(epoch) }, Held: p.e.fetcher.Held.Load().Has, Unused: unused, Along: p.along.Room()})
	defer kept.Close()
	if rest.Order == nil {
		return c.NewLine(order, nil)
	}
	return c.NewLineAfter(order, rest, kept)
}

// predict returns what an epoch is expected to need most; nil: the epoch is not drawn.
func (p *important) predict(epoch int) (*epochlayout.Prediction, error) {
	var mostUsed []sample.Index
	var err error
	view := p.View(func(s *drawn.State) {
		if uses := s.Uses(epoch); uses != nil {
			mostUsed, err = importance.MostUsed(uses)
		}
	})
	if err = errors.Join(view, err); err != nil || mostUsed == nil {
		return nil, err
	}
	return epochlayout.Predict(mostUsed, p.config, p.high.Held().Size)
}

// orderBefore returns the samples that the epoch before one delivers; nil: that one has begun, or its order is not known.
func (p *important) orderBefore(epoch int) []sample.Index {
	e := p.e
	e.mu.Lock()
	over := epoch <= e.readEpoch
	e.mu.Unlock()
	if over || !p.j.schedule.IsComplete(epoch-1, e.opts.LateEpoch) {
		return nil
	}
	order, err := p.j.schedule.ToLayOut(e.ctx, epoch-1)
	if err != nil {
		return nil
	}
	return order.Global
}
