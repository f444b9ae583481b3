package engine

import (
	"errors"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/sample"
)

// Push takes an order from a client of a job: what a rank will ask for in an epoch, in batches of any sizes. Given before the epoch before
// begins, it is laid out; later, it only defines what Chunk returns. A rank may replace its order for an epoch by another one.
// While a process reads a rank in its own order, another one's is refused: the first job owns the log. So is an order for which there is no room:
// clients may push as many epochs ahead as the account has room for. Where there is a recipe the order holds for the session's own positions; those of
// other sessions mean the recipe's.
func (e *Engine) Push(by schedule.Pusher, epoch, rank int, batches [][]sample.Index) error {
	return e.PushOf(0, by, epoch, rank, schedule.Cut(batches))
}

// PushOf is Push for the job with a number.
func (e *Engine) PushOf(number int, by schedule.Pusher, epoch, rank int, order schedule.Batches) error {
	j := e.lookUp(number)
	if j == nil {
		return errJobOver
	}
	if p := j.importance.Load(); p != nil {
		return &deliver.ArgumentError{Reason: "the server draws the order of this job by importance: no other one can be pushed"}
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

// spare tells which orders pushed for a job may be dropped for another one: those of epochs that all ranks have behind them, and of processes that are gone.
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
		return epoch < first-1 || !is // a rank may ask for the end of the epoch before once more
	}
}
