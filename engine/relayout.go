package engine

import (
	"time"

	"lcache/internal/plan"
	"lcache/internal/serve/prefetch"
	"lcache/internal/serve/status"
	"lcache/internal/store/cache"
	"lcache/reorder"
)

// If the measured speed of the disk decided between the layouts, that measurement is only a prediction. At the end of each epoch the engine knows how
// long the epoch took, and how long ranks waited in it. From this package plan decides whether the next epochs are read in place or in order.
//
// To change from the log to the static layout, the mover begins no other Logfile. The current one is read to its end in order, and with random reads
// from then on. To change from the static layout to the log, the engine treats the job as one that begins over a full log in another order. A server
// that began with the static layout first takes slots back from the miss ring, and switches when it has some (docs/adr/0020-changing-the-layout.md).
// Neither change reads the source.

// shortestEpoch is the minimum duration of an epoch that counts. In a short one, work that a server does only once has too much weight.
const shortestEpoch = 5 * time.Second

// nearlyWhole is the share of its usual deliveries from the log that an epoch must have made to be typical of the next ones.
const nearlyWhole = 0.95

// relayout is the state of the layout. Engine.mu guards it.
type relayout struct {
	inPlace bool          // the static layout: no Logfile is begun
	reason  string        // why inPlace has its value; "": the cache's reason
	source  prefetch.Work // of the prefetcher, at the end of the last epoch

	lent       bool              // the server began with the static layout, and its slots are part of the miss ring: nothing is moved
	filled     *reorder.EpochLog // while lent: the log that misses are appended to; nil: none
	hits       int64             // in the last epoch that was served in place
	switched   int               // the epoch that was read when the Logfiles were recovered into slots; -1: they were not
	unrecorded bool              // the layout is not in the record yet
	recording  bool              // a goroutine is writing it into the record
}

// leastSlots is how many slots the ring must have returned before the log layout begins: one that is read, and one that is being loaded.
const leastSlots = 2

// layoutNow returns the current layout, and the reason for it. e.mu is held.
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
		e.cache.Logger.Warn("cannot choose the layout again", "error", err)
		return
	}
	inPlace := layout == cache.LayoutStatic
	e.relayout.reason = reason
	if inPlace != e.relayout.inPlace {
		e.cache.Logger.Info("the layout changes", "after_epoch", d.Epoch, "layout", layout, "why", reason)
		e.changeLayout(inPlace)
	}
}

// changeLayout makes samples stay in place from now on, or be reordered. e.mu is held.
func (e *Engine) changeLayout(inPlace bool) {
	e.relayout.inPlace, e.relayout.unrecorded = inPlace, true
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

// switchToLog recovers the Logfiles, so that they are read and written in order from now on. The prefetcher continues meanwhile. Only the mover calls it.
func (e *Engine) switchToLog() bool {
	e.stopFilling()
	found, err := e.recovered()
	if err == nil {
		err = e.restore(found)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.relayout
	if err != nil {
		e.cache.Logger.Error("cannot switch to the log layout; samples stay where they are", "error", err)
		r.inPlace, r.unrecorded = true, true
		e.startFilling(r.filled)
		return true
	}
	if r.filled != nil {
		delete(e.logs, r.filled.ID)
		r.filled.Free()
	}
	r.lent, r.filled, r.switched = false, nil, e.readEpoch
	e.paused, e.windowHitRate = false, 1
	e.cache.Logger.Info("the log is read and written in order from now on", "epoch", e.readEpoch, "slots", e.staging.SlotsBack())
	return true
}

// recordLayout starts to record a changed layout for the next start. The mover calls it. e.mu is held.
func (e *Engine) recordLayout() {
	r := &e.relayout
	if !r.unrecorded || r.recording {
		return
	}
	r.recording = true
	e.builders.Go(func() {
		e.writeLayout()
		e.mu.Lock()
		e.relayout.recording = false
		e.mu.Unlock()
		e.nudge()
	})
}

// writeLayout writes the layout into the record, if it is not there yet.
func (e *Engine) writeLayout() {
	e.mu.Lock()
	r := &e.relayout
	layout, reason := e.layoutNow()
	was := r.unrecorded
	r.unrecorded = false
	e.mu.Unlock()
	if !was {
		return
	}
	if err := e.cache.NoteLayout(layout, reason); err != nil {
		e.cache.Logger.Warn("cannot record the chosen layout for the next start", "error", err)
	}
}

// epochView is the state at the end of an epoch. Every case is a paragraph of testdata/relayout.txt.
type epochView struct {
	done    status.Epoch
	samples int     // samples that the epoch delivers, by its order
	kept    float64 // share of the samples that the log should hold
	hits    int64   // in the last epoch that was served in place
	others  bool    // another job has read recently
	next    bool    // the job has a next epoch
	short   time.Duration

	inPlace      bool // no Logfile is begun
	lent         bool // the server began with the static layout, and has not switched to the log yet
	switched     bool // it switched to the log in this epoch
	cur          logView
	tgt          bool // a Logfile is being filled
	unidentified bool // there is a second Logfile, in an unknown order
	other        bool // the epoch began over a log in another order
}

// epochSays is the layout that an epoch was read in, and whether the epoch is typical of the next ones. layout is "" if both layouts were used.
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

// readAs returns the layout that an epoch was read in; "" if both were used, and the reason.
func (v *epochView) readAs() (layout, why string) {
	switch {
	case v.lent && v.inPlace:
		return cache.LayoutStatic, ""
	case v.lent:
		return "", "the miss ring became smaller during it"
	case !v.cur.exists:
		return "", "there is no log"
	case v.unidentified:
		return "", "a part of the log is in an unknown order"
	case v.switched:
		return "", "the server switched to the log layout during it"
	case !v.inPlace && v.other:
		return "", "it began over a log in another order: it was read with random reads, and perhaps sorted"
	case !v.inPlace:
		return cache.LayoutLog, ""
	case v.tgt || v.cur.epoch == v.done.Epoch:
		return "", "it was read in order after a change of the layout, and there was no target"
	}
	return cache.LayoutStatic, ""
}

// untypical returns why an epoch is not typical of the next ones; "" if it is. A typical epoch was delivered whole, took long enough, and no other job
// read during it. The log held all samples that it should hold. In the static layout it may hold fewer, as after a kill, if it held no more than in the
// epoch before.
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
		return "the log lacks samples that it should hold"
	}
	return ""
}

// epochView returns the state at the end of an epoch. e.mu is held.
func (e *Engine) epochView(d status.Epoch) *epochView {
	r := &e.relayout
	v := &epochView{done: d, samples: e.owner.schedule.Samples(d.Epoch), kept: float64(e.cache.Record.Kept) / float64(max(1, e.cache.Manifest.Len())), hits: r.hits,
		others: e.others() != 0, next: e.owner.schedule.Exists(d.Epoch + 1), short: shortestEpoch,
		inPlace: r.inPlace, lent: r.lent, switched: r.switched == d.Epoch, cur: viewOf(e.cur), tgt: e.tgt != nil, unidentified: e.unidentified != nil,
		other: e.beginning.began && e.beginning.epoch == d.Epoch}
	if e.opts.Relayout != nil { // a test decides, however long an epoch took
		v.short = 0
	}
	return v
}
