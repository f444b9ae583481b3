package engine

import (
	"iter"
	"sync"

	"lcache/deliver"
	"lcache/fetch"
	"lcache/metaindex"
	"lcache/sample"
)

// newPrefetcher makes what brings samples that the pass does not. In the static layout that is all of them, and the ring has room for them. Else
// chunks that are read ahead lie in side memory, too.
func (e *Engine) newPrefetcher() *fetch.Prefetcher {
	return fetch.NewPrefetcher(e.fetcher, fetch.PrefetcherOptions{Chunk: e.comingChunk, Count: e.readCounts, Side: !e.cache.IsStatic(),
		Leased: int64(e.cache.Sizing.Credit), Ranks: len(e.owner.schedule.Local()), Idle: e.noteFull})
}

// comingChunk is what a rank asks for at a position, and what of it is left to the prefetcher. It says that nothing is where the window serves the rank, and the log keeps
// everything: shareRanks tells the prefetcher when that ends.
func (e *Engine) comingChunk(at deliver.Position) (c fetch.Coming, ok bool) {
	e.mu.Lock()
	j := e.jobs[at.Job]
	if j == nil || !j.schedule.IsKnown(at.Epoch) {
		e.mu.Unlock()
		return c, false
	}
	r := j.ranks[at.Rank]
	p := j.importance.Load()
	inWindow, tooFar, drawn := false, false, p != nil
	c.Near = substitutesLow(p) && p.Draws()
	others := !e.relayout.lent && r != nil && j != e.owner
	if !e.relayout.lent && r != nil && j == e.owner {
		v := e.view()
		inWindow = e.isInWindow(&v, r, at.Epoch)
		tooFar = at.Epoch > j.at(r)+1 || drawn && at.Epoch > j.at(r) // memory would not last: what was read would be given up, and read again
		r.inWindow = r.inWindow || inWindow && at.Epoch == j.at(r)   // the mover tells the prefetcher when that ends
	}
	e.mu.Unlock()
	drawn = drawn && inWindow
	var apart map[sample.Index]bool // what the window does not bring of an order that was drawn
	known := false
	switch {
	case inWindow && e.cache.Sizing.Miss == 0 && !drawn, tooFar: // the window may bring all of an epoch after the next: that is not known yet
		return c, false
	case inWindow:
		c.Left = func(index sample.Index) bool { return apart[index] || !known && !e.keeps(index) }
	}
	list, chunks := e.chunkList(j, at.Rank, at.Epoch)
	if list == nil {
		return c, false
	}
	c.Next = at.JobRank().At(at.Epoch, at.Batch+1)
	if c.Next.Batch >= list.Len() {
		c.Next = at.JobRank().At(at.Epoch+1, 0)
	}
	if at.Batch < list.Len() {
		c.CM = list.CM(chunks, at.Batch)
	}
	if drawn {
		e.mu.Lock()
		apart, known = e.apart(at.Epoch, c.Content)
		e.mu.Unlock()
		if along := p.along.Of(at.Epoch); known && along != nil {
			c.Along = along
		}
	}
	if others {
		e.mu.Lock()
		c.Soon = e.soon(r, c.Content)
		e.mu.Unlock()
	}
	return c, true
}

// apart lists the samples of a chunk that the window does not bring: those that the log of its epoch does not keep, those that were drawn when the epoch began, and the later uses of
// those whose slot is gone by then. Without such a log nothing is known. e.mu is held.
func (e *Engine) apart(epoch int, content []sample.Index) (apart map[sample.Index]bool, known bool) {
	l := e.cur
	if l == nil || l.Epoch != epoch {
		l = e.tgt
	}
	if l == nil || l.Epoch != epoch || l.Line == nil {
		return nil, false
	}
	last := -1
	for _, index := range content {
		if seg, ok := l.Line.Delivers(index); ok {
			last = max(last, seg)
		}
	}
	for _, index := range content {
		seg, ok := l.Line.Delivers(index)
		if ok && !(l.Line.Repeats && seg+2 <= last) || e.holders.Has(index) {
			continue
		}
		if apart == nil {
			apart = map[sample.Index]bool{}
		}
		apart[index] = true
	}
	return apart, true
}

// chunkLists are the CMs of the epochs that ranks are in.
type chunkLists struct {
	mu    sync.Mutex // guards the field that follows
	lists map[chunkListKey]chunkListOf
}

type chunkListKey struct{ rank, epoch int }

type chunkListOf struct {
	list    *metaindex.List
	version int // of the order
}

// chunkList returns the CMs of an epoch of a job's rank, and the chunks themselves; nil where the order is not known. The first call for an epoch walks its order.
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
	for k := range j.lists.lists { // a rank lists the epoch that it is in and the next one
		if k.rank == rank && (k.epoch < epoch-1 || k.epoch > epoch) {
			delete(j.lists.lists, k)
		}
	}
	j.lists.lists[key] = chunkListOf{list, version}
	return list, chunks
}

// bytes returns how many bytes a rank's epoch has, and how many batches; 0 where its CMs are not listed.
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
	at := deliver.Position{Rank: -1} // of no rank
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

// decided lets the prefetcher leave out a chunk of which it brings nothing that the request waits for.
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

// lostPatience gives up what ranks have left behind, and lets this rank wait no longer (rule 2). A rank goes on waiting while its samples come one by one: the device is shared with
// others, and reads by index would not keep to the rank's share.
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

// readyByPrefetcher is how many batches lie ready before the hindmost rank of a job. e.mu is held.
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
