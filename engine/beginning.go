package engine

import (
	"time"

	"lcache/internal/plan"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/prefetch"
	"lcache/reorder"
)

// A job may start when the log is full and in another order: with another seed, from its first epoch again, or far from where it was interrupted. The prefetcher
// serves it with random reads at once. Package plan decides from measurements whether to sort the log into the epoch that is read, so that the prefetch
// window can serve it. Until then nothing is written: a job that reads only three batches, or reads slowly, adds nothing to the write volume.

// fewBatches is the number of batches that an epoch must have delivered before anything is decided.
const fewBatches = 4

// nearlyEqual: if random reads take at most this many times as long as a sort, the engine reads randomly, and begins the next epoch's log at once.
// Between nearlyEqual and the ratio that justifies a sort, the engine decides later.
const nearlyEqual = 1.1

// beginning has the measurements since an epoch began over a log in another order. Engine.mu guards it.
type beginning struct {
	began  bool // if false, nothing was measured, and the next fields up to source are not set
	epoch  int
	log    uint64 // the log's ID
	choice plan.Choice

	stall          time.Duration // totals when the epoch began
	chunks         int64
	place, source  prefetch.Work
	again          time.Time // when the rates are compared next
	sequentialRate float64   // bytes/s of sequential reads; 0: not measured
	measuring      bool      // a measurement is running
	lacksSlot      bool      // it could not be measured, because all slots hold segments
	sorting        bool      // the target is the epoch that is read, and the log held much when the target was begun
	written        uint64    // bytes, when the sort began
	left           uint64    // bytes left of the epoch that is read, when the target was begun
	depth          int       // of the prefetcher's queue; 0: no limit
}

// choiceFor returns the choice for an epoch and the log that is read. Wait means that there is none yet.
func (b *beginning) choiceFor(epoch int, cur *reorder.EpochLog) plan.Choice {
	if cur == nil || !b.isOf(epoch, cur.ID) {
		return plan.Wait
	}
	return b.choice
}

// isOf reports whether b was measured in this epoch over this log.
func (b *beginning) isOf(epoch int, log uint64) bool {
	return b.began && b.epoch == epoch && b.log == log
}

// begins notes that a Logfile is begun. If sorts is true, the log is sorted into the epoch that is read.
func (b *beginning) begins(sorts bool, written, left uint64) {
	b.sorting, b.written, b.left = sorts, written, left
}

// ends notes that the Logfile has become the log that is read. It returns the bytes that a sort has written.
func (b *beginning) ends(written uint64) (sorted int64) {
	sorted = b.unfinished(written)
	b.sorting = false
	return sorted
}

// unfinished returns the bytes that a running sort has written.
func (b *beginning) unfinished(written uint64) int64 {
	if !b.sorting || written < b.written {
		return 0
	}
	return int64(written - b.written)
}

// beginningView is the input of decideBeginning, at one moment. Every case is a paragraph of testdata/beginning.txt.
type beginningView struct {
	now        time.Time
	other      bool   // requests are served from a full log in another order than the epoch that is read, and no Logfile is being filled
	epoch      int    // the epoch that is read
	log        uint64 // the ID of the log that is read
	last       beginning
	finished   bool  // the ranks have read last.epoch to its end
	chunks     int64 // delivered to the job so far
	sortAtOnce bool
	facts      func() plan.Beginning            // measured since last
	test       func(plan.Beginning) plan.Choice // replaces the rule of package plan; nil: no test
}

type beginningAct uint8

const (
	beginNothing beginningAct = iota
	beginAgain                // note that an epoch begins over this log, and decide again
	beginMeasure              // measure how fast the scan reads in order
	beginChoose               // keep the choice from now on
	beginLater                // compare the rates again later
)

// beginningAction is the next step for a log in another order, and the reason.
type beginningAction struct {
	act    beginningAct
	choice plan.Choice   // with beginAgain and beginChoose
	after  time.Duration // with beginLater
	why    string
}

// decideBeginning decides whether a full log in another order is sorted, is read with random reads, or must be measured first.
func decideBeginning(v beginningView) beginningAction {
	b := &v.last
	nothing := func(why string) beginningAction { return beginningAction{why: why} }
	switch {
	case !v.other:
		return nothing("the log is in order, or something else is decided")
	case b.isOf(v.epoch, v.log) && b.choice != plan.Wait:
		return nothing("the choice is made")
	case b.isOf(v.epoch, v.log) && v.now.Before(b.again):
		return nothing("the rates were compared recently")
	case b.isOf(v.epoch, v.log):
		return v.weigh(v.facts())
	case v.sortAtOnce:
		return beginningAction{act: beginAgain, choice: plan.Sort, why: "the server was told to sort at once"}
	case b.began && b.log == v.log && b.choice == plan.Wait && v.finished:
		return beginningAction{act: beginAgain, choice: plan.Sort, why: "a whole epoch was read without a decision: the log is laid out for the next epoch"}
	}
	return beginningAction{act: beginAgain, choice: plan.Wait, why: "an epoch begins over it"}
}

// weigh decides from measurements since the epoch began.
func (v *beginningView) weigh(f plan.Beginning) beginningAction {
	b := &v.last
	switch {
	case f.Left == 0:
		return beginningAction{why: "the epoch is over"}
	case f.Delivered < plan.TooLate && v.chunks-b.chunks <= fewBatches:
		return beginningAction{why: "too few batches were read to decide"}
	case v.test != nil:
		if choice := v.test(f); choice != plan.Wait {
			return beginningAction{act: beginChoose, choice: choice, why: "chosen by a test"}
		}
		return beginningAction{why: "chosen by a test"}
	}
	choice, place, sort, why := f.Decide()
	known := place > 0 && sort > 0 // false for NaN
	switch {
	case choice != plan.Wait:
		return beginningAction{act: beginChoose, choice: choice, why: why}
	case !known && b.sequentialRate == 0 && !b.measuring && f.Waited >= plan.WaitedEnough:
		return beginningAction{act: beginMeasure, why: why}
	case !known:
		return beginningAction{why: why}
	case place <= nearlyEqual*sort:
		return beginningAction{act: beginChoose, choice: plan.InPlace, why: why}
	}
	return beginningAction{act: beginLater, after: plan.ReconsiderAfter(place), why: why}
}

// beginningView returns the input of decideBeginning. e.mu is held.
func (e *Engine) beginningView(v *view) beginningView {
	b := &e.beginning
	w := beginningView{now: e.now(), other: v.isInOtherOrder(), epoch: v.readEpoch, last: *b, sortAtOnce: e.opts.sortAtOnce,
		facts: func() plan.Beginning { return e.beginningFacts(b) }, test: e.opts.Begin}
	if w.other {
		w.log, w.finished, w.chunks = e.cur.ID, e.hasFinished(b.epoch), e.ownerStats().Chunks.Load()
	}
	return w
}

// consider applies decideBeginning to the log that is read. e.mu is held.
func (e *Engine) consider(v *view) {
	w := e.beginningView(v)
	a := decideBeginning(w)
	if a.act == beginAgain {
		e.beginAgain(&w, a.choice)
		w = e.beginningView(v)
		a = decideBeginning(w)
	}
	b := &e.beginning
	switch a.act {
	case beginMeasure:
		b.measuring = true
		e.builders.Go(e.measureSequential)
	case beginChoose:
		b.choice = a.choice
		e.cache.Logger.Info("a job begins over a log in another order", "epoch", v.readEpoch, "choice", a.choice, "why", a.why)
	case beginLater:
		b.again = w.now.Add(a.after)
	}
	v.choice = b.choiceFor(v.readEpoch, e.cur)
}

// beginAgain notes that an epoch begins over the log that is read. e.mu is held.
func (e *Engine) beginAgain(w *beginningView, choice plan.Choice) {
	b := &e.beginning
	place, source := e.prefetcher.Work(e.owner.number)
	chunks := w.chunks
	if b.began && b.epoch == w.epoch { // the order of a running job changed
		chunks = b.chunks
	}
	*b = beginning{began: true, epoch: w.epoch, log: w.log, choice: choice, stall: e.ownerStats().Stall.Total(), chunks: chunks,
		place: place, source: source, sequentialRate: b.sequentialRate, measuring: b.measuring, depth: b.depth}
}

// hasFinished reports whether all ranks that have requested something have read an epoch to its end. e.mu is held.
func (e *Engine) hasFinished(epoch int) bool {
	finished := false
	for _, r := range e.owner.ranks {
		if r.asked.IsZero() {
			continue
		}
		if !r.hasFinished(epoch) {
			return false
		}
		finished = true
	}
	return finished
}

// beginningFacts returns the facts of a beginning as they are now. Samples count with their compressed size. e.mu is held.
func (e *Engine) beginningFacts(b *beginning) plan.Beginning {
	place, source := e.prefetcher.Work(e.owner.number)
	stored := 1.0
	if e.cache.Record.IsPacked() && e.cache.Record.KeptBytes > 0 {
		stored = float64(e.cache.Record.Stored) / float64(e.cache.Record.KeptBytes)
	}
	all, left := e.epochBytes(b.epoch)
	held := e.heldInOrder()
	kept := min(1, float64(held)/max(1, stored*float64(e.cache.Manifest.Bytes())))
	facts := plan.Beginning{Left: uint64(float64(left) * kept * stored), Held: held, MissBytes: uint64(float64(left) * (1 - kept)),
		Waited: e.ownerStats().Stall.Total() - b.stall, Last: !e.owner.schedule.Exists(b.epoch + 1), BlockBytes: float64(e.cache.Format.Block),
		Place: stored * rate(b.place, place), Source: rate(b.source, source), Sort: b.sequentialRate, Read: b.sequentialRate,
		Device: plan.DiskLine{ReadBPS: b.sequentialRate, WriteBPS: b.sequentialRate}}
	if all > 0 {
		facts.Delivered = 1 - float64(left)/float64(all)
	}
	if facts.MissBytes < facts.Left/100 || source.Bytes == b.source.Bytes { // only padding is missing, or nothing was read from the source
		facts.MissBytes = 0
	}
	return facts
}

// ownerStats returns the counters of the job that owns the log's order. e.mu is held.
func (e *Engine) ownerStats() *deliver.Stats {
	return e.deliver.StatsOf(e.owner.number)
}

// rate returns the bytes per second between two answers of Prefetcher.Work; 0 if nothing was read.
func rate(from, to prefetch.Work) float64 {
	if to.Busy < from.Busy { // the job slept between the two
		from = prefetch.Work{}
	}
	if busy := (to.Busy - from.Busy).Seconds(); busy > 0 {
		return float64(to.Bytes-from.Bytes) / busy
	}
	return 0
}

// epochBytes returns how many bytes an epoch delivers to the ranks that read it, and how many of them are not delivered yet. e.mu is held.
func (e *Engine) epochBytes(epoch int) (all, left uint64) {
	for n, r := range e.owner.ranks {
		bytes, batches := e.owner.lists.bytes(n, epoch)
		if batches == 0 {
			continue
		}
		all += bytes
		done := min(batches, r.position(e.owner.schedule, n, epoch))
		left += bytes - uint64(float64(bytes)*float64(done)/float64(batches))
	}
	return all, left
}
