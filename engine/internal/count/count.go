// Package count counts the samples that the engine delivers to a job, in the current epochs and in each finished epoch. It decides when an epoch is over. From the
// counters, and from the reports of training loops about their time, it determines the job's bottleneck.
//
// A [Job] has the counters of one job, an [Epoch] the counters of a current epoch. A [ConsumerWait] measures a server's waits. They have no locks: the caller's
// lock (Engine.mu) guards them, a Job together with its Epochs. An [Ended] is a copy, and needs no lock. A [Digester] hashes orders in the background,
// under its own lock. The package reads no counter itself: the caller passes a job's [Totals].
package count

import (
	"slices"
	"time"

	"lcache/internal/serve/status"
	"lcache/sample"
)

// A Job has the counters of a job.
type Job struct {
	clock           func() time.Time
	divergences     int64
	firstDivergence *status.Divergence
	asked           int64 // requests with a position
	open            map[int]*Epoch
	closed          map[int]*Epoch // the last closed ones: a late rank still belongs to them
	done            []status.Epoch
	last, before    Totals // when the last epoch was closed, and the one before it
	reports         reports
}

const (
	mostOpen   = 8    // open epochs at most: ranks are in two or three, but clients choose the numbers
	keepClosed = 4    // a late rank still counts in this many closed epochs
	keepDone   = 1000 // finished epochs in the status document at most
)

// New creates the counters of a job that begins with these totals, so that earlier work of the server does not count for its first epoch.
func New(clock func() time.Time, begin Totals) *Job {
	return &Job{clock: clock, open: map[int]*Epoch{}, closed: map[int]*Epoch{}, last: begin, before: begin}
}

// Diverge counts a request that differs from the schedule, and keeps the first one for the user. at is the position; want and got are the samples.
func (c *Job) Diverge(at status.Divergence, want, got []sample.Index) {
	c.divergences++
	if c.firstDivergence != nil {
		return
	}
	for at.Position < min(len(got), len(want)) && want[at.Position] == got[at.Position] {
		at.Position++
	}
	c.firstDivergence = &at
}

// Epoch returns the epoch that a rank is in. It opens a closed epoch again for a rank that was not in it. over are epochs that it closed to make room:
// the ones whose last request is the oldest.
func (c *Job) Epoch(epoch, rank int) (ep *Epoch, over []Ended) {
	ep = c.open[epoch]
	if ep == nil {
		if late := c.closed[epoch]; late != nil && !late.has(rank) {
			ep = late
		} else {
			ep = &Epoch{number: epoch, began: c.clock(), received: map[int][]uint64{}, parts: map[int]part{}}
		}
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
		over = append(over, c.end(oldest))
	}
	return ep, over
}

// A Rank is the progress of a rank, as far as the end of an epoch depends on it.
type Rank struct {
	Rank  int
	Asked bool // it has requested a batch
	Epoch int  // the epoch of its last request
	Late  bool // the epoch does not wait for it, and it is served by index
}

// Over removes and returns the epochs that no rank is expected to continue. batches returns how many batches a rank has in an epoch.
func (c *Job) Over(ranks []Rank, batches func(epoch, rank int) int) (over []Ended) {
	for _, ep := range c.open {
		expected := func(r Rank) bool { return c.isExpected(ep, r, batches) }
		if len(ep.received) > 0 && !slices.ContainsFunc(ranks, expected) {
			over = append(over, c.end(ep))
		}
	}
	slices.SortFunc(over, func(a, b Ended) int { return a.Number - b.Number })
	return over
}

// isExpected reports whether a rank is in an epoch and has not finished it, or has not begun it yet. A rank that never requested anything is not
// expected.
func (c *Job) isExpected(ep *Epoch, r Rank, batches func(epoch, rank int) int) bool {
	switch {
	case !r.Asked || r.Epoch > ep.number:
		return false
	case r.Epoch == ep.number:
		return !ep.IsWhole(r.Rank, batches(ep.number, r.Rank))
	}
	return !r.Late && !c.hasGoneBack(ep, r)
}

// hasGoneBack reports whether a rank has left an epoch for an earlier one that it began later. A late request of one of several workers belongs to an
// earlier epoch that began before.
func (c *Job) hasGoneBack(ep *Epoch, r Rank) bool {
	now := c.open[r.Epoch]
	return ep.has(r.Rank) && now != nil && now.began.After(ep.began)
}

// end removes an epoch from the open ones.
func (c *Job) end(ep *Epoch) Ended {
	delete(c.open, ep.number)
	return ep.end(c.clock().Sub(ep.began))
}

// Close adds an epoch to the finished ones in the status document, with the increase of the totals since the last one, and returns its entry. Only the
// owner's entry has figures of the log.
func (c *Job) Close(end Ended, now Totals, isOwner bool) status.Epoch {
	d := status.Epoch{Epoch: end.Number, Seconds: end.seconds, Hits: end.hits, Misses: end.misses}
	now.loop = c.reports.totals()
	last := c.last
	c.last, c.before = now, last
	if isOwner {
		d.LogReadBytes, d.LogReadOps, d.LogWriteBytes = now.LogRead-last.LogRead, now.ReadOps-last.ReadOps, now.LogWrite-last.LogWrite
	}
	d.SourceBytes, d.StallSeconds = now.Source-last.Source, (now.Stall - last.Stall).Seconds()
	c.reports.fillEpoch(&d)
	c.list(end.of, d)
	return d
}

// list adds an entry for a finished epoch, or adds a late rank's counters to an entry that exists.
func (c *Job) list(ep *Epoch, d status.Epoch) {
	if c.closed[ep.number] == ep {
		if was := c.listed(ep.number); was != nil {
			d.LogReadBytes += was.LogReadBytes
			d.LogReadOps += was.LogReadOps
			d.LogWriteBytes += was.LogWriteBytes
			d.SourceBytes += was.SourceBytes
			d.StallSeconds += was.StallSeconds
			*was = d
			return
		}
	}
	c.done = append(c.done, d)
	if len(c.done) > keepDone {
		c.done = c.done[1:]
	}
	c.closed[ep.number] = ep
	delete(c.closed, ep.number-keepClosed)
	for len(c.closed) > 2*keepClosed {
		delete(c.closed, furthest(c.closed, ep.number))
	}
}

// listed returns the last entry of an epoch in the status document; nil: there is none.
func (c *Job) listed(epoch int) *status.Epoch {
	for i := range slices.Backward(c.done) {
		if c.done[i].Epoch == epoch {
			return &c.done[i]
		}
	}
	return nil
}

// furthest returns the epoch with the greatest distance from another one.
func furthest[V any](epochs map[int]V, from int) int {
	furthest := from
	for epoch := range epochs {
		if distance(epoch, from) > distance(furthest, from) {
			furthest = epoch
		}
	}
	return furthest
}

func distance(a, b int) int { return max(a-b, b-a) }

// SetDigests adds the digests of the delivered and the requested order to an epoch's entry, unless a late rank has ended the epoch again.
func (c *Job) SetDigests(end Ended, order, requested *string) {
	if end.of.endings != end.ending {
		return
	}
	if d := c.listed(end.Number); d != nil {
		d.OrderDigest, d.RequestedDigest = order, requested
	}
}
