package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"lcache/engine/internal/count"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/sample"
)

// A Report has a training process's measurements of its own time.
type Report = count.Report

// Report adds a training process's report.
func (e *Engine) Report(r Report) error {
	j := e.lookUp(r.Job)
	if j == nil {
		return errJobOver
	}
	if r.Epoch >= 0 && !j.schedule.IsLocal(r.Rank) {
		return &deliver.ArgumentError{Reason: "the report is from a rank that another server serves"}
	}
	if r.Epoch >= 0 && r.Had > 0 {
		e.closeEpochs(j, e.countReported(j, r))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	j.counts.Report(r)
	return nil
}

// reportPatience is how long a report waits for an order that is not computed yet. The server reads nothing else from the connection meanwhile.
const reportPatience = time.Second

// countReported counts the reported batches, which were delivered without a position. It moves the rank past them and returns the epochs that ended. It ignores the
// report if the epoch's order is not known.
func (e *Engine) countReported(j *job, r Report) []count.Ended {
	if !j.schedule.IsKnown(r.Epoch) {
		return nil
	}
	batches := j.schedule.Batches(r.Epoch, r.Rank)
	end := min(r.First+r.Had, batches)
	if r.First >= end {
		return nil
	}
	soon, cancel := context.WithTimeout(e.ctx, reportPatience)
	defer cancel()
	place, last := j.schedule.At(soon, position(r.Epoch, r.Rank, end-1))
	if place != schedule.Scheduled {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	at := j.rank(r.Rank)
	ep, over := j.counts.Epoch(r.Epoch, r.Rank)
	for b := r.First; b < end; b++ {
		ep.Deliver(r.Rank, b, batches)
	}
	if at.open == nil || at.epoch != r.Epoch || at.finished {
		at.ask(r.Epoch, end-1, last)
		at.deliver(end - 1)
		at.asked, at.seen = e.now(), r.Epoch
	}
	at.finished = at.finished || at.epoch == r.Epoch && ep.IsWhole(r.Rank, batches)
	return append(over, j.overEpochs()...)
}

// overEpochs removes the epochs that are over, and returns them. Engine.mu is held.
func (j *job) overEpochs() []count.Ended {
	var few [16]count.Rank // called for each delivered batch: most jobs need no allocation
	ranks := few[:0]
	for n, r := range j.ranks {
		ranks = append(ranks, count.Rank{Rank: n, Asked: !r.asked.IsZero(), Epoch: r.seen, Late: r.outOfWindow})
	}
	return j.counts.Over(ranks, j.schedule.Batches)
}

// closeEpochs adds a job's finished epochs to the status document. The digester adds their digests later.
func (e *Engine) closeEpochs(j *job, over []count.Ended) {
	for _, end := range over {
		served, requested := e.deliveredOrders(j, end)
		e.mu.Lock()
		d := j.counts.Close(end, e.totals(j.number), j == e.owner)
		if j == e.owner && !end.Diverged {
			e.reconsider(d)
		}
		e.mu.Unlock()
		j.schedule.EpochOver(end.Number)
		if served != nil {
			e.digests.Add(e.builders.Go, func() { e.addDigests(j, end, served, requested) })
		}
	}
}

// deliveredOrders returns the batches that were delivered in an epoch, by rank, and the requested batches if they differ. Both are nil if the order is
// unknown.
func (e *Engine) deliveredOrders(j *job, end count.Ended) (served, requested []count.Batches) {
	if end.Diverged {
		return nil, nil
	}
	two := j.importance.Load().requestedIn(end.Number)
	for _, r := range slices.Sorted(maps.Keys(end.Received)) {
		look, err := j.schedule.Chunks(e.ctx, end.Number, r)
		if err != nil {
			return nil, nil
		}
		served = append(served, count.Batches{Received: end.Received[r], Look: look})
		if two != nil {
			requested = append(requested, count.Batches{Received: end.Received[r], Look: two.Batches(r)})
		}
	}
	return served, requested
}

// addDigests hashes the orders of an epoch, and adds the digests to its entry.
func (e *Engine) addDigests(j *job, end count.Ended, served, requested []count.Batches) {
	order := count.Digest(served)
	asked := order
	if requested != nil {
		asked = count.Digest(requested)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	j.counts.SetDigests(end, order, asked)
}

// totals returns the counters of job number. e.mu is held.
func (e *Engine) totals(number int) count.Totals {
	s, d := e.cache.Store.Stats(), e.deliver.StatsOf(number)
	return count.Totals{At: e.now(), LogRead: int64(s.BlockReadBytes), ReadOps: int64(s.BlockReads), LogWrite: int64(s.WriteBytes), Source: d.Reads[sample.FromSource].Bytes.Load(),
		Samples: d.Samples.Load(), Misses: d.Misses(), Peer: d.From[sample.FromPeer].Load(), Stall: d.Stall.Total(), Idle: e.idleFor()}
}
