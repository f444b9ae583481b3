package engine

import (
	"time"

	"lcache/cache"
	"lcache/fetch"
	"lcache/internal/serve/status"
	"lcache/plan"
	"lcache/reorder"
)

// Where the disk decides between the layouts, what the disk was measured to give is a promise. At the end of each epoch the engine has facts: how long the epoch
// took, and how long ranks waited in it. Package plan decides by them whether the next epochs are read in place or in order.
//
// From the log to the static layout the mover begins no Logfile any longer: the one that is read is read to its end in order, and from then on by place. From the
// static layout to the log the job is one that begins over a full log in another order. A server that began with the static layout first asks its slots back from
// the ring, and takes up the Logfiles when it has some (docs/adr/0020-changing-the-layout.md). The source is not read for either change.

// shortestEpoch is how long an epoch must have taken to say anything: a short one has what a server does once in it.
const shortestEpoch = 5 * time.Second

// nearlyWhole is the share of what an epoch usually delivers from the log that it must have delivered, to be one like those that come.
const nearlyWhole = 0.95

// relayout is the layout as it is now. Engine.mu guards it.
type relayout struct {
	inPlace bool       // the static layout: no Logfile is begun
	reason  string     // "": that of the cache
	source  fetch.Work // of the prefetcher, when the last epoch was over

	lent    bool              // the server began with the static layout, and has not taken up the Logfiles: nothing is moved
	filled  *reorder.EpochLog // while lent: what takes what the log lacks; nil: none does
	hits    int64             // of the last epoch that was served in place
	tookUp  int               // one more than the epoch that was read when they were taken up; 0: they were not
	unnoted bool              // the layout is not in the record yet
	noting  bool              // it is being written there
}

// leastSlots is how many slots must have come back from the ring for the Logfiles to be taken up: one that is read, and one that is loaded.
const leastSlots = 2

// layoutNow is the layout that is served, and why. e.mu is held.
func (e *Engine) layoutNow() (layout, reason string) {
	layout, reason = cache.LayoutLog, e.cache.LayoutReason
	if e.relayout.inPlace {
		layout = cache.LayoutStatic
	}
	if e.relayout.reason != "" {
		reason = e.relayout.reason
	}
	return layout, reason
}

// reconsider chooses the layout again, at the end of an epoch. e.mu is held.
func (e *Engine) reconsider(d status.Epoch) {
	if !e.cache.MayChange() {
		return
	}
	_, source := e.prefetcher.Work(fetch.AllJobs)
	before := e.relayout.source
	e.relayout.source = source
	was, ok := e.readAs(d)
	if !ok || !e.isTypical(d, was) || !e.owner.schedule.Exists(d.Epoch+1) {
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
	inPlace := layout == cache.LayoutStatic
	e.relayout.reason = reason
	if inPlace != e.relayout.inPlace {
		e.cache.Logger.Info("the layout changes", "after epoch", d.Epoch, "layout", layout, "why", reason)
		e.changeLayout(inPlace)
	}
}

// changeLayout lets samples stay in place from now on, or be put in order. e.mu is held.
func (e *Engine) changeLayout(inPlace bool) {
	e.relayout.inPlace, e.relayout.unnoted = inPlace, true
	if e.relayout.lent && !inPlace {
		e.staging.ReturnSlots()
		e.prefetcher.UseSide()
	}
	e.nudge()
}

func (e *Engine) layoutAgain(s plan.Served, sourceBPS float64) (layout, reason string, err error) {
	if e.opts.Relayout != nil {
		return e.opts.Relayout(s), cache.ByDisk + "as long as a test says", nil
	}
	return e.cache.LayoutAgain(s, sourceBPS)
}

// takeUp takes up the Logfiles, so that they are read and written in order from now on. The prefetcher goes on meanwhile. Only the mover calls it.
func (e *Engine) takeUp() bool {
	e.stopFilling()
	found, err := e.recovered()
	if err == nil {
		err = e.restore(found)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.relayout
	if err != nil {
		e.cache.Logger.Error("the log can't be taken up; samples stay where they are", "error", err)
		r.inPlace, r.unnoted = true, true
		e.startFilling(r.filled)
		return true
	}
	if r.filled != nil {
		delete(e.logs, r.filled.ID)
		r.filled.Free()
	}
	r.lent, r.filled, r.tookUp = false, nil, e.readEpoch+1
	e.paused, e.windowHitRate = false, 1
	e.cache.Logger.Info("the log is read and written in order from now on", "epoch", e.readEpoch, "slots", e.staging.SlotsBack())
	return true
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
// job began with over another order was read by place and perhaps sorted, and so was the one in which the Logfiles were taken up. e.mu is held.
func (e *Engine) readAs(d status.Epoch) (layout string, ok bool) {
	switch {
	case e.relayout.lent:
		return cache.LayoutStatic, e.relayout.inPlace // else the ring has become smaller in it
	case e.cur == nil, e.unidentified != nil, e.relayout.tookUp == d.Epoch+1:
		return "", false
	case !e.relayout.inPlace:
		return cache.LayoutLog, !e.beginning.began || e.beginning.epoch != d.Epoch
	}
	return cache.LayoutStatic, e.tgt == nil && e.cur.Epoch != d.Epoch
}

// isTypical reports whether an epoch was like those that come: whole, long enough, and without another job beside it. It is also from a log that holds what it is to
// hold; or from one in place that holds less, as after a kill, and holds no more than in the epoch before. e.mu is held.
func (e *Engine) isTypical(d status.Epoch, layout string) bool {
	n := float64(e.owner.schedule.Samples(d.Epoch))
	kept := float64(e.cache.Record.Kept) / float64(max(1, e.cache.Manifest.Len()))
	long := time.Duration(d.Seconds*float64(time.Second)) >= shortestEpoch || e.opts.Relayout != nil
	enough := float64(d.Hits) >= nearlyWhole*kept*n
	if layout == cache.LayoutStatic {
		enough = enough || float64(d.Hits-e.relayout.hits) < (1-nearlyWhole)*n
		e.relayout.hits = d.Hits
	}
	return long && e.others() == 0 && float64(d.Hits+d.Misses) >= nearlyWhole*n && enough
}
