package engine

import (
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

// expectStatic says what the reader is about to bring (deliver.Window). A rank that has waited for room in vain is served by index.
func (e *Engine) expectStatic(at *deliver.Position, indices []sample.Index, have []bool, coming []deliver.Availability) {
	hungry := true
	if at != nil {
		e.mu.Lock()
		r := e.ranks[at.Rank]
		hungry = r == nil || r.outOfWindow || r.gaveUpWaiting
		e.mu.Unlock()
	}
	for i, index := range indices {
		if have[i] {
			continue
		}
		coming[i] = deliver.Gone
		rank, when := -1, fetch.Step{}
		if at != nil {
			rank, when = at.Rank, step(at)
		}
		switch reading, queued := e.prefetcher.Look(rank, when, index); {
		case reading:
			coming[i] = deliver.Loading
		case queued && !hungry:
			coming[i] = deliver.Queued
		}
	}
	if at != nil && hungry {
		e.prefetcher.Skip(at.Rank, step(at))
	}
}

// starvedStatic makes room for a request that has waited (rule 2): what ranks have left behind goes, and this rank waits no longer.
func (e *Engine) starvedStatic(at *deliver.Position) {
	e.mu.Lock()
	if r := e.ranks[at.Rank]; r != nil {
		r.gaveUpWaiting = true
	}
	e.mu.Unlock()
	e.prefetcher.Starved()
}

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
