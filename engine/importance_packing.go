package engine

import (
	"cmp"
	"time"

	"lcache/importance"
	"lcache/internal/importance/packing"
	"lcache/metaindex"
	"lcache/sample"
)

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
func substitutesLow(p *important) bool { return p != nil && p.config.Substitute == importance.Low }

// appendTimeout is how long an append to the log may take.
func (e *Engine) appendTimeout() time.Duration { return cmp.Or(e.opts.LogTimeout, time.Second) }
