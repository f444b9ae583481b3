package engine

import (
	"maps"
	"time"

	"lcache/chunker"
	"lcache/internal/serve/schedule"
	"lcache/sample"
)

// A rank is how far one rank has come. Ranks that never attached count as being at the start. Its requests need not come in the order of its
// batches: several workers of one loader ask at the same time.
type rank struct {
	of            chunker.JobRank
	pid           int
	epoch         int
	asked         time.Time // for the last time
	moved         time.Time // received samples for the last time
	finished      bool      // with epoch: its last batch is delivered
	finishedTo    int       // the epoch after the last one that it has finished; 0: it has finished none
	gaveUpWaiting bool      // for a slot: it does not wait again before it was served from the window
	gaveUpMemory  bool      // to be read ahead to: it does not wait again before a whole chunk was brought ahead
	outOfWindow   bool      // not served from the window until it has caught up
	inWindow      bool      // served from the window when the mover or the prefetcher looked last
	lookedAt      int       // its epoch when the prefetcher was told last
	broughtTo     int       // the last epoch that the window has brought it samples of; -1: none
	diverged      bool      // its last request was not what its position asks for
	seen          int       // the epoch of the last request, also of one that differed from the schedule

	batch int             // the first that is not delivered
	open  map[int]request // from batch on, and some delivered ones before it: a worker may be the first to ask, and not have the first batch
	last  []sample.Index  // the batch before, if it was delivered
	again int             // requests in a row for delivered batches

	delivered, ready int64 // batches, and those of them that lay in memory when they were asked for
}

// request is a batch that was asked for.
type request struct {
	indices   []sample.Index
	delivered bool
}

// spread is how many batches of a rank may be under way at once. A request further ahead means that the first of them were left out.
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
	} else if r.again++; r.again > 1 { // not an answer that was lost: the rank has gone back, and will come to the later batches again
		maps.DeleteFunc(r.open, func(b int, q request) bool { return b > batch && q.delivered })
	}
	r.open[batch] = request{indices: indices}
	if batch >= r.batch+spread {
		r.leave(batch)
	}
}

// leave gives up the batches before one: no worker seems to want them.
func (r *rank) leave(batch int) {
	maps.DeleteFunc(r.open, func(b int, _ request) bool { return b >= r.batch && b < batch })
	r.batch = max(r.batch, batch)
	r.last = nil
	r.advance()
}

// deliver notes that a batch was handed out.
func (r *rank) deliver(batch int) {
	if q, ok := r.open[batch]; ok {
		q.delivered = true
		r.open[batch] = q
		r.advance()
	}
}

// advance moves over what is delivered.
func (r *rank) advance() {
	for r.open[r.batch].delivered {
		r.last = r.open[r.batch].indices
		delete(r.open, r.batch-spread)
		r.batch++
	}
}

// undelivered is the first batch from one on that is not delivered.
func (r *rank) undelivered(batch int) int {
	for r.open[batch].delivered {
		batch++
	}
	return batch
}

// standing is how far the rank has come.
func (r *rank) standing() standing {
	return standing{asked: !r.asked.IsZero(), epoch: r.epoch, batch: r.batch, finished: r.finished}
}

// waits reports whether somebody has asked for the first batch that is not delivered.
func (r *rank) waits() bool {
	_, ok := r.open[r.batch]
	return ok
}

// front is the samples of the first batch that is not delivered, or of the one before it; nil: it is not known.
func (r *rank) front() []sample.Index {
	if r.waits() {
		return r.open[r.batch].indices
	}
	return r.last
}

// at is the epoch that the rank will ask for next.
func (r *rank) at(s *schedule.Schedule) int {
	if r.finished && s.Exists(r.epoch+1) {
		return r.epoch + 1
	}
	return r.epoch
}

// hasFinished reports whether the rank has read an epoch, or a later one, to its end.
func (r *rank) hasFinished(epoch int) bool { return epoch < r.finishedTo }

// position is how many batches of an epoch rank n has behind it.
func (r *rank) position(s *schedule.Schedule, n, epoch int) int {
	switch {
	case r.epoch != epoch || r.asked.IsZero():
		return 0
	case r.finished:
		return s.Batches(epoch, n)
	}
	return r.batch
}

// own makes a process the one that pushes the order of a job's rank, unless another one is reading it, in an order that it pushed or in the recipe's. Processes that share a
// token are one program: one of them that reads and has pushed nothing is a worker of the one that pushes.
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
