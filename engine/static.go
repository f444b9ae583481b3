package engine

import (
	"iter"
	"slices"

	"lcache/deliver"
	"lcache/fetch"
	"lcache/reorder"
	"lcache/sample"
)

// In the static layout samples stay where they were packed: no pass, no slots, nothing is moved. A fetch.Prefetcher reads each rank's coming
// chunks by place into the ring, which has the memory that slots take otherwise. Only what the log should keep and lacks (the first
// epoch without prefill, a sample that was damaged) is written, once, when the source has been asked for it.

// restoreStatic takes the Logfiles as they are.
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
		if el.Line != nil {
			newest = el
			break
		}
	}
	if newest == nil {
		e.cache.Logger.Info("what the log lacks is read from the source each time: its order is not this job's; ingest completes it")
		return nil
	}
	e.number(newest)
	if err := e.mover.Register(newest.Log); err != nil {
		return err
	}
	e.startFilling(newest)
	return nil
}

// newReader makes what reads ahead in the static layout.
func (e *Engine) newReader() *fetch.Prefetcher {
	return fetch.NewPrefetcher(e.fetcher, fetch.PrefetcherOptions{Chunk: e.comingChunk, Leased: int64(e.cache.Sizing.Credit), Ranks: len(e.cache.Schedule.Local()), Idle: e.noteIdle})
}

// comingChunk is what a rank asks for at a step, and what comes after that.
func (e *Engine) comingChunk(rank int, at fetch.Step) (indices []sample.Index, next fetch.Step, ok bool) {
	if !e.cache.Schedule.IsKnown(at.Epoch) {
		return nil, at, false
	}
	indices, ok, err := e.cache.Schedule.Chunk(e.ctx, position(at.Epoch, rank, at.Batch))
	if err != nil {
		return nil, at, false
	}
	next = fetch.Step{Epoch: at.Epoch, Batch: at.Batch + 1}
	if next.Batch >= e.cache.Schedule.Batches(at.Epoch, rank) {
		next = fetch.Step{Epoch: at.Epoch + 1}
	}
	return indices, next, ok || next.Epoch > at.Epoch
}

func step(at *deliver.Position) fetch.Step { return fetch.Step{Epoch: at.Epoch, Batch: at.Batch} }

// placeBringer is the prefetcher that reads each rank's coming chunks by place. A rank that gave up waiting for room is served by index.
type placeBringer struct{ *Engine }

func (b placeBringer) expect(q query) func(sample.Index) deliver.Availability {
	rank, when := -1, fetch.Step{}
	if q.at != nil {
		rank, when = q.at.Rank, step(q.at)
	}
	return func(index sample.Index) deliver.Availability {
		switch reading, queued := b.prefetcher.Look(rank, when, index); {
		case reading:
			return deliver.Loading
		case queued && q.mayWait():
			return deliver.Queued
		}
		return deliver.Gone
	}
}

// decided lets the prefetcher leave out what the request reads by index.
func (b placeBringer) decided(q query, _ iter.Seq2[sample.Index, deliver.Availability]) {
	if !q.mayWait() {
		b.prefetcher.Skip(q.at.Rank, step(q.at))
	}
}

func (b placeBringer) asked(at *deliver.Position, _ bool) { b.prefetcher.Asked(at.Rank, step(at)) }

// lostPatience gives up what ranks have left behind, and lets this rank wait no longer (rule 2).
func (b placeBringer) lostPatience(at *deliver.Position) {
	b.mu.Lock()
	if r := b.ranks[at.Rank]; r != nil {
		r.gaveUpWaiting = true
	}
	b.mu.Unlock()
	b.prefetcher.Starved()
}

func (b placeBringer) delivered(at *deliver.Position) { b.prefetcher.Delivered(at.Rank, step(at)) }

func (b placeBringer) pushed(rank, epoch int) { b.prefetcher.Changed(rank, epoch) }

// readyStatic is how many batches lie ready before the hindmost rank.
func (e *Engine) readyStatic() int {
	least := -1
	for n, r := range e.ranks {
		if r.asked.IsZero() {
			continue
		}
		if ready := e.prefetcher.Ready(n); least < 0 || ready < least {
			least = ready
		}
	}
	return max(least, 0)
}
