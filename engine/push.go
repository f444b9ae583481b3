package engine

import (
	"errors"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/sample"
)

// Push accepts an order from a client of a job: the samples that a rank will request in an epoch, in batches of any sizes. If it comes before the
// previous epoch begins, the epoch is laid out. If it comes later, it only defines what Chunk returns. A rank may replace its order for an epoch.
//
// Push returns an error if another process reads the rank in its own order, because that process owns the rank. It also returns an error if the account
// has no room: clients may push as many epochs ahead as fit. If there is a recipe, the order holds for the positions of the pushing session; the positions
// of other sessions refer to the recipe's order.
func (e *Engine) Push(by schedule.Pusher, epoch, rank int, batches [][]sample.Index) error {
	return e.PushOf(0, by, epoch, rank, schedule.Cut(batches))
}

// PushOf is Push for job number.
func (e *Engine) PushOf(number int, by schedule.Pusher, epoch, rank int, order schedule.Batches) error {
	j := e.lookUp(number)
	if j == nil {
		return errJobOver
	}
	if p := j.importance.Load(); p != nil {
		return &deliver.ArgumentError{Reason: "the server draws the orders of this job by importance and accepts no pushed order"}
	}
	if err := j.schedule.Accepts(epoch, rank); err != nil {
		return forClient(err)
	}
	if err := e.own(j, by.Pid, rank); err != nil {
		return forClient(err)
	}
	changed, replaced, err := j.schedule.Push(e.ctx, by, epoch, rank, order, e.spare(j))
	if full := new(schedule.Error); errors.As(err, &full) && full.IsFull && e.dropSpare(j) {
		changed, replaced, err = j.schedule.Push(e.ctx, by, epoch, rank, order, e.spare(j))
	}
	if err != nil {
		return forClient(err)
	}
	if changed {
		e.reordered(j, epoch, replaced)
	}
	e.window.ahead.pushed(j, rank, epoch)
	e.nudge()
	return nil
}

// spare returns a predicate for the pushed orders of a job that may be dropped for another one: orders of epochs that all ranks have passed, and of
// processes that have exited.
func (e *Engine) spare(j *job) func(epoch, pid int) bool {
	e.mu.Lock()
	first := j.latestEpoch()
	if j == e.owner {
		first = e.readEpoch
	}
	for _, r := range j.ranks {
		if !r.asked.IsZero() && e.now().Sub(r.asked) < e.opts.LateEpoch {
			first = min(first, j.at(r))
		}
	}
	e.mu.Unlock()
	attached := map[int]bool{}
	return func(epoch, pid int) bool {
		is, known := attached[pid]
		if !known {
			is = e.deliver.Attached(pid)
			attached[pid] = is
		}
		return epoch < first-1 || !is // a rank may request the end of the epoch before once more
	}
}
