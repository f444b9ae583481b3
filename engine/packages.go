package engine

import (
	"context"

	"lcache/internal/serve/staging"
	"lcache/reorder"
)

// If the owner of the log does not pack, the mover empties packages that an earlier job has filled, as soon as there is a target: it loads each like a segment, and its samples go to their places in the target.
// Packages come before segments, because the target needs their places.

// noPackage is a key of emptying: the packages' journal could not be removed.
const noPackage = -1

// packageLeft returns the next package to move to the target; -1: none. hollow reports that there are packages and all of them are empty. e.mu is held.
func (e *Engine) packageLeft(packs bool) (number int, hollow bool) {
	p := e.cache.Store.Packages()
	if p == nil || packs || e.tgt == nil {
		return -1, false
	}
	if number, ok := p.FirstFinished(func(number int) bool { return e.emptying[number] }); ok {
		return number, false
	}
	return -1, p.Log().Empty() && !e.emptying[noPackage]
}

// finishPackages finishes all open packages. Only the mover calls it, before it begins a target: no sample is packed while there is one.
func (e *Engine) finishPackages() {
	p := e.cache.Store.Packages()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, e.appendTimeout())
	defer cancel()
	for lane := range p.Open() {
		if err := p.Finish(ctx, lane); err != nil {
			e.cache.Logger.Warn("a package can't be finished; it stays", "error", err)
		}
	}
}

// emptyPackage starts to move a package's samples to the target. It reports whether there was a slot for it.
func (e *Engine) emptyPackage(number int) bool {
	p := e.cache.Store.Packages()
	e.mu.Lock()
	e.lastID++
	from, tgt := &reorder.EpochLog{ID: e.lastID, Epoch: -1, Log: p.Log(), Packages: p}, e.tgt
	e.leaveWindow()
	e.mu.Unlock()
	owner := from.Owner(number)
	slot, ok := e.staging.Acquire(owner)
	if !ok && e.staging.Reclaim(e.evictable, e.members) > 0 {
		slot, ok = e.staging.Acquire(owner)
	}
	if !ok && e.staging.Reclaim(func(staging.Segment) bool { return true }, e.members) > 0 { // the samples that were read ahead into slots are read at random
		slot, ok = e.staging.Acquire(owner)
	}
	e.noteIdle(!ok)
	if !ok {
		return false
	}
	e.mu.Lock()
	e.emptying[number] = true
	e.loading++
	e.mu.Unlock()
	e.pass.Load(slot, from, number, tgt, reorder.Drain, func() {
		e.mu.Lock()
		e.loading--
		e.mu.Unlock()
		e.nudge()
	})
	return true
}

// dropPackages removes the journal of packages that are empty.
func (e *Engine) dropPackages() bool {
	if err := e.cache.Store.DropPackages(); err != nil {
		e.cache.Logger.Error("the packages, which are empty, can't be removed", "error", err)
		e.mu.Lock()
		e.emptying[noPackage] = true // not again for this target
		e.mu.Unlock()
		return true
	}
	e.cache.Logger.Info("all that was in packages is in the log again")
	return true
}
