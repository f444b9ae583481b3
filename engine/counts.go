package engine

import (
	"maps"
	"slices"
	"time"

	"lcache/internal/serve/status"
	"lcache/sample"
)

// counts are what the engine counts of a job; guarded by Engine.mu. The other packages count their own.
type counts struct {
	divergences     int64
	firstDivergence *status.Divergence
	asked           int64 // requests with a position
	open            map[int]*epochCount
	closed          map[int]*epochCount // the last ones over: a rank that comes late still belongs to them
	done            []status.Epoch
	last, before    totals // when the last epoch was closed, and the one before it
	reports         reports
}

// epochCount is an epoch on its way.
type epochCount struct {
	epoch        int
	began        time.Time
	hits, misses int64
	batches      map[int][]uint64 // by rank: a bit for each batch delivered
	parts        map[int]part     // by rank
	diverged     bool
	asked        int64 // the last request of it
	closings     int   // how often it was closed: a late rank opens it again
}

// totals are the counters that an epoch's share is the difference of.
type totals struct {
	at                        time.Time
	logRead, logWrite, source int64
	readOps                   int64
	samples, misses           int64
	stall, idle               time.Duration
	loop                      loopTotals
}

// mostOpen is how many epochs are counted at once: ranks are in two or three. Clients choose their numbers.
const mostOpen = 8

// epoch is the epoch that a rank is in: the open one; or the closed one, opened again for a rank that was not in it yet; or a new one.
// over are the epochs that are closed to make room for it: those whose last request is the oldest.
func (c *counts) epoch(epoch, rank int) (ep *epochCount, over []*epochCount) {
	if c.open == nil {
		c.open, c.closed = map[int]*epochCount{}, map[int]*epochCount{}
	}
	ep = c.open[epoch]
	if ep == nil {
		if late := c.closed[epoch]; late != nil && late.batches[rank] == nil {
			ep = late
			c.open[epoch] = ep
		}
	}
	if ep == nil {
		ep = &epochCount{epoch: epoch, began: time.Now(), batches: map[int][]uint64{}, parts: map[int]part{}}
		c.open[epoch] = ep
	}
	c.asked++
	ep.asked = c.asked
	for len(c.open) > mostOpen {
		oldest := ep
		for _, other := range c.open {
			if other.asked < oldest.asked {
				oldest = other
			}
		}
		delete(c.open, oldest.epoch)
		over = append(over, oldest)
	}
	return ep, over
}

// part is how much of its epoch a rank has got.
type part struct{ first, count int }

// delivered notes that a rank, which has that many batches, got one of them.
func (ep *epochCount) delivered(rank, batch, batches int) {
	bits := ep.batches[rank]
	if bits == nil {
		bits = make([]uint64, 0, (batches+63)/64)
		ep.batches[rank] = bits
	}
	if batch >= batches { // its order is not known, or was dropped meanwhile
		ep.diverged = true
		return
	}
	for len(bits) <= batch/64 {
		bits = append(bits, 0)
	}
	if p, seen := ep.parts[rank]; bits[batch/64]&(1<<(batch%64)) == 0 {
		if !seen || batch < p.first {
			p.first = batch
		}
		p.count++
		ep.parts[rank] = p
	}
	bits[batch/64] |= 1 << (batch % 64)
	ep.batches[rank] = bits
}

// whole reports whether a rank has got all its batches, from the first that it asked for on. Several workers of one rank don't get
// them in order, so the last one alone does not say it.
func (ep *epochCount) whole(rank, batches int) bool {
	p := ep.parts[rank]
	return p.count > 0 && p.count == batches-p.first
}

// keepClosed is for how many epochs a late rank still counts.
const keepClosed = 4

// keepEpochs is how many finished epochs the status document lists.
const keepEpochs = 1000

// overEpochs takes out the epochs that every rank seen in them has finished or left. Engine.mu is held.
func (j *job) overEpochs() (over []*epochCount) {
	for epoch, ep := range j.counts.open {
		finished := func(rank int) bool { return ep.whole(rank, j.schedule.Batches(epoch, rank)) }
		done := len(ep.batches) > 0
		for rank := range ep.batches {
			r := j.ranks[rank]
			done = done && (r == nil || r.seen != epoch || finished(rank))
		}
		// A rank that has not begun the epoch yet is still to come, unless it never asked for anything.
		for rank, r := range j.ranks {
			done = done && (r.asked.IsZero() || r.seen > epoch || r.seen == epoch && finished(rank) || r.seen < epoch && (r.outOfWindow || j.counts.hasGoneBack(ep, rank, r.seen)))
		}
		if done {
			over = append(over, ep)
			delete(j.counts.open, epoch)
		}
	}
	slices.SortFunc(over, func(a, b *epochCount) int { return a.epoch - b.epoch })
	return over
}

// hasGoneBack reports whether a rank has left an epoch for an earlier one, seen, that it has begun since. A late request of several workers belongs to an
// earlier epoch that was begun before. The caller holds e.mu.
func (c *counts) hasGoneBack(ep *epochCount, rank, seen int) bool {
	now := c.open[seen]
	return ep.batches[rank] != nil && now != nil && now.began.After(ep.began)
}

// clone is an epoch as it is now. A rank that comes late may open the epoch again while it is being closed.
func (ep *epochCount) clone() *epochCount {
	twin := *ep
	twin.batches = make(map[int][]uint64, len(ep.batches))
	for rank, bits := range ep.batches {
		twin.batches[rank] = slices.Clone(bits)
	}
	twin.parts = nil
	return &twin
}

// closeEpochs adds a job's finished epochs to the status document. The digester adds their digests.
func (e *Engine) closeEpochs(j *job, over []*epochCount) {
	for _, ep := range over {
		e.mu.Lock()
		was := ep.clone()
		e.mu.Unlock()
		d := status.Epoch{Epoch: was.epoch, Seconds: time.Since(was.began).Seconds(), Hits: was.hits, Misses: was.misses}
		served, requested := e.deliveredOrders(j, was)
		now := e.totals(j)
		e.mu.Lock()
		e.timed(j, &now)
		last := j.counts.last
		j.counts.last, j.counts.before = now, last
		if j == e.owner { // the log's own figures stand with it, as in the job's entry
			d.LogReadBytes, d.LogReadOps, d.LogWriteBytes = now.logRead-last.logRead, now.readOps-last.readOps, now.logWrite-last.logWrite
		}
		d.SourceBytes, d.StallSeconds = now.source-last.source, (now.stall - last.stall).Seconds()
		j.counts.reports.fillEpoch(&d)
		j.counts.addDone(ep, d)
		ep.closings++
		closing := ep.closings
		if j == e.owner && !was.diverged {
			e.reconsider(d)
		}
		e.mu.Unlock()
		j.schedule.EpochOver(ep.epoch)
		if served != nil {
			e.digests.add(e.builders.Go, func() { e.addDigests(j, ep, closing, served, requested) })
		}
	}
}

// deliveredOrders returns the batches that were delivered in an epoch, by rank, and those that were requested where they differ. Both are nil if the order is unknown.
func (e *Engine) deliveredOrders(j *job, ep *epochCount) (served, requested []rankBatches) {
	if ep.diverged {
		return nil, nil
	}
	two := j.importance.Load().requestedIn(ep.epoch)
	for _, r := range slices.Sorted(maps.Keys(ep.batches)) {
		look, err := j.schedule.Chunks(e.ctx, ep.epoch, r)
		if err != nil {
			return nil, nil
		}
		served = append(served, rankBatches{ep.batches[r], look})
		if two != nil {
			requested = append(requested, rankBatches{ep.batches[r], two.Batches(r)})
		}
	}
	return served, requested
}

// addDigests hashes the orders of a listed epoch, unless a late rank has opened it again: closing counts how often it was closed.
func (e *Engine) addDigests(j *job, ep *epochCount, closing int, served, requested []rankBatches) {
	order := digestOf(served)
	asked := order
	if requested != nil {
		asked = digestOf(requested)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if ep.closings != closing {
		return
	}
	for i := len(j.counts.done) - 1; i >= 0; i-- {
		if d := &j.counts.done[i]; d.Epoch == ep.epoch {
			d.OrderDigest, d.RequestedDigest = order, asked
			return
		}
	}
}

// addDone lists an epoch that is over, or what a rank that came late adds to one that is listed.
func (c *counts) addDone(ep *epochCount, d status.Epoch) {
	if c.closed[ep.epoch] == ep {
		for i := len(c.done) - 1; i >= 0; i-- {
			if was := &c.done[i]; was.Epoch == ep.epoch {
				d.LogReadBytes += was.LogReadBytes
				d.LogReadOps += was.LogReadOps
				d.LogWriteBytes += was.LogWriteBytes
				d.SourceBytes += was.SourceBytes
				d.StallSeconds += was.StallSeconds
				*was = d
				return
			}
		}
	}
	c.done = append(c.done, d)
	if len(c.done) > keepEpochs {
		c.done = c.done[1:]
	}
	c.closed[ep.epoch] = ep
	delete(c.closed, ep.epoch-keepClosed)
	for len(c.closed) > 2*keepClosed {
		furthest := ep.epoch
		for other := range c.closed {
			if distance(other, ep.epoch) > distance(furthest, ep.epoch) {
				furthest = other
			}
		}
		delete(c.closed, furthest)
	}
}

// totals are a job's counters now, but for those that timed adds.
func (e *Engine) totals(j *job) totals {
	s, d := e.cache.Store.Stats(), e.deliver.StatsOf(j.number)
	return totals{at: time.Now(), logRead: int64(s.BlockReadBytes), readOps: int64(s.BlockReads), logWrite: int64(s.WriteBytes),
		source: d.Reads[sample.FromSource].Bytes.Load(), samples: d.Samples.Load(), misses: d.Misses(), stall: d.Stall.Total()}
}

// timed adds what e.mu guards. e.mu is held.
func (e *Engine) timed(j *job, t *totals) { t.idle, t.loop = e.idleFor(), j.counts.reports.totals() }
