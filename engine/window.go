package engine

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"lcache/deliver"
	"lcache/internal/serve/status"
	"lcache/sample"
	"lcache/schedule"
)

// window is the engine as deliver sees it: the ordered list of bringers, and the progress of the ranks.
type window struct {
	*Engine
	bringers []bringer // the first that expects a sample answers for it
}

// Chunk returns the samples that a session asks for by a position (deliver.Window).
func (w *window) Chunk(ctx context.Context, session string, at deliver.Position) (deliver.Wanted, error) {
	j := w.lookUp(&at)
	if j == nil {
		return deliver.Wanted{}, errJobOver
	}
	p := j.importance.Load()
	if p != nil {
		if err := p.await(ctx, at.Rank, at.Epoch); err != nil {
			return deliver.Wanted{}, err
		}
	}
	indices, ok, err := j.schedule.Meant(ctx, session, at)
	if err != nil {
		return deliver.Wanted{}, forClient(err)
	}
	if !ok {
		return deliver.Wanted{}, io.EOF
	}
	return deliver.Wanted{Indices: indices, Requested: p.requested(at)}, nil
}

// Served returns what is delivered to a client that names samples and a position (deliver.Window).
func (w *window) Served(ctx context.Context, at *deliver.Position, indices []sample.Index) deliver.Wanted {
	exact := deliver.Wanted{Indices: indices}
	if at == nil || at.Rank < 0 {
		return exact
	}
	j := w.lookUp(at)
	if j == nil {
		return exact
	}
	requested := j.importance.Load().requested(*at)
	if requested == nil || !slices.Equal(requested, indices) {
		return exact
	}
	served, ok, err := j.schedule.Chunk(ctx, *at)
	if err != nil || !ok || len(served) != len(requested) {
		return exact
	}
	return deliver.Wanted{Indices: served, Requested: requested}
}

var errJobOver = &deliver.ArgumentError{Reason: "the job that asks is over: connect again"}

// forClient turns what the schedule refuses into what deliver answers clients with.
func forClient(err error) error {
	switch refused := new(schedule.Error); {
	case errors.As(err, &refused):
		return &deliver.ArgumentError{Reason: err.Error()}
	case errors.Is(err, schedule.ErrStopped):
		return deliver.ErrClosing
	}
	return err
}

// Asked notes where a rank is (deliver.Window). A position that the schedule does not have is counted, and nothing else follows from it.
func (w *window) Asked(ctx context.Context, at *deliver.Position, indices []sample.Index, pid int) *deliver.Position {
	e := w.Engine
	if at == nil {
		return nil
	}
	j := e.lookUp(at)
	if j == nil || at.Rank < 0 || j.onDemand {
		return nil
	}
	if p := j.importance.Load(); p != nil {
		p.heardIn(at.Rank, at.Epoch)
	}
	soon, cancel := context.WithTimeout(ctx, e.deliver.Timeout()/6) // a hint is not worth more of the request's time
	place, want := j.schedule.At(soon, *at)
	cancel()
	if place != schedule.Scheduled || !slices.Equal(want, indices) {
		return e.diverged(j, at, place, want, indices, pid)
	}
	e.mu.Lock()
	e.requested = true
	r := j.rank(at.Rank)
	if at.Epoch != r.epoch || r.asked.IsZero() {
		r.outOfWindow, r.gaveUpWaiting, r.gaveUpMemory = false, false, false
		j.schedule.AddNeeded(at.Epoch)
	}
	r.outOfWindow = r.outOfWindow && !e.relayout.lent // there no rank holds up another one
	r.diverged = false
	r.ask(at.Epoch, at.Batch, indices)
	r.pid, r.asked, r.seen = pid, time.Now(), at.Epoch
	_, over := j.counts.epoch(at.Epoch, at.Rank)
	e.mu.Unlock()
	e.closeEpochs(j, over)
	for _, b := range w.bringers {
		b.asked(at)
	}
	e.nudge()
	return at
}

// diverged notes a request that differs from the schedule. That costs speed only: the rank is served by index and does not move the window.
// Divergences are counted, and the first one is kept for the user. Where no order is known nothing differs. A position that the schedule does not
// have is not believed: nil is returned.
func (e *Engine) diverged(j *job, at *deliver.Position, place schedule.Finding, want, indices []sample.Index, pid int) *deliver.Position {
	known := place == schedule.Scheduled || place == schedule.Nowhere && j.schedule.IsKnown(at.Epoch)
	e.mu.Lock()
	if known {
		j.counts.divergences++
	}
	if known && j.counts.firstDivergence == nil {
		d := &status.Divergence{Epoch: at.Epoch, Rank: at.Rank, Batch: at.Batch}
		for d.Position < min(len(indices), len(want)) && want[d.Position] == indices[d.Position] {
			d.Position++
		}
		j.counts.firstDivergence = d
	}
	if place == schedule.Nowhere {
		e.mu.Unlock()
		return nil
	}
	if r := j.ranks[at.Rank]; r != nil {
		r.outOfWindow, r.diverged = true, true
		r.pid, r.asked, r.seen = pid, time.Now(), at.Epoch
	}
	ep, over := j.counts.epoch(at.Epoch, at.Rank)
	ep.diverged = true
	e.mu.Unlock()
	e.closeEpochs(j, over)
	return at
}

// Expect fills expect[i] for the samples that are not there yet (deliver.Window). It changes nothing.
func (w *window) Expect(at *deliver.Position, indices []sample.Index, have []bool, expect []deliver.Availability) {
	w.mu.Lock()
	defer w.mu.Unlock()
	look := w.look(w.query(at))
	for i, index := range indices {
		if !have[i] {
			expect[i] = look(index)
		}
	}
}

// look asks the bringers in their order. e.mu is held.
func (w *window) look(q query) func(sample.Index) deliver.Availability {
	looks := make([]func(sample.Index) deliver.Availability, len(w.bringers))
	for k, b := range w.bringers {
		looks[k] = b.expect(q)
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

// Decided is told what a request does about samples that are not there: it waits for the expected ones, and reads the others by index
// (deliver.Window). A bringer reads none of those others from here on; a read that has begun since Expect is waited for.
func (w *window) Decided(at *deliver.Position, indices []sample.Index, have []bool, expect []deliver.Availability) {
	if at == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.query(at)
	for _, b := range w.bringers {
		b.decided(q, func(yield func(sample.Index, deliver.Availability) bool) {
			for i, index := range indices {
				if !have[i] && !yield(index, expect[i]) {
					return
				}
			}
		})
	}
	var look func(sample.Index) deliver.Availability
	for i, index := range indices {
		if have[i] || expect[i] != deliver.Gone {
			continue
		}
		if look == nil { // most often all are expected
			look = w.look(q)
		}
		if look(index) == deliver.Loading {
			expect[i] = deliver.Loading
		}
	}
}

// LostPatience makes room for a scheduled request whose patience is over (deliver.Window, rule 2). It tells the bringer that the request waits for.
func (w *window) LostPatience(at *deliver.Position, indices []sample.Index, have []bool) {
	w.mu.Lock()
	q := w.query(at)
	var waits []bringer
	for _, b := range w.bringers {
		expect := b.expect(q)
		if slices.ContainsFunc(lacking(indices, have), func(index sample.Index) bool { return expect(index) == deliver.Queued }) {
			waits = append(waits, b)
			break
		}
	}
	w.mu.Unlock()
	for _, b := range waits {
		b.lostPatience(at)
	}
	w.nudge()
}

// lacking returns the samples that are not there.
func lacking(indices []sample.Index, have []bool) (lack []sample.Index) {
	for i, index := range indices {
		if !have[i] {
			lack = append(lack, index)
		}
	}
	return lack
}

// query is a request as bringers see it.
type query struct {
	at   *deliver.Position // nil: none
	job  *job              // nil: unknown
	rank *rank             // nil: unknown
}

// query looks up the job and the rank of a request. e.mu is held.
func (e *Engine) query(at *deliver.Position) query {
	if at == nil {
		return query{}
	}
	j := e.jobOf(at)
	if j == nil {
		return query{at: at}
	}
	return query{at, j, j.ranks[at.Rank]}
}

// isScheduled reports whether the request is what the schedule has at its position. Nothing is on its way to another one.
func (q query) isScheduled() bool { return q.rank != nil && !q.rank.diverged }

// mayWait reports whether a request waits for a slot. e.mu is held.
func (q query) mayWait() bool { return q.rank != nil && !q.rank.outOfWindow && !q.rank.gaveUpWaiting }

// mayPrefetch reports whether a request waits until it is read ahead. e.mu is held.
func (q query) mayPrefetch() bool { return q.isScheduled() && !q.rank.gaveUpMemory }

// Delivered notes a delivery (deliver.Window).
func (w *window) Delivered(at *deliver.Position, d deliver.Delivery) {
	e := w.Engine
	e.mu.Lock()
	// The share of about the last 1,000 samples that were there: under half of them, loading ahead is of no use.
	weight := min(1, float64(d.Samples)/1000)
	if d.Samples > 0 && (at == nil || e.jobOf(at) == e.owner) {
		e.windowHitRate += weight * (float64(d.Ahead)/float64(d.Samples) - e.windowHitRate)
	}
	e.paused = e.windowHitRate < 0.5
	var j *job
	var over []*epochCount
	if at != nil {
		j = e.jobOf(at)
	}
	var important *important
	if j != nil {
		over = e.deliveredAt(j, at, d)
		important = j.importance.Load()
	}
	e.mu.Unlock()
	if important != nil {
		important.served(at, d)
	}
	if at != nil && !d.Part {
		for _, b := range w.bringers {
			b.delivered(at)
		}
	}
	e.closeEpochs(j, over)
	e.nudge()
}

// deliveredAt moves a rank on, and returns the epochs that are over with it. e.mu is held.
func (e *Engine) deliveredAt(j *job, at *deliver.Position, d deliver.Delivery) []*epochCount {
	r := j.ranks[at.Rank]
	if r == nil {
		return nil
	}
	if d.Ahead == d.Samples && !d.Part {
		r.gaveUpMemory = false
		if (r.gaveUpWaiting || r.outOfWindow) && e.hasCaughtUp(r) {
			r.gaveUpWaiting, r.outOfWindow = false, false
		}
	}
	if !d.Part {
		r.delivered++
	}
	if d.Ready {
		r.ready++
	}
	ep, over := j.counts.epoch(at.Epoch, at.Rank)
	ep.hits += int64(d.Samples - d.Misses)
	ep.misses += int64(d.Misses)
	ep.diverged = ep.diverged || d.Skipped > 0 // what was delivered is not the schedule's: it has no digest
	batches := j.schedule.Batches(at.Epoch, at.Rank)
	ep.delivered(at.Rank, at.Batch, batches)
	if r.epoch == at.Epoch {
		r.deliver(at.Batch)
	}
	if r.epoch == at.Epoch && ep.whole(at.Rank, batches) {
		r.finished, r.finishedEpoch = true, r.epoch+1
	}
	return append(over, j.overEpochs()...)
}
