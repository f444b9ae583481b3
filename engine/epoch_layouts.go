package engine

import (
	"fmt"

	"lcache/chunker"
	"lcache/internal/serve/staging"
	"lcache/reorder"
)

// layOut lays out an epoch in a goroutine, and wakes the mover when it is done. e.mu is held.
func (e *Engine) layOut(epoch int) {
	if _, under := e.layingOut[epoch]; under || e.layouts[epoch] != nil {
		return
	}
	s, p, before := e.owner.schedule, e.owner.importance.Load(), e.logBefore(epoch)
	e.layingOut[epoch] = before
	e.builders.Go(func() {
		order, err := s.ToLayOut(e.ctx, epoch)
		var layout *chunker.EpochLayout
		switch {
		case err == nil && p != nil:
			layout, err = p.newEpochLayout(epoch, order, before)
		case err == nil:
			layout, err = e.cache.NewEpochLayout(order, nil)
		}
		e.mu.Lock()
		delete(e.layingOut, epoch)
		switch {
		case err == nil && (s != e.owner.schedule || !s.IsCurrent(epoch, order)):
			layout.Free()
		case err == nil:
			e.layouts[epoch] = &laterLayout{epoch: epoch, order: order, layout: layout}
		case s == e.owner.schedule:
			e.setBroken(fmt.Errorf("lay out epoch %d: %w", epoch, err))
		}
		e.mu.Unlock()
		if err == nil {
			e.cache.Logger.Debug("an epoch is laid out", "epoch", epoch, "ranks", order.Ranks)
		} else if e.ctx.Err() == nil {
			e.cache.Logger.Error("cannot lay out the next epoch; samples stay where they are", "epoch", epoch, "error", err)
		}
		e.nudge()
	})
}

// setBroken notes that the next epoch can't be laid out, or its Logfile can't be begun. e.mu is held.
func (e *Engine) setBroken(err error) { e.broken, e.brokenAt = err, e.now() }

// retire frees the layouts whose segments no slot holds any longer.
func (e *Engine) retire() {
	alive := map[uint64]bool{}
	e.staging.Holders(func(owner staging.Segment, _ int) { alive[owner.Log] = true })
	e.mu.Lock()
	defer e.mu.Unlock()
	used := map[*reorder.EpochLog]bool{e.cur: true, e.tgt: true, e.unidentified: true}
	for id, l := range e.logs {
		used[l] = used[l] || alive[id]
	}
	for _, before := range e.layingOut {
		used[before] = true
	}
	for id, l := range e.logs {
		if alive[id] || used[l] && id == l.ID {
			continue
		}
		delete(e.logs, id)
		if !used[l] && id == l.ID {
			l.Free()
		}
	}
	v := e.view()
	for epoch, l := range e.layouts { // ranks that jump between epochs leave layouts behind
		if epoch != v.next() && (e.tgt == nil || epoch != e.tgt.Epoch+1) {
			delete(e.layouts, epoch)
			l.layout.Free()
		}
	}
}

// freeLayouts frees all layouts. No goroutine may read or move samples.
func (e *Engine) freeLayouts() {
	all := map[*reorder.EpochLog]bool{e.cur: true, e.tgt: true, e.unidentified: true}
	for _, l := range e.logs {
		all[l] = true
	}
	delete(all, nil)
	for l := range all {
		l.Free()
	}
	for _, l := range e.layouts {
		l.layout.Free()
	}
	if e.starting != nil {
		e.starting.layout.Free()
	}
}
