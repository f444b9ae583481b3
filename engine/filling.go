package engine

import (
	"context"
	"errors"

	"lcache/chunker"
	"lcache/internal/importance/packing"
	"lcache/logfile"
	"lcache/reorder"
	"lcache/sample"
)

// filling appends samples that the log lacks after a request has read them from the source, if the Logfile's layout has room for them. It runs in the
// static layout, and while no target is written because the next order is unknown. It ends before the scan begins to move the samples of that Logfile. A
// Logfile that is being filled also takes samples that were chosen for it and that the scan does not deliver.
type filling struct {
	log     *logfile.Logfile
	segment []uint32
	router  *reorder.Router // of a Logfile that the scan also fills; nil: the scan does not
	appends
}

// startFilling begins to append misses to a Logfile, as far as its layout has room for them.
func (e *Engine) startFilling(l *reorder.EpochLog) {
	if l == nil || l.Layout == nil {
		return
	}
	e.filling.Store(&filling{log: l.Log, segment: l.Layout.Segment})
}

// acceptMisses lets the target accept samples that were chosen for it and come from the source. e.mu is held.
func (e *Engine) acceptMisses(tgt *reorder.EpochLog) {
	if tgt.Layout == nil || !tgt.Layout.Chosen || tgt.Router == nil {
		return
	}
	e.filling.Store(&filling{log: tgt.Log, segment: tgt.Layout.Segment, router: tgt.Router})
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

// stopFilling ends filling. It returns when no append is running.
func (e *Engine) stopFilling() {
	f := e.filling.Swap(nil)
	if f == nil {
		return
	}
	f.stop()
	if f.router == nil {
		f.log.FailWaiting() // no arena block was freed meanwhile; the scan, which frees some, needs the write buffers
	}
}

// storeMiss appends a sample that this machine did not have, if the log should keep it. If the disk does not accept the sample within a second, storeMiss
// returns, and the sample is read from the source again later.
func (e *Engine) storeMiss(from sample.Origin, index sample.Index, data []byte) {
	if a := e.arrivals.Load(); a != nil {
		a.store(e.ctx, from, index, data, e.now, e.appendTimeout())
		return
	}
	if e.packer().Missed(index, data) {
		return
	}
	f := e.filling.Load()
	if f == nil || f.segment[index] == chunker.None || e.cache.Locations.Get(index) != 0 || !f.enter(index, e.now(), true) {
		return
	}
	reserve := int64(e.cache.Sizing.Slack) // for samples on their way from one log to the next
	if f.router != nil && !(e.cache.Store.HasRoom(reserve+int64(len(data))) && f.router.Claim(index)) {
		f.leave(e.now(), index, nil)
		return
	}
	ctx, cancel := context.WithTimeout(e.ctx, e.appendTimeout())
	defer cancel()
	var err error
	if seg := int(f.segment[index]); e.cache.Locations.Get(index) == 0 { // otherwise another goroutine was faster
		var off uint64
		if off, err = e.cache.AppendTo(ctx, f.log, seg, index, data); err == nil {
			e.cache.Locations.Set(index, e.cache.Locations.At(f.log.Num(), seg, off))
		} else if f.router != nil {
			f.router.Unclaim(index)
		}
	}
	f.leave(e.now(), index, err)
	if err != nil && !errors.Is(err, logfile.ErrFull) && e.ctx.Err() == nil {
		e.cache.Logger.Warn("cannot append a sample to the log; it will be read from the source again", "sample", index, "error", err)
	}
}
