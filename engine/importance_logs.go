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

// logBefore returns the log of the epoch before one, whose unused segments an epoch that was drawn goes on with; nil if its layout is not known, or the owner's orders are not drawn. e.mu is held.
func (e *Engine) logBefore(epoch int) *reorder.EpochLog {
	if e.owner.importance.Load() == nil || epoch <= e.readEpoch {
		return nil
	}
	for _, l := range []*reorder.EpochLog{e.tgt, e.cur} {
		if l != nil && l.Line != nil && l.Epoch == epoch-1 {
			return l
		}
	}
	return nil
}

// newLine lays out an epoch that may be drawn. before is the log of the epoch before; nil: not known.
func (p *important) newLine(epoch int, order *schedule.Order, before *reorder.EpochLog) (*chunker.Line, error) {
	c := p.e.cache
	prediction, err := p.predict(epoch)
	if err != nil || prediction == nil {
		return c.NewLine(order, nil)
	}
	defer prediction.Free()
	var unused *epochlayout.Unused
	if before != nil {
		unused = epochlayout.CopyUnused(before.Line)
	}
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

// undelivered returns the given samples that an epoch does not deliver from its Logfile, and that no memory holds, in the memory of the list; nil: the epoch has no Logfile.
func (e *Engine) undelivered(epoch int, of []sample.Index) []sample.Index {
	held := e.fetcher.Held.Load()
	e.mu.Lock()
	defer e.mu.Unlock()
	line := e.lineOfEpoch(epoch)
	if line == nil {
		return nil
	}
	n := 0
	for _, i := range of {
		if _, delivers := line.Delivers(i); !delivers && !held.Has(i) {
			of[n] = i
			n++
		}
	}
	return of[:n]
}

// lineOfEpoch returns the layout of the Logfile of an epoch; nil: there is none. e.mu is held.
func (e *Engine) lineOfEpoch(epoch int) *chunker.Line {
	for _, l := range []*reorder.EpochLog{e.cur, e.tgt} {
		if l != nil && l.Epoch == epoch {
			return l.Line
		}
	}
	return nil
}

// newPacker makes the packer of a session within the memory that is left; nil if that is too little.
func (e *Engine) newPacker(p *important) (*packing.Packer, error) {
	return packing.New(packing.Options{
		Cache: e.cache, Logger: e.cache.Logger.With("name", p.config.Name), Turn: packTurn{e, p}, Seed: p.config.Seed, Memory: e.spareMemory(),
		AppendTimeout: e.appendTimeout(), ReadTimeout: e.fetcher.LogTimeout(),
		Slice: e.staging.Slice, Register: e.mover.Register,
		Bad: func(index sample.Index, at metaindex.Loc, half int) { e.fetcher.Bad(index, at, half, nil) },
	})
}

// packTurn is the turn of a session's packer at the Logfiles, which the mover has otherwise (packing.Turn).
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

func (t packTurn) EndAppends() { t.e.stopFilling() } // the mover starts it again when another job owns the log

func (t packTurn) Release() { t.e.moving.Unlock() }

// mayPack reports whether the packer of a session may move samples now: its job owns the log, no pass reads or writes the Logfiles, and packages outlive a restart.
func (e *Engine) mayPack(p *important) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.packsNow() || e.owner.importance.Load() != p || e.tgt != nil || e.starting != nil || e.loading > 0 || !e.cache.Store.Writable() || !packing.IsRecorded(e.cache) {
		return false
	}
	v := view{readEpoch: e.readEpoch, cur: viewOf(e.cur)}
	return e.relayout.lent || !v.inWindow()
}

// packer returns the packer of the job that owns the log, while the job's epochs are drawn; nil if its samples are not packed.
func (e *Engine) packer() *packing.Packer {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.packsNow() {
		return nil
	}
	return e.owner.importance.Load().packs
}

// packsNow reports whether the owner's epochs are drawn, and its L-samples may stand in for each other. No Logfile is begun then. e.mu is held.
func (e *Engine) packsNow() bool {
	p := e.owner.importance.Load()
	return substitutesLow(p) && p.Draws()
}

// substitutesLow reports whether a job's L-samples may stand in for each other.
func substitutesLow(p *important) bool { return p != nil && p.config.Substitute == substitute.Low }

// appendTimeout is how long an append to the log may take.
func (e *Engine) appendTimeout() time.Duration { return cmp.Or(e.opts.LogTimeout, time.Second) }
