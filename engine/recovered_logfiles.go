package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"lcache/logfile"
	"lcache/reorder"
)

// A server without a recipe gets its orders from clients, and after a restart none has pushed one yet. Until one does, the Logfiles that it finds are in
// an unknown order. A job that is resumed pushes its order again, and continues in a log that is laid out for it.
//
// If another job begins instead, and the newer of two Logfiles stays unidentified, its segments become packages, so that the next order can be laid out
// in its place. That moves no samples and loses none.

// restore resumes the recovered Logfiles: the older one is read, the newer one is being filled.
func (e *Engine) restore(found []*reorder.EpochLog) error {
	if len(found) == 2 && found[1].Layout != nil {
		if err := e.mover.Aim(found[1]); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(found) == 2 && found[1].Layout == nil {
		e.unidentified, found = found[1], found[:1]
	}
	if len(found) == 2 {
		e.tgt = found[1]
	}
	if len(found) > 0 {
		e.cur = found[0]
		e.segs = make([]segState, e.cur.Log.Header().Segments)
		if !e.requested {
			e.readEpoch = max(e.cur.Epoch, 0)
		}
	}
	if e.tgt == nil && e.unidentified == nil {
		e.startFilling(e.cur)
	}
	return nil
}

// recovered numbers the Logfiles, the older one first, and lays out the ones whose order is known.
func (e *Engine) recovered() (found []*reorder.EpochLog, err error) {
	for i, l := range e.cache.Store.ByAge() {
		// The older one may be empty because nothing was read from the source yet. Then its epoch continues, and new samples are written to the newer one.
		goesOn := i == 0 && l.Empty() && !e.cache.IsComplete(0, 1)
		if l.Empty() && e.cache.OtherHolds(l.Num()) && !goesOn {
			if err := e.cache.Store.Drop(l.Num()); err != nil {
				return nil, err
			}
			continue
		}
		if err := e.mover.Register(l); err != nil {
			return nil, err
		}
		el, err := e.identify(l)
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		e.number(el)
		e.mu.Unlock()
		found = append(found, el)
	}
	return found, nil
}

// identify finds the epoch of this job that a recovered Logfile is for. A Logfile in an order that the job does not have can still be read, and sorted.
func (e *Engine) identify(l *logfile.Logfile) (*reorder.EpochLog, error) {
	layout, _, epoch, err := e.cache.EpochLayoutOf(e.ctx, e.owner.schedule, l, e.opts.LateEpoch)
	if err != nil {
		return nil, err
	}
	return &reorder.EpochLog{Epoch: epoch, Log: l, Layout: layout}, nil
}

// comparable returns a Logfile whose epoch's order is known by now, so that both can be compared; nil: there is none. e.mu is held.
func (e *Engine) comparable() *reorder.EpochLog {
	if e.tgt != nil || e.loading > 0 {
		return nil
	}
	for _, l := range []*reorder.EpochLog{e.cur, e.unidentified} {
		if l == nil || l.Layout != nil || l.Log.IsOlder() {
			continue
		}
		n := int(l.Log.Header().Epoch)
		if version := e.owner.schedule.Version(n); e.compared[l.Log] != version && e.owner.schedule.IsComplete(n, e.opts.LateEpoch) {
			return l
		}
	}
	return nil
}

// compare compares a Logfile with the order that its epoch has now. If they agree, the log is read, or filled, as before the restart.
func (e *Engine) compare() bool {
	e.mu.Lock()
	l := e.comparable()
	e.mu.Unlock()
	if l == nil {
		return true
	}
	version := e.owner.schedule.Version(int(l.Log.Header().Epoch))
	known, err := e.identify(l.Log)
	if err == nil && known.Layout != nil && l == e.unidentified {
		err = e.mover.Aim(known)
	}
	if err != nil && e.ctx.Err() == nil {
		e.cache.Logger.Error("cannot lay out a recovered log", "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.compared[l.Log] = version
	switch {
	case err != nil || known.Layout == nil:
		if known != nil {
			known.Free()
		}
	case l == e.unidentified:
		e.fillUnidentified(known)
	default:
		delete(e.logs, l.ID)
		e.number(known)
		e.setCurrent(known)
	}
	return true
}

// fillUnidentified makes the unidentified Logfile the target, with a layout that is known now. e.mu is held.
func (e *Engine) fillUnidentified(known *reorder.EpochLog) {
	delete(e.logs, e.unidentified.ID)
	delete(e.compared, e.unidentified.Log)
	e.unidentified = nil
	_, left := e.epochBytes(e.readEpoch)
	e.beginning.begins(known.Epoch >= 0 && known.Epoch == e.readEpoch && !e.isSparse(), e.cache.Store.Stats().WriteBytes, left)
	e.setTarget(known)
}

// unorder turns the second Logfile, whose order no job has, into packages. The next order is then laid out in its place, and the packages move there
// first. A Logfile of an earlier manifest can't become packages, so its samples are dropped. Only the mover calls it.
func (e *Engine) unorder() bool {
	l := e.unidentified
	ctx, cancel := context.WithTimeout(e.ctx, unorderTime)
	defer cancel()
	ok, err := e.cache.Unorder(ctx, l.Log.Num())
	if !ok && errors.Is(err, logfile.ErrOlder) {
		err = e.mover.Discard(l.Log)
		ok = err == nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && e.ctx.Err() == nil {
		e.cache.Logger.Error("cannot turn a Logfile in an unknown order into packages, so the next Logfile cannot begin; samples stay where they are", "error", err)
	}
	if !ok {
		e.setBroken(fmt.Errorf("make room for the next log: %w", err))
		return true
	}
	delete(e.logs, l.ID)
	delete(e.compared, l.Log)
	e.unidentified = nil
	return true
}

// unorderTime is the deadline for the writes that unorder waits for. After it the mover tries again later.
const unorderTime = 10 * time.Second

// restoreStatic uses the Logfiles as they are. In the static layout no scan reads the log in order, and no sample is moved. The prefetcher reads each
// rank's upcoming chunks by location, into a miss ring that has the memory of the slots. Only samples that the log should keep and lacks are written, in
// the first epoch without prefill or after damage. Each is written once, after it was read from the source.
func (e *Engine) restoreStatic() error {
	if e.cache.IsComplete(0, 1) {
		return nil
	}
	var newest *reorder.EpochLog
	for _, l := range slices.Backward(e.cache.Store.ByAge()) {
		el, err := e.identify(l)
		if err != nil {
			return err
		}
		if el.Layout != nil {
			newest = el
			break
		}
	}
	if newest == nil {
		e.cache.Logger.Info("samples that the log lacks are read from the source each time, because the log is not in this job's order; run lcache ingest to complete it")
		return nil
	}
	e.number(newest)
	if err := e.mover.Register(newest.Log); err != nil {
		return err
	}
	e.relayout.filled = newest
	e.startFilling(newest)
	return nil
}
