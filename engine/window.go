package engine

import (
	"context"
	"errors"
	"io"
	"slices"

	"lcache/engine/internal/count"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
	"lcache/sample"
)

// window implements deliver.Window: the ordered list of producers, and the progress of the ranks.
type window struct {
	*Engine
	producers []producer // the first that expects a sample answers for it
	ahead     prefetchProducer
}

// begun is a request in progress (deliver.Plan).
type begun struct {
	*window
	at        *deliver.Position // nil: none that counts
	j         *job              // nil: unknown
	important *important        // of j; nil: none
}

// Begin resolves a request and notes the rank's progress (deliver.Window).
func (w *window) Begin(ctx context.Context, q *deliver.Request) (deliver.Plan, error) {
	b := &begun{window: w}
	if q.At != nil {
		b.j = w.lookUp(q.At.Job)
	}
	if b.j != nil {
		b.important = b.j.importance.Load()
	}
	scheduled := false
	switch {
	case q.ByPosition:
		var err error
		if scheduled, err = b.resolve(ctx, q); err != nil {
			return nil, err
		}
	case q.Takes:
		b.substitute(ctx, q)
	}
	switch {
	case b.j == nil || q.At.Rank < 0 || b.j.onDemand.Load():
	case q.Again:
		q.Placed, b.at = true, q.At
	default:
		b.note(ctx, q, scheduled)
	}
	return b, nil
}

// resolve sets the samples of a request by position. scheduled reports whether they match the job's schedule.
func (b *begun) resolve(ctx context.Context, q *deliver.Request) (scheduled bool, err error) {
	if b.j == nil {
		return false, errJobOver
	}
	if b.important != nil {
		if err := b.important.Await(ctx, q.At.Rank, q.At.Epoch); err != nil {
			return false, err
		}
	}
	two := b.important.requestedIn(q.At.Epoch)
	m, err := b.j.schedule.Meant(ctx, q.Session, *q.At)
	switch {
	case err != nil:
		return false, forClient(err)
	case two != b.important.requestedIn(q.At.Epoch): // the order was retracted meanwhile, or is planned again
		return b.resolve(ctx, q)
	case !m.Exists:
		return false, io.EOF
	}
	q.Indices, q.Requested = m.Indices, two.At(*q.At)
	return m.Scheduled, nil
}

// substitute replaces the samples in a request by their substitutes in the plan of the epoch.
func (b *begun) substitute(ctx context.Context, q *deliver.Request) {
	if b.j == nil || q.At.Rank < 0 {
		return
	}
	requested := b.important.requestedIn(q.At.Epoch).At(*q.At)
	if requested == nil || !slices.Equal(requested, q.Indices) {
		return
	}
	if served, ok, err := b.j.schedule.Chunk(ctx, *q.At); err == nil && ok && len(served) == len(requested) {
		q.Indices, q.Requested = served, requested
	}
}

var errJobOver = &deliver.ArgumentError{Reason: "the job of this connection is over: connect again"}

// forClient turns errors of the schedule into errors that deliver sends to clients.
func forClient(err error) error {
	switch refused := new(schedule.Error); {
	case errors.As(err, &refused):
		return &deliver.ArgumentError{Reason: err.Error()}
	case errors.Is(err, schedule.ErrStopped):
		return deliver.ErrClosing
	}
	return err
}

// note records the position of a rank. A position that the schedule does not have is only counted.
func (b *begun) note(ctx context.Context, q *deliver.Request, scheduled bool) {
	e, j, at := b.Engine, b.j, q.At
	if b.important != nil && !q.ByPosition { // otherwise Await has noted the rank
		b.important.Seen(at.Rank, at.Epoch)
	}
	if !scheduled {
		soon, cancel := context.WithTimeout(ctx, e.deliver.Timeout()/6) // a hint is not worth more of the request's time
		place, want := j.schedule.At(soon, *at)
		cancel()
		if place != schedule.Scheduled || !slices.Equal(want, q.Indices) {
			if e.diverged(j, at, place, want, q.Indices, q.Pid) {
				q.Placed, b.at = true, at
			}
			return
		}
	}
	q.Placed, b.at = true, at
	e.mu.Lock()
	e.requested = true
	r := j.rank(at.Rank)
	if at.Epoch != r.epoch || r.asked.IsZero() {
		r.outOfWindow, r.gaveUpWaiting, r.gaveUpMemory = false, false, false
		j.schedule.AddNeeded(at.Epoch)
	}
	r.outOfWindow = r.outOfWindow && !e.relayout.lent // then no rank holds up another one
	r.diverged = false
	r.ask(at.Epoch, at.Batch, q.Indices)
	r.pid, r.asked, r.seen = q.Pid, e.now(), at.Epoch
	_, over := j.counts.Epoch(at.Epoch, at.Rank)
	e.mu.Unlock()
	e.closeEpochs(j, over)
	b.ahead.asked(at)
	e.nudge()
}

// diverged notes a request that differs from the schedule. That costs only speed: the rank is served by index and does not move the window. diverged
// counts divergences, and keeps the first one for the user. If no order is known, nothing differs. It returns false for a position that the schedule
// does not have.
func (e *Engine) diverged(j *job, at *deliver.Position, place schedule.Finding, want, indices []sample.Index, pid int) bool {
	known := place == schedule.Scheduled || place == schedule.Nowhere && j.schedule.IsKnown(at.Epoch)
	e.mu.Lock()
	if known {
		j.counts.Diverge(status.Divergence{Epoch: at.Epoch, Rank: at.Rank, Batch: at.Batch}, want, indices)
	}
	if place == schedule.Nowhere {
		e.mu.Unlock()
		return false
	}
	if r := j.ranks[at.Rank]; r != nil {
		r.outOfWindow, r.diverged = true, true
		r.pid, r.asked, r.seen = pid, e.now(), at.Epoch
	}
	ep, over := j.counts.Epoch(at.Epoch, at.Rank)
	ep.Diverged = true
	e.mu.Unlock()
	e.closeEpochs(j, over)
	return true
}

// Expect reports which absent samples of a request will arrive without a read (deliver.Plan).
func (b *begun) Expect(indices []sample.Index, have []bool, expect []deliver.Availability) {
	e := b.Engine
	e.mu.Lock()
	defer e.mu.Unlock()
	q := b.query()
	look := b.look(q)
	for i, index := range indices {
		if !have[i] {
			expect[i] = look(index)
		}
	}
	if b.at == nil {
		return
	}
	for _, p := range b.producers {
		p.decided(q, func(yield func(sample.Index, deliver.Availability) bool) {
			for i, index := range indices {
				if !have[i] && !yield(index, expect[i]) {
					return
				}
			}
		})
	}
	look = nil
	for i, index := range indices {
		if have[i] || expect[i] != deliver.Gone {
			continue
		}
		if look == nil { // in most requests all are expected
			look = b.look(q)
		}
		if look(index) == deliver.Loading { // a read has begun since the first look
			expect[i] = deliver.Loading
		}
	}
}

// look asks the producers in order. e.mu is held.
func (w *window) look(q query) func(sample.Index) deliver.Availability {
	looks := make([]func(sample.Index) deliver.Availability, len(w.producers))
	for k, p := range w.producers {
		looks[k] = p.expect(q)
	}
	return func(index sample.Index) deliver.Availability {
		for _, look := range looks {
			if expected := look(index); expected != deliver.Gone {
				return expected
			}
		}
		return deliver.Gone
	}
}

// LostPatience makes room for a scheduled request whose patience is over (deliver.Plan, rule 2). It calls the producer that the request waits for.
func (b *begun) LostPatience(indices []sample.Index, have []bool) {
	if b.at == nil {
		return
	}
	b.mu.Lock()
	q := b.query()
	var waits producer
	for _, p := range b.producers {
		expect := p.expect(q)
		if slices.ContainsFunc(lacking(indices, have), func(index sample.Index) bool { return expect(index) == deliver.Queued }) {
			waits = p
			break
		}
	}
	b.mu.Unlock()
	if waits != nil {
		waits.lostPatience(b.at)
	}
	b.nudge()
}

// lacking returns the samples that are not in memory.
func lacking(indices []sample.Index, have []bool) (lack []sample.Index) {
	for i, index := range indices {
		if !have[i] {
			lack = append(lack, index)
		}
	}
	return lack
}

// query is a request in the form that producers use.
type query struct {
	at   *deliver.Position // nil: none
	job  *job              // nil: unknown
	rank *rank             // nil: unknown
}

// query returns the request for the producers. The job may be over by now. e.mu is held.
func (b *begun) query() query {
	if b.at == nil || b.j == nil || b.jobs[b.j.number] != b.j {
		return query{at: b.at}
	}
	return query{b.at, b.j, b.j.ranks[b.at.Rank]}
}

// isScheduled reports whether the request matches the schedule at its position. Producers load nothing for other requests.
func (q query) isScheduled() bool { return q.rank != nil && !q.rank.diverged }

// mayWait reports whether a request may wait for a slot. e.mu is held.
func (q query) mayWait() bool { return q.rank != nil && !q.rank.outOfWindow && !q.rank.gaveUpWaiting }

// mayPrefetch reports whether a request may wait until its samples are read ahead. e.mu is held.
func (q query) mayPrefetch() bool { return q.isScheduled() && !q.rank.gaveUpMemory }

// Done notes a delivery (deliver.Plan).
func (b *begun) Done(d deliver.Delivery) {
	e, at := b.Engine, b.at
	e.mu.Lock()
	// If under half of about the last 1,000 samples were in the window, loading ahead does not help.
	weight := min(1, float64(d.Samples)/1000)
	if d.Samples > 0 && (at == nil || b.j == e.owner) {
		e.windowHitRate += weight * (float64(d.Ahead)/float64(d.Samples) - e.windowHitRate)
	}
	e.paused = e.windowHitRate < 0.5
	var over []count.Ended
	if at != nil && b.j != nil {
		over = e.deliveredAt(b.j, at, d)
	}
	e.mu.Unlock()
	if at != nil && b.important != nil {
		b.important.served(at, d)
	}
	if at != nil && !d.Part {
		b.ahead.delivered(at)
	}
	e.closeEpochs(b.j, over)
	e.nudge()
}

// deliveredAt moves a rank past a delivery, and returns the epochs that ended with it. e.mu is held.
func (e *Engine) deliveredAt(j *job, at *deliver.Position, d deliver.Delivery) []count.Ended {
	r := j.ranks[at.Rank]
	if r == nil {
		return nil
	}
	r.moved = e.now()
	if j == e.owner {
		e.grace.received(r.moved, e.opts.LateEpoch)
	}
	if d.Ahead == d.Samples && !d.Part {
		r.gaveUpMemory = false
		if (r.gaveUpWaiting || r.outOfWindow) && e.hasCaughtUp(j, r) {
			r.gaveUpWaiting, r.outOfWindow = false, false
		}
	}
	if !d.Part {
		r.delivered++
	}
	if d.Ready {
		r.ready++
	}
	ep, over := j.counts.Epoch(at.Epoch, at.Rank)
	ep.Hits += int64(d.Samples - d.Misses())
	ep.Misses += int64(d.Misses())
	ep.Diverged = ep.Diverged || d.Skipped > 0 // the delivery differs from the schedule, so the epoch has no digest
	batches := j.schedule.Batches(at.Epoch, at.Rank)
	ep.Deliver(at.Rank, at.Batch, batches)
	if r.epoch == at.Epoch {
		r.deliver(at.Batch)
	}
	if r.epoch == at.Epoch && ep.IsWhole(at.Rank, batches) {
		r.finished, r.finishedTo = true, r.epoch+1
	}
	return append(over, j.overEpochs()...)
}
