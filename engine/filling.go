package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"lcache/chunker"
	"lcache/internal/importance/packing"
	"lcache/logfile"
	"lcache/reorder"
	"lcache/sample"
)

// filling puts what the log lacks, and a request has read from the source, where the Logfile's geometry has a place for it: in the static
// layout, and while nothing is written on because no next order is known. It ends before the pass begins to move what that Logfile holds.
// A Logfile that is being filled takes by it what was chosen for it, and the pass does not bring.
type filling struct {
	log     *logfile.Logfile
	segment []uint32
	router  *reorder.Router // of a Logfile that the pass fills, too; nil: it does not

	mu      sync.Mutex // guards the fields that follow
	busy    map[sample.Index]struct{}
	pause   time.Time // nothing is tried before
	stopped bool
	appends sync.WaitGroup // added to only under mu, and not after stopped
}

// startFilling begins to append misses to a Logfile, as far as its layout has a place for them.
func (e *Engine) startFilling(l *reorder.EpochLog) {
	if l == nil || l.Line == nil {
		return
	}
	e.filling.Store(&filling{log: l.Log, segment: l.Line.Segment, busy: map[sample.Index]struct{}{}})
}

// takeComing lets the log that is being filled take the samples that were chosen for it and come from the source. e.mu is held.
func (e *Engine) takeComing(tgt *reorder.EpochLog) {
	if tgt.Line == nil || !tgt.Line.Chosen || tgt.Router == nil {
		return
	}
	e.filling.Store(&filling{log: tgt.Log, segment: tgt.Line.Segment, router: tgt.Router, busy: map[sample.Index]struct{}{}})
}

// hasRoom reports whether the arena has more room than the scan needs for samples on their way from one log to the next.
func (e *Engine) hasRoom() bool {
	held := e.cache.Sizing.Slack
	for _, l := range e.cache.Store.Logfiles() {
		if l != nil {
			held += l.Held()
		}
	}
	if p := e.cache.Store.Packages(); p != nil {
		held += p.Log().Held()
	}
	return held < e.cache.Sizing.Arena
}

// fillAgain begins to append misses to the log again, when the owner no longer puts samples into packages. Only the mover calls it. e.mu is held.
func (e *Engine) fillAgain() {
	switch {
	case e.filling.Load() != nil || e.packsNow() && packing.IsRecorded(e.cache):
	case e.relayout.lent:
		e.startFilling(e.relayout.filled)
	case e.tgt == nil && e.unidentified == nil:
		e.startFilling(e.cur)
	}
}

// stopFilling ends filling, and returns when no append is under way.
func (e *Engine) stopFilling() {
	f := e.filling.Swap(nil)
	if f == nil {
		return
	}
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	f.appends.Wait()
	if f.router == nil {
		f.log.GiveUpWaiting() // nothing freed a place meanwhile. The pass, which frees some, needs the write buffers
	}
}

// enter reports whether a sample may be appended now. Each is tried by one at a time.
func (f *filling) enter(index sample.Index, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, busy := f.busy[index]; busy || f.stopped || now.Before(f.pause) {
		return false
	}
	f.busy[index] = struct{}{}
	f.appends.Add(1)
	return true
}

func (f *filling) leave(now time.Time, index sample.Index, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.busy, index)
	f.appends.Done()
	if err != nil && !errors.Is(err, logfile.ErrFull) {
		f.pause = now.Add(layOutAgain)
	}
}

// storeMiss appends a sample that this machine did not have, if the log is to keep it. A disk that does not take it holds up its caller for a second at most: the
// sample is read from the source once more, another time.
func (e *Engine) storeMiss(_ sample.Origin, index sample.Index, data []byte) {
	if e.packer().Missed(index, data) {
		return
	}
	f := e.filling.Load()
	if f == nil || f.segment[index] == chunker.None || e.cache.Locations.Get(index) != 0 || !f.enter(index, e.now()) {
		return
	}
	if f.router != nil && !(e.hasRoom() && f.router.Claim(index)) {
		f.leave(e.now(), index, nil)
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, e.appendTimeout())
	defer cancel()
	var err error
	if seg := int(f.segment[index]); e.cache.Locations.Get(index) == 0 { // else somebody was quicker
		var off uint64
		if off, err = e.cache.AppendTo(ctx, f.log, seg, index, data); err == nil {
			e.cache.Locations.Set(index, e.cache.Locations.At(f.log.Half(), seg, off))
		} else if f.router != nil {
			f.router.Unclaim(index)
		}
	}
	f.leave(e.now(), index, err)
	if err != nil && !errors.Is(err, logfile.ErrFull) && e.ctx.Err() == nil {
		e.cache.Logger.Warn("a sample could not be appended to the log; it is read from the source again", "sample", index, "error", err)
	}
}
