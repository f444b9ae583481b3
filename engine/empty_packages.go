package engine

import (
	"context"

	"lcache/internal/serve/staging"
	"lcache/reorder"
)

// If the owner of the log does not use packages, the mover empties the packages of an earlier job as soon as there is a target. It loads each package
// like a segment, and its samples move to the target. Packages come before segments, because the target needs their arena blocks.

// noPackage is a key in emptying. It means that the journal of packages could not be removed.
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

// finishPackages finishes all open packages. Only the mover calls it, before it begins a target: no sample is packed while there is a target.
func (e *Engine) finishPackages() {
	p := e.cache.Store.Packages()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, e.appendTimeout())
	defer cancel()
	for lane := range p.Open() {
		if err := p.Finish(ctx, lane); err != nil {
			e.cache.Logger.Warn("cannot finish a package; it stays open", "error", err)
		}
	}
}

// emptyPackage starts to move a package's samples to the target. It reports whether it found a slot.
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
	if !ok && e.staging.Reclaim(func(staging.Segment) bool { return true }, e.members) > 0 { // samples that were read ahead into slots will be read with random reads
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
	e.scan.Load(slot, from, number, tgt, reorder.Drain, func() {
		e.mu.Lock()
		e.loading--
		e.mu.Unlock()
		e.nudge()
	})
	return true
}

// dropPackages removes the journal of packages, which are all empty.
func (e *Engine) dropPackages() bool {
	if err := e.cache.Store.DropPackages(); err != nil {
		e.cache.Logger.Error("cannot remove the journal of the packages, which are all empty", "error", err)
		e.mu.Lock()
		e.emptying[noPackage] = true // do not try again for this target
		e.mu.Unlock()
		return true
	}
	e.cache.Logger.Info("the packages are empty and were removed")
	return true
}
