package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"lcache/chunker"
	"lcache/logfile"
	"lcache/reorder"
	"lcache/sample"
)

// filling puts what the log lacks, and a request has read from the source, where the Logfile's geometry has a place for it: in the static
// layout, and while nothing is written on because no next order is known. It ends before the pass begins to move what that Logfile holds.
type filling struct {
	log     *logfile.Logfile
	segment []uint32

	mu      sync.Mutex // guards the fields that follow
	busy    map[sample.Index]struct{}
	pause   time.Time // nothing is tried before
	stopped bool
	appends sync.WaitGroup // added to only under mu, and not after stopped
}

// startFilling lets a line's Logfile take what it lacks.
func (e *Engine) startFilling(l *reorder.EpochLog) {
	if l == nil || l.Line == nil {
		return
	}
	e.filling.Store(&filling{log: l.Log, segment: l.Line.Segment, busy: map[sample.Index]struct{}{}})
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
}

// enter reports whether a sample may be appended now. Each is tried by one at a time.
func (f *filling) enter(index sample.Index) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, busy := f.busy[index]; busy || f.stopped || time.Now().Before(f.pause) {
		return false
	}
	f.busy[index] = struct{}{}
	f.appends.Add(1)
	return true
}

func (f *filling) leave(index sample.Index, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.busy, index)
	f.appends.Done()
	if err != nil && !errors.Is(err, logfile.ErrFull) {
		f.pause = time.Now().Add(layOutAgain)
	}
}

// storeMiss appends a sample that came from the source, if the log is to keep it. A disk that does not take it holds up its caller for a second at most: the
// sample is read from the source once more, another time.
func (e *Engine) storeMiss(index sample.Index, data []byte) {
	f := e.filling.Load()
	if f == nil || !e.cache.Admits(index) || e.cache.Locations.Get(index) != 0 || !f.enter(index) {
		return
	}
	limit := e.opts.LogTimeout
	if limit == 0 {
		limit = time.Second
	}
	ctx, cancel := context.WithTimeout(e.ctx, limit)
	defer cancel()
	var err error
	if seg := f.segment[index]; seg != chunker.None && e.cache.Locations.Get(index) == 0 { // else somebody was quicker
		var off uint64
		if off, err = e.cache.AppendTo(ctx, f.log, int(seg), index, data); err == nil {
			e.cache.Locations.Set(index, e.cache.Locations.At(f.log.Half(), int(seg), off))
		}
	}
	f.leave(index, err)
	if err != nil && !errors.Is(err, logfile.ErrFull) && e.ctx.Err() == nil {
		e.cache.Logger.Warn("a sample could not be appended to the log; it is read from the source again", "sample", index, "error", err)
	}
}
