package engine

import (
	"maps"
	"time"

	"lcache/chunker"
	"lcache/internal/serve/schedule"
	"lcache/sample"
)

// A rank is the progress of one rank. A rank that never connected counts as being at the start. Requests need not come in the order of batches, because
// several workers of one loader send them at the same time.
type rank struct {
	of            chunker.JobRank
	pid           int
	epoch         int
	asked         time.Time // time of the last request
	moved         time.Time // time of the last delivery of samples
	finished      bool      // the last batch of epoch is delivered
	finishedTo    int       // the epoch after the last one that it has finished; 0: it has finished none
	gaveUpWaiting bool      // it does not wait for a slot until the window has served it again
	gaveUpMemory  bool      // it does not wait for reading ahead until a whole chunk was read ahead for it
	outOfWindow   bool      // not served from the window until it has caught up
	inWindow      bool      // served from the window when the mover or the prefetcher checked last
	lookedAt      int       // its epoch when the prefetcher was notified last
	broughtTo     int       // the last epoch in which the window delivered samples to it; -1: none
	diverged      bool      // its last request differed from the schedule
	seen          int       // the epoch of the last request, even if it differed from the schedule

	batch int             // the first undelivered batch
	open  map[int]request // requests from batch on, and some delivered ones before it: the worker that requests first may not have the first batch
	last  []sample.Index  // the batch before, if it was delivered
	again int             // requests for delivered batches in a row

	delivered, ready int64 // batches; ready ones were in memory when they were requested
}

// request is a requested batch.
type request struct {
	indices   []sample.Index
	delivered bool
}

// spread is the number of batches of a rank that may be in flight at once. A request further ahead means that the rank skipped the first of them.
const spread = 64

// ask notes a request.
func (r *rank) ask(epoch, batch int, indices []sample.Index) {
	if epoch != r.epoch || r.finished || r.open == nil {
		r.batch, r.open, r.last = batch, map[int]request{}, nil
	}
	if batch <= r.batch-spread {
		clear(r.open)
		r.batch = batch
	}
	r.epoch, r.finished = epoch, false
	r.batch = min(r.batch, batch)
	if !r.open[batch].delivered {
		r.again = 0
	} else if r.again++; r.again > 1 { // this is not the retry of a lost answer: the rank has gone back, and will come to the later batches again
		maps.DeleteFunc(r.open, func(b int, q request) bool { return b > batch && q.delivered })
	}
	r.open[batch] = request{indices: indices}
	if batch >= r.batch+spread {
		r.leave(batch)
	}
}

// leave skips the batches before the given one, because no worker seems to want them.
func (r *rank) leave(batch int) {
	maps.DeleteFunc(r.open, func(b int, _ request) bool { return b >= r.batch && b < batch })
	r.batch = max(r.batch, batch)
	r.last = nil
	r.advance()
}

// deliver notes that a batch was delivered.
func (r *rank) deliver(batch int) {
	if q, ok := r.open[batch]; ok {
		q.delivered = true
		r.open[batch] = q
		r.advance()
	}
}

// advance moves batch past the delivered batches.
func (r *rank) advance() {
	for r.open[r.batch].delivered {
		r.last = r.open[r.batch].indices
		delete(r.open, r.batch-spread)
		r.batch++
	}
}

// undelivered returns the first undelivered batch at or after the given one.
func (r *rank) undelivered(batch int) int {
	for r.open[batch].delivered {
		batch++
	}
	return batch
}

// standing returns the progress of the rank.
func (r *rank) standing() standing {
	return standing{asked: !r.asked.IsZero(), epoch: r.epoch, batch: r.batch, finished: r.finished}
}

// waits reports whether there is a request for the first undelivered batch.
func (r *rank) waits() bool {
	_, ok := r.open[r.batch]
	return ok
}

// front returns the samples of the first undelivered batch, or of the one before it; nil: unknown.
func (r *rank) front() []sample.Index {
	if r.waits() {
		return r.open[r.batch].indices
	}
	return r.last
}

// at returns the epoch that the rank will request next.
func (r *rank) at(s *schedule.Schedule) int {
	if r.finished && s.Exists(r.epoch+1) {
		return r.epoch + 1
	}
	return r.epoch
}

// hasFinished reports whether the rank has read an epoch, or a later one, to its end.
func (r *rank) hasFinished(epoch int) bool { return epoch < r.finishedTo }

// position returns how many batches of an epoch rank n has passed.
func (r *rank) position(s *schedule.Schedule, n, epoch int) int {
	switch {
	case r.epoch != epoch || r.asked.IsZero():
		return 0
	case r.finished:
		return s.Batches(epoch, n)
	}
	return r.batch
}

// own makes a process the one that pushes the order of a job's rank. It fails if another process is reading the rank, in its own order or in the
// recipe's. Processes with one token are one program: one that reads and has pushed nothing is a worker of the one that pushes.
func (e *Engine) own(j *job, pid, rank int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	reader, busy := 0, false
	if r := j.ranks[rank]; r != nil {
		busy = e.now().Sub(r.asked) < e.opts.LateEpoch
		if j.token == "" {
			reader = r.pid
		}
	}
	return j.schedule.Claim(pid, rank, reader, func(owner int) bool { return busy && e.deliver.Attached(owner) })
}
