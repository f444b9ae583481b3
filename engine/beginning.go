package engine

import (
	"time"

	"lcache/deliver"
	"lcache/fetch"
	"lcache/plan"
	"lcache/reorder"
)

// A job may begin over a full log in another order: with another seed, with the same one from its first epoch on, or far from where it was broken off. The
// prefetcher serves it by place at once. Whether the log is sorted into the epoch that is read, so that the window takes over, is decided by package plan from
// what is measured meanwhile. Until then nothing is written, so that a slow consumer, or a look at three batches, wears no drive.

// fewBatches is how many batches of the epoch must have been delivered before anything is decided.
const fewBatches = 4

// nearlyEqual is the ratio of both times up to which the next epoch's log is begun at once, beside the reads by place. Between it and the ratio that a sort
// needs the question stays open until it is asked again.
const nearlyEqual = 1.1

// beginning is what was measured since an epoch began over a log in another order. Engine.mu guards it.
type beginning struct {
	epoch  int
	log    uint64 // its ID
	choice plan.Choice

	stall          time.Duration // totals when it began
	chunks         int64
	place, source  fetch.Work
	again          time.Time // when rates are compared next
	sequentialRate float64   // of reads in order, bytes a second; 0: not measured
	measuring      bool      // somebody measures it
	sorting        bool      // the target is the epoch that is read, and the log held much when that began
	written        uint64    // bytes, when the sort began
	left           uint64    // bytes of the epoch that is read, when the target was begun
	depth          int       // of the prefetcher; 0: as it likes
}

// choiceFor returns what was decided for an epoch and the log that is read; Wait if that was about another epoch or log.
func (b *beginning) choiceFor(epoch int, cur *reorder.EpochLog) plan.Choice {
	if cur == nil || b.epoch != epoch || b.log != cur.ID {
		return plan.Wait
	}
	return b.choice
}

// begins notes that a Logfile is begun; sorts says that it is a sort into the epoch that is read.
func (b *beginning) begins(sorts bool, written, left uint64) {
	b.sorting, b.written, b.left = sorts, written, left
}

// ends notes that the Logfile has become the log that is read, and returns the bytes that a sort has written.
func (b *beginning) ends(written uint64) (sorted int64) {
	sorted = b.unfinished(written)
	b.sorting = false
	return sorted
}

// unfinished returns the bytes that a sort which is under way has written.
func (b *beginning) unfinished(written uint64) int64 {
	if !b.sorting || written < b.written {
		return 0
	}
	return int64(written - b.written)
}

// consider decides what becomes of the log that is read, if it is in the order of an epoch that is not read. e.mu is held.
func (e *Engine) consider(v *view) {
	b := &e.beginning
	if !v.requested || !v.cur.exists || v.tgt.exists || v.inPlace || v.inWindow() || v.sparse() {
		return
	}
	if b.epoch != v.readEpoch || b.log != e.cur.ID || b.chunks == 0 {
		choice := plan.Wait
		if e.opts.sortAtOnce || b.log == e.cur.ID && b.choice == plan.Wait && b.chunks > 0 && e.hasFinished(b.epoch) {
			choice = plan.Sort // a whole epoch was read while nothing was decided: the log is laid out for the one that comes
		}
		place, source := e.prefetcher.Work(e.owner.number)
		chunks := b.chunks
		if b.epoch != v.readEpoch || chunks == 0 { // else the order changed under a job that reads on
			chunks = e.ownerStats().Chunks.Load() + 1
		}
		*b = beginning{epoch: v.readEpoch, log: e.cur.ID, choice: choice, stall: e.ownerStats().Stall.Total(), chunks: chunks,
			place: place, source: source, sequentialRate: b.sequentialRate, measuring: b.measuring, depth: b.depth}
		v.choice = choice
	}
	if b.choice != plan.Wait || time.Now().Before(b.again) {
		return
	}
	facts := e.beginningFacts(b)
	if facts.Left == 0 || facts.Delivered < plan.TooLate && e.ownerStats().Chunks.Load()-b.chunks < fewBatches {
		return
	}
	choice, place, sort, why := facts.Decide()
	known := place > 0 && sort > 0 // false for what is not a number
	if e.opts.Begin != nil {
		choice, known, why = e.opts.Begin(facts), false, "a test says so"
	}
	switch {
	case choice == plan.Wait && e.opts.Begin != nil:
		return
	case choice != plan.Wait:
	case !known && b.sequentialRate == 0 && !b.measuring && facts.Waited >= plan.WaitedEnough:
		b.measuring = true
		e.builders.Go(e.measureSequential)
		return
	case !known:
		return
	case place <= nearlyEqual*sort:
		choice = plan.Place
	default:
		b.again = time.Now().Add(plan.ReconsiderAfter(place))
	}
	b.choice, v.choice = choice, choice
	if choice != plan.Wait {
		e.cache.Logger.Info("a job begins over a log in another order", "epoch", v.readEpoch, "choice", choice, "why", why)
	}
}

// hasFinished reports whether the ranks that read have read an epoch to its end. e.mu is held.
func (e *Engine) hasFinished(epoch int) bool {
	finished := false
	for _, r := range e.owner.ranks {
		if r.asked.IsZero() {
			continue
		}
		if r.finishedEpoch < epoch+1 {
			return false
		}
		finished = true
	}
	return finished
}

// beginningFacts are the facts of a beginning as they are now. Samples count as they are stored. e.mu is held.
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
	if facts.MissBytes < facts.Left/100 || source.Bytes == b.source.Bytes { // padding is no miss, and ranks did not wait for a source that nothing was read from
		facts.MissBytes = 0
	}
	return facts
}

// ownerStats are the counters of the job that the log is laid out for. e.mu is held.
func (e *Engine) ownerStats() *deliver.Stats {
	return e.deliver.StatsOf(e.owner.number)
}

// rate is bytes a second between two answers of Prefetcher.Work; 0 where nothing was done.
func rate(from, to fetch.Work) float64 {
	if to.Busy < from.Busy { // the job slept meanwhile
		from = fetch.Work{}
	}
	if busy := (to.Busy - from.Busy).Seconds(); busy > 0 {
		return float64(to.Bytes-from.Bytes) / busy
	}
	return 0
}

// epochBytes returns how many bytes an epoch delivers to the ranks that read it, and how many of them are left. e.mu is held.
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
