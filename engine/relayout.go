package engine

import (
	"time"

	"lcache/cache"
	"lcache/fetch"
	"lcache/plan"
)

// Where the disk decides between the layouts, what the disk was measured to give is a promise. At the end of each epoch the engine has facts: how long the epoch
// took, and how long ranks waited in it. Package plan decides by them whether the next epochs are read in place or in order.
//
// A server that began with a log can do both. In place, the mover begins no Logfile any longer: the one that is read is read to its end in order, and from then
// on by place. In order again, the job is one that begins over a full log in another order. A server that began with the static layout has no slots, which are cut
// out of the shared memory at the start: it notes the choice for the next start (docs/adr/0020-changing-the-layout.md).

// shortestEpoch is how long an epoch must have taken to say anything: a short one has what a server does once in it.
const shortestEpoch = 5 * time.Second

// nearlyWhole is the share of what an epoch usually delivers from the log that it must have delivered, to be one like those that come.
const nearlyWhole = 0.95

// relayout is the layout as it is now. Engine.mu guards it.
type relayout struct {
	inPlace bool       // the server began with a log, and begins no other one
	reason  string     // "": that of the cache
	source  fetch.Work // of the prefetcher, when the last epoch was over

	next, nextReason string // the layout from the next start on; "": the one that is served
	unnoted, noting  bool   // it is not in the record yet; it is being written there
}

// layoutNow is the layout that is served, and why. e.mu is held.
func (e *Engine) layoutNow() (layout, reason string) {
	layout, reason = e.cache.Layout, e.cache.LayoutReason
	if e.relayout.inPlace {
		layout = cache.LayoutStatic
	}
	if e.relayout.reason != "" {
		reason = e.relayout.reason
	}
	return layout, reason
}

// reconsider chooses the layout again, at the end of an epoch. e.mu is held.
func (e *Engine) reconsider(d EpochDone) {
	if !e.cache.MayChange() {
		return
	}
	_, source := e.prefetcher.Work()
	before := e.relayout.source
	e.relayout.source = source
	was, ok := e.readAs(d)
	if !ok || !e.isTypical(d) || !e.owner.schedule.Exists(d.Epoch+1) {
		return
	}
	s := plan.Served{Layout: plan.Policy(was), Seconds: d.Seconds, Stall: d.StallSeconds, Left: plan.EpochsLeft(e.cache.Record.Job.Epochs, d.Epoch)}
	sourceBPS := 0.0
	if d.Misses > d.Hits/100 {
		sourceBPS = rate(before, source)
	}
	layout, reason, err := e.layoutAgain(s, sourceBPS)
	if err != nil {
		e.cache.Logger.Warn("the layout can't be chosen again", "error", err)
		return
	}
	if e.cache.IsStatic() {
		e.chooseNext(layout, reason)
		return
	}
	inPlace := layout == cache.LayoutStatic
	changed := inPlace != e.relayout.inPlace
	e.relayout.inPlace, e.relayout.reason = inPlace, reason
	if changed {
		e.cache.Logger.Info("the layout changes", "after epoch", d.Epoch, "layout", layout, "why", reason)
		e.relayout.unnoted = true
		e.nudge()
	}
}

func (e *Engine) layoutAgain(s plan.Served, sourceBPS float64) (layout, reason string, err error) {
	if e.opts.Relayout != nil {
		return e.opts.Relayout(s), cache.ByDisk + "as long as a test says", nil
	}
	inLog := e.cur != nil && e.cur.Epoch >= 0
	return e.cache.LayoutAgain(s, sourceBPS, inLog)
}

// chooseNext notes what a server without slots would do. e.mu is held.
func (e *Engine) chooseNext(layout, reason string) {
	e.relayout.reason = reason
	if layout == cache.LayoutLog {
		e.relayout.reason += "; so it will be from the next start of the server on"
	}
	if layout == e.relayout.next || e.relayout.next == "" && layout == e.cache.Layout {
		return
	}
	e.relayout.next, e.relayout.nextReason, e.relayout.unnoted = layout, reason, true
	e.nudge()
}

// note keeps the choice for the next start, once it has changed: the mover calls it. e.mu is held.
func (e *Engine) note() {
	r := &e.relayout
	if !r.unnoted || r.noting {
		return
	}
	r.noting = true
	e.builders.Go(func() {
		e.keepLayout()
		e.mu.Lock()
		e.relayout.noting = false
		e.mu.Unlock()
		e.nudge()
	})
}

// keepLayout writes the choice into the record, if it is not there yet.
func (e *Engine) keepLayout() {
	e.mu.Lock()
	r := &e.relayout
	layout, reason := e.layoutNow()
	if r.next != "" {
		layout, reason = r.next, r.nextReason
	}
	was := r.unnoted
	r.unnoted = false
	e.mu.Unlock()
	if !was {
		return
	}
	if err := e.cache.NoteLayout(layout, reason); err != nil {
		e.cache.Logger.Warn("the layout that was chosen is not kept for the next start", "error", err)
	}
}

// readAs is the layout in which an epoch was read; false if it was a mixture: the first one in place is still read in order, and written for nobody; one that a
// job began with over another order was read by place and perhaps sorted. e.mu is held.
func (e *Engine) readAs(d EpochDone) (layout string, ok bool) {
	switch {
	case e.cache.IsStatic():
		return cache.LayoutStatic, true
	case e.cur == nil, e.unidentified != nil:
		return "", false
	case !e.relayout.inPlace:
		return cache.LayoutLog, e.beginning.epoch != d.Epoch || e.beginning.chunks == 0
	}
	return cache.LayoutStatic, e.tgt == nil && e.cur.Epoch != d.Epoch
}

// isTypical reports whether an epoch was like those that come: whole, long enough, from a log that holds what it is to hold, and without another job beside it.
// e.mu is held.
func (e *Engine) isTypical(d EpochDone) bool {
	n := float64(e.owner.schedule.Samples(d.Epoch))
	kept := float64(e.cache.Record.Kept) / float64(max(1, e.cache.Manifest.Len()))
	long := time.Duration(d.Seconds*float64(time.Second)) >= shortestEpoch || e.opts.Relayout != nil
	return long && e.others() == 0 && float64(d.Hits+d.Misses) >= nearlyWhole*n && float64(d.Hits) >= nearlyWhole*kept*n
}
