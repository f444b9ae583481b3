package engine

import (
	"cmp"
	"errors"
	"time"

	"lcache/chunker"
	"lcache/internal/importance/epochlayout"
	"lcache/internal/importance/packing"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/state"
	"lcache/internal/importance/substitute"
	"lcache/internal/serve/schedule"
	"lcache/metaindex"
	"lcache/reorder"
	"lcache/sample"
)

// logBefore returns the log of the epoch before the given one. An importance-sampled epoch carries unused segments of that log. It returns nil if that
// log's layout is not known, or the owner's orders are not drawn. e.mu is held.
func (e *Engine) logBefore(epoch int) *reorder.EpochLog {
	if e.owner.importance.Load() == nil || epoch <= e.readEpoch {
		return nil
	}
	for _, l := range []*reorder.EpochLog{e.tgt, e.cur} {
		if l != nil && l.Layout != nil && l.Epoch == epoch-1 {
			return l
		}
	}
	return nil
}

// newEpochLayout lays out an epoch whose order may be importance-sampled. before is the log of the epoch before; nil: not known.
func (p *important) newEpochLayout(epoch int, order *schedule.Order, before *reorder.EpochLog) (*chunker.EpochLayout, error) {
	c := p.e.cache
	prediction, err := p.predict(epoch)
	if err != nil || prediction == nil {
		return c.NewEpochLayout(order, nil)
	}
	defer prediction.Free()
	var old *epochlayout.Unused
	if before != nil {
		old = epochlayout.CopyUnused(before.Layout)
	}
	log := epochlayout.Log{Sizes: c.Manifest.Sizes(), Align: c.Format.Align, Segment: c.Sizing.Segment, Block: c.Sizing.Block, Compressed: c.Form != nil,
		Admits: c.Placement().Keeps, Has: func(i sample.Index) bool { return c.Locations.Get(i) != 0 }}
	unused, kept := log.Unused(&epochlayout.Epoch{Prediction: prediction, Order: order.Global, Earlier: func() []sample.Index { return p.orderBefore(epoch) }, Held: p.e.fetcher.Held.Load().Has, Unused: old, Opportunistic: p.opportunistic.Room()})
	defer kept.Close()
	if unused.Order == nil {
		return c.NewEpochLayout(order, nil)
	}
	return c.NewEpochLayoutWith(order, unused, kept)
}

// predict returns the samples that an epoch is expected to need most; nil: its order is not drawn.
func (p *important) predict(epoch int) (*epochlayout.Prediction, error) {
	var mostUsed []sample.Index
	var err error
	view := p.View(func(s *state.State) {
		if uses := s.Uses(epoch); uses != nil {
			mostUsed, err = policy.MostUsed(uses)
		}
	})
	if err = errors.Join(view, err); err != nil || mostUsed == nil {
		return nil, err
	}
	return epochlayout.Predict(mostUsed, p.config, p.high.Held().Size)
}

// orderBefore returns the samples of the epoch before the given one; nil: that epoch has begun, or its order is not known.
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

// undelivered returns the given samples that an epoch does not deliver from its Logfile and that no memory holds. It reuses the memory of the list. It
// returns nil if the epoch has no Logfile.
func (e *Engine) undelivered(epoch int, of []sample.Index) []sample.Index {
	held := e.fetcher.Held.Load()
	e.mu.Lock()
	defer e.mu.Unlock()
	layout := e.layoutOfEpoch(epoch)
	if layout == nil {
		return nil
	}
	n := 0
	for _, i := range of {
		if _, delivers := layout.Delivers(i); !delivers && !held.Has(i) {
			of[n] = i
			n++
		}
	}
	return of[:n]
}

// layoutOfEpoch returns the layout of an epoch's Logfile; nil: there is none. e.mu is held.
func (e *Engine) layoutOfEpoch(epoch int) *chunker.EpochLayout {
	for _, l := range []*reorder.EpochLog{e.cur, e.tgt} {
		if l != nil && l.Epoch == epoch {
			return l.Layout
		}
	}
	return nil
}

// newPacker creates the packer of a session in the remaining memory; nil if that is too little.
func (e *Engine) newPacker(p *important) (*packing.Packer, error) {
	return packing.New(packing.Options{
		Cache: e.cache, Logger: e.cache.Logger.With("name", p.config.Name), Turn: packTurn{e, p}, Seed: p.config.Seed, Memory: e.spareMemory(),
		AppendTimeout: e.appendTimeout(), ReadTimeout: e.fetcher.LogTimeout(),
		Slice: e.staging.Slice, Register: e.mover.Register,
		Bad: func(index sample.Index, at metaindex.Loc, num int) { e.fetcher.Bad(index, at, num, nil) },
	})
}

// packTurn lets a session's packer change the Logfiles, which the mover does at other times (packing.Turn).
type packTurn struct {
	e *Engine
	p *important
}

func (t packTurn) Try() bool {
	t.e.moving.Lock()
	if !t.e.mayPack(t.p) {
		t.e.moving.Unlock()
		return false
	}
	return true
}

func (t packTurn) EndAppends() { t.e.stopFilling() } // the mover restarts it when another job owns the log

func (t packTurn) Release() { t.e.moving.Unlock() }

// mayPack reports whether a session's packer may move samples now: its job owns the log, no scan reads or writes the Logfiles, and packages survive a
// restart.
func (e *Engine) mayPack(p *important) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.packsNow() || e.owner.importance.Load() != p || e.tgt != nil || e.starting != nil || e.loading > 0 || !e.cache.Store.Writable() || !packing.IsRecorded(e.cache) {
		return false
	}
	v := view{readEpoch: e.readEpoch, cur: viewOf(e.cur)}
	return e.relayout.lent || !v.inWindow()
}

// packer returns the packer of the log's owner while the owner's epochs are drawn; nil if its samples are not packed.
func (e *Engine) packer() *packing.Packer {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.packsNow() {
		return nil
	}
	return e.owner.importance.Load().packs
}

// packsNow reports whether the owner's epochs are drawn and its L-samples may be substituted for each other. Then no Logfile is begun. e.mu is held.
func (e *Engine) packsNow() bool {
	p := e.owner.importance.Load()
	return substitutesLow(p) && p.Draws()
}

// substitutesLow reports whether a job's L-samples may be substituted for each other.
func substitutesLow(p *important) bool { return p != nil && p.config.Substitute == substitute.Low }

// appendTimeout is how long an append to the log may take.
func (e *Engine) appendTimeout() time.Duration { return cmp.Or(e.opts.LogTimeout, time.Second) }
