package engine

import (
	"time"

	"lcache/internal/plan"
	"lcache/internal/serve/prefetch"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/reorder"
)

// Where the disk decides between the layouts, what the disk was measured to give is a promise. At the end of each epoch the engine has facts: how long the epoch
// took, and how long ranks waited in it. Package plan decides by them whether the next epochs are read in place or in order.
//
// From the log to the static layout the mover begins no Logfile any longer: the one that is read is read to its end in order, and from then on by place. From the
// static layout to the log the job is one that begins over a full log in another order. A server that began with the static layout first asks its slots back from
// the ring, and takes up the Logfiles when it has some (docs/adr/0020-changing-the-layout.md). The source is not read for either change.

// shortestEpoch is the time that an epoch must have taken to count. In a short one the work that a server does once weighs too much.
const shortestEpoch = 5 * time.Second

// nearlyWhole is the share of what an epoch usually delivers from the log that it must have delivered, to be one like those that come.
const nearlyWhole = 0.95

// relayout is the layout as it is now. Engine.mu guards it.
type relayout struct {
	inPlace bool          // the static layout: no Logfile is begun
	reason  string        // "": that of the cache
	source  prefetch.Work // of the prefetcher, when the last epoch was over

	lent    bool              // the server began with the static layout, and has not taken up the Logfiles: nothing is moved
	filled  *reorder.EpochLog // while lent: what takes what the log lacks; nil: none does
	hits    int64             // of the last epoch that was served in place
	tookUp  int               // the epoch that was read when they were taken up; -1: they were not
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
	_, source := e.prefetcher.Work(prefetch.AllJobs)
	before := e.relayout.source
	e.relayout.source = source
	says := e.epochView(d).says()
	if says.layout == cache.LayoutStatic {
		e.relayout.hits = d.Hits
	}
	if !says.typical {
		return
	}
	s := plan.Served{Layout: plan.Policy(says.layout), Seconds: d.Seconds, Stall: d.StallSeconds, Left: plan.EpochsLeft(e.cache.Record.Job.Epochs, d.Epoch)}
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
	r.lent, r.filled, r.tookUp = false, nil, e.readEpoch
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

// epochView is the state at the end of an epoch. Every case is a paragraph of testdata/relayout.txt.
type epochView struct {
	done    status.Epoch
	samples int     // delivered by the epoch, by its order
	kept    float64 // share of the samples that the log is to hold
	hits    int64   // of the last epoch that was served in place
	others  bool    // another job has read lately
	next    bool    // the job has a next epoch
	short   time.Duration

	inPlace      bool // no Logfile is begun
	lent         bool // the server began with the static layout, and has not taken up the Logfiles
	tookUp       bool // it has taken them up in this epoch
	cur          logView
	tgt          bool // a Logfile is being filled
	unidentified bool // there is a second one, in an unknown order
	other        bool // the epoch began over a log in another order
}

// epochSays is the layout that an epoch was read in, and whether the epoch is typical of the next ones. layout is "" for a mixture of both.
type epochSays struct {
	layout  string
	typical bool
	why     string
}

// says decides whether an epoch counts for the choice of the layout.
func (v *epochView) says() epochSays {
	layout, why := v.readAs()
	if layout == "" {
		return epochSays{why: why}
	}
	why = v.untypical(layout)
	return epochSays{layout, why == "", why}
}

// readAs returns the layout that an epoch was read in; "": a mixture, and why.
func (v *epochView) readAs() (layout, why string) {
	switch {
	case v.lent && v.inPlace:
		return cache.LayoutStatic, ""
	case v.lent:
		return "", "the ring has become smaller in it"
	case !v.cur.exists:
		return "", "there is no log"
	case v.unidentified:
		return "", "a part of the log is in an unknown order"
	case v.tookUp:
		return "", "the Logfiles were taken up in it"
	case !v.inPlace && v.other:
		return "", "it was read by place, and perhaps sorted: it began over another order"
	case !v.inPlace:
		return cache.LayoutLog, ""
	case v.tgt || v.cur.epoch == v.done.Epoch:
		return "", "it was read in order after the layout had changed, and written for no next epoch"
	}
	return cache.LayoutStatic, ""
}

// untypical returns why an epoch is not typical of the next ones; "": it is. A typical epoch was delivered whole, took long enough, and no other job read during it. The log held all that it is to
// hold. In the static layout it may hold less, as after a kill, if it held no more than in the epoch before.
func (v *epochView) untypical(layout string) string {
	n, d := float64(v.samples), v.done
	enough := float64(d.Hits) >= nearlyWhole*v.kept*n
	if layout == cache.LayoutStatic {
		enough = enough || float64(d.Hits-v.hits) < (1-nearlyWhole)*n
	}
	switch {
	case !v.next:
		return "it was the last one"
	case time.Duration(d.Seconds*float64(time.Second)) < v.short:
		return "it was too short"
	case v.others:
		return "another job read at the same time"
	case float64(d.Hits+d.Misses) < nearlyWhole*n:
		return "it was not delivered whole"
	case !enough:
		return "the log holds less than it is to hold"
	}
	return ""
}

// epochView returns the state at the end of an epoch. e.mu is held.
func (e *Engine) epochView(d status.Epoch) *epochView {
	r := &e.relayout
	v := &epochView{done: d, samples: e.owner.schedule.Samples(d.Epoch), kept: float64(e.cache.Record.Kept) / float64(max(1, e.cache.Manifest.Len())), hits: r.hits,
		others: e.others() != 0, next: e.owner.schedule.Exists(d.Epoch + 1), short: shortestEpoch,
		inPlace: r.inPlace, lent: r.lent, tookUp: r.tookUp == d.Epoch, cur: viewOf(e.cur), tgt: e.tgt != nil, unidentified: e.unidentified != nil,
		other: e.beginning.began && e.beginning.epoch == d.Epoch}
	if e.opts.Relayout != nil { // whatever an epoch took
		v.short = 0
	}
	return v
}
