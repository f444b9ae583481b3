package engine

import (
	"iter"
	"sync"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/prefetch"
	"lcache/metaindex"
	"lcache/sample"
)

// newPrefetcher creates the part that loads samples that the scan does not. In the static layout it loads all samples, into the miss ring. In the log
// layout chunks that are read ahead may also be in side memory.
func (e *Engine) newPrefetcher() *prefetch.Prefetcher {
	return prefetch.New(e.fetcher, prefetch.Options{Chunk: e.upcomingChunk, Later: e.laterChunk, Count: e.readCounts, Side: !e.cache.IsStatic(),
		Leased: int64(e.cache.Sizing.Credit), Ranks: len(e.owner.schedule.Local()), Idle: e.noteFull})
}

// chunkLists has the metadata of chunks (CMs) for the epochs that ranks are in.
type chunkLists struct {
	mu    sync.Mutex // guards the field that follows
	lists map[chunkListKey]chunkListOf
}

type chunkListKey struct{ rank, epoch int }

type chunkListOf struct {
	list    *metaindex.List
	version int // of the order
}

// chunkList returns the CMs of an epoch of a job's rank, and the chunks themselves; nil if the order is not known. The first call for an epoch walks its
// order.
func (e *Engine) chunkList(j *job, rank, epoch int) (*metaindex.List, metaindex.Chunks) {
	version := j.schedule.Version(epoch)
	chunks, err := j.schedule.Chunks(e.ctx, epoch, rank)
	if err != nil {
		return nil, nil
	}
	key := chunkListKey{rank, epoch}
	j.lists.mu.Lock()
	have := j.lists.lists[key]
	j.lists.mu.Unlock()
	if have.list != nil && have.version == version {
		return have.list, chunks
	}
	list := metaindex.NewList(j.schedule.Batches(epoch, rank), chunks, e.cache.Manifest.Sizes(), e.cache.Locations)
	j.lists.mu.Lock()
	defer j.lists.mu.Unlock()
	if j.lists.lists == nil {
		j.lists.lists = map[chunkListKey]chunkListOf{}
	}
	for k := range j.lists.lists { // keep the lists of the epoch that the rank is in and of the next one
		if k.rank == rank && (k.epoch < epoch-1 || k.epoch > epoch) {
			delete(j.lists.lists, k)
		}
	}
	j.lists.lists[key] = chunkListOf{list, version}
	return list, chunks
}

// bytes returns how many bytes and batches a rank's epoch has; 0 if its CMs are not listed.
func (l *chunkLists) bytes(rank, epoch int) (bytes uint64, batches int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	have := l.lists[chunkListKey{rank, epoch}]
	if have.list == nil {
		return 0, 0
	}
	return have.list.Bytes(), have.list.Len()
}

// readCounts returns the counts of reads for a job.
func (e *Engine) readCounts(job int) *fetch.Counts { return &e.deliver.StatsOf(job).Reads }

// prefetchProducer is the prefetcher as a producer. A rank that gave up waiting for memory is served by index.
type prefetchProducer struct{ *Engine }

func (b prefetchProducer) expect(q query) func(sample.Index) deliver.Availability {
	at := deliver.Position{Rank: -1} // -1: no rank
	if q.at != nil {
		at = *q.at
	}
	return func(index sample.Index) deliver.Availability {
		switch reading, queued := b.prefetcher.Look(at, index); {
		case reading:
			return deliver.Loading
		case queued && q.mayPrefetch():
			return deliver.Queued
		}
		return deliver.Gone
	}
}

// decided lets the prefetcher skip a chunk from which the request waits for no sample.
func (b prefetchProducer) decided(q query, samples iter.Seq2[sample.Index, deliver.Availability]) {
	if !q.isScheduled() {
		return
	}
	if q.mayPrefetch() {
		for _, expected := range samples {
			if expected != deliver.Gone {
				return
			}
		}
	}
	b.prefetcher.Skip(*q.at)
}

func (b prefetchProducer) asked(at *deliver.Position) { b.prefetcher.Asked(*at) }

// lostPatience frees the memory of chunks that ranks have passed, and makes this rank stop waiting (rule 2). A rank continues to wait while its samples arrive one by
// one: it shares the device with other ranks, and reads by index would exceed its share.
func (b prefetchProducer) lostPatience(at *deliver.Position) {
	if b.prefetcher.Advances(at.JobRank()) {
		return
	}
	b.mu.Lock()
	if j := b.jobOf(at); j != nil && j.ranks[at.Rank] != nil {
		j.ranks[at.Rank].gaveUpMemory = true
	}
	b.mu.Unlock()
	b.prefetcher.Starved()
}

func (b prefetchProducer) delivered(at *deliver.Position) {
	b.prefetcher.Delivered(*at)
}

func (b prefetchProducer) pushed(j *job, rank, epoch int) {
	b.prefetcher.Changed(j.jobRank(rank), epoch)
}

// readyByPrefetcher returns how many batches are ready for the slowest rank of a job. e.mu is held.
func (e *Engine) readyByPrefetcher(j *job) int {
	least := -1
	for n, r := range j.ranks {
		if r.asked.IsZero() {
			continue
		}
		if ready := e.prefetcher.Ready(j.jobRank(n)); least < 0 || ready < least {
			least = ready
		}
	}
	return max(least, 0)
}
