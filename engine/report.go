package engine

import (
	"context"
	"time"

	"lcache/deliver"
	"lcache/internal/serve/status"
	"lcache/schedule"
	"lcache/verdict"
)

// A Report is what a training process tells of its own time, which the server can't see. Durations are in seconds, all since that
// process's last report.
type Report struct {
	Epoch, Rank int     // whose loop this is; negative: a worker's, which knows decoding alone
	LoopWait    float64 // the loop was blocked in next: what the GPU feels
	Loop        float64 // the loop ran, waiting included
	Decode      float64 // samples were made of bytes, in this process
	Workers     int     // processes that decode for this loop; 0: the loop itself does
	Pid         int     // of that process
	Job         int     // its number
	First, Had  int     // batches First to First+Had-1 of the epoch were asked for by index, before the loop told their positions
}

// mostReported bounds what is kept of ranks and epochs, whose numbers clients choose.
const mostReported = schedule.MostRanks

// reports are the sums of what was reported; guarded by Engine.mu. The ranks' loops run at the same time, so over the
// ranks the longest counts; decoding is work, and adds up.
type reports struct {
	ranks  map[int]*rankReport
	epochs map[int]map[int]loopTotals // by epoch that is open or was closed lately, by rank
	decode float64
	some   bool // decoding was reported
}

type rankReport struct {
	pid        int // whose loop it is
	wait, loop float64
	workers    int
}

// loopTotals are the reported times of all ranks together; zero where nothing was reported.
type loopTotals struct {
	wait, loop, decode float64
	workers            int
}

// Report adds what a training process tells.
func (e *Engine) Report(r Report) error {
	j := e.lookUp(r.Job)
	if j == nil {
		return errJobOver
	}
	if r.Epoch >= 0 && !j.schedule.IsLocal(r.Rank) {
		return &deliver.ArgumentError{Reason: "a report of a rank that is not served here"}
	}
	if r.Epoch >= 0 && r.Had > 0 {
		e.closeEpochs(j, e.had(j, r))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := &j.counts
	if r.Decode > 0 {
		c.reports.decode += r.Decode
		c.reports.some = true
	}
	if r.Epoch < 0 {
		return nil
	}
	c.reports.add(r)
	// The loop goes on with what lay ready for it after the server has delivered the last batch.
	for i := len(c.done) - 1; i >= 0; i-- {
		if c.done[i].Epoch == r.Epoch {
			c.reports.fillEpoch(&c.done[i])
			break
		}
	}
	return nil
}

// hadPatience is how long a report waits for an order that is not made yet: nothing else is read from its connection meanwhile.
const hadPatience = time.Second

// had counts batches that were delivered without their places, and returns the epochs that are over with them. The rank goes on behind them.
// An order that is not known has no such batches.
func (e *Engine) had(j *job, r Report) []*epochCount {
	if !j.schedule.IsKnown(r.Epoch) {
		return nil
	}
	batches := j.schedule.Batches(r.Epoch, r.Rank)
	end := min(r.First+r.Had, batches)
	if r.First >= end {
		return nil
	}
	soon, cancel := context.WithTimeout(e.ctx, hadPatience)
	defer cancel()
	place, last := j.schedule.At(soon, position(r.Epoch, r.Rank, end-1))
	if place != schedule.Scheduled {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	at := j.rank(r.Rank)
	ep, over := j.counts.epoch(r.Epoch, r.Rank)
	for b := r.First; b < end; b++ {
		ep.delivered(r.Rank, b, batches)
	}
	if at.open == nil || at.epoch != r.Epoch || at.finished {
		at.ask(r.Epoch, end-1, last)
		at.deliver(end - 1)
		at.asked, at.seen = time.Now(), r.Epoch
	}
	at.finished = at.finished || at.epoch == r.Epoch && ep.whole(r.Rank, batches)
	return append(over, j.overEpochs()...)
}

func (s *reports) add(r Report) {
	if s.ranks == nil {
		s.ranks, s.epochs = map[int]*rankReport{}, map[int]map[int]loopTotals{}
	}
	rank := s.ranks[r.Rank]
	if rank == nil {
		if len(s.ranks) >= mostReported {
			return
		}
		rank = &rankReport{}
		s.ranks[r.Rank] = rank
	}
	rank.wait += r.LoopWait
	rank.loop += r.Loop
	rank.workers = r.Workers
	rank.pid = r.Pid
	epoch := s.epochs[r.Epoch]
	if epoch == nil {
		s.forget(r.Epoch)
		epoch = map[int]loopTotals{}
		s.epochs[r.Epoch] = epoch
	}
	epoch[r.Rank] = loopTotals{wait: epoch[r.Rank].wait + r.LoopWait, loop: epoch[r.Rank].loop + r.Loop}
}

// forget makes room for an epoch's figures: a loop is at most a few epochs behind another one.
func (s *reports) forget(epoch int) {
	for len(s.epochs) >= 2*keepClosed {
		furthest := epoch
		for other := range s.epochs {
			if distance(other, epoch) > distance(furthest, epoch) {
				furthest = other
			}
		}
		delete(s.epochs, furthest)
	}
}

func distance(a, b int) int { return max(a-b, b-a) }

// fillEpoch puts what was reported for an epoch into its line of the status document.
func (s *reports) fillEpoch(d *status.Epoch) {
	ranks := s.epochs[d.Epoch]
	if ranks == nil {
		return
	}
	var most loopTotals
	for _, t := range ranks {
		most.wait, most.loop = max(most.wait, t.wait), max(most.loop, t.loop)
	}
	d.LoopWaitSeconds, d.LoopSeconds = &most.wait, &most.loop
}

func (s *reports) totals() (t loopTotals) {
	for _, r := range s.ranks {
		t.wait, t.loop = max(t.wait, r.wait), max(t.loop, r.loop)
		t.workers += r.workers
	}
	t.decode = s.decode
	return t
}

// fill puts what was reported into the status document.
func (s *reports) fill(j *status.Job) {
	t := s.totals()
	if len(s.ranks) > 0 {
		j.LoopWaitSeconds, j.LoopSeconds, j.LoopWorkers = &t.wait, &t.loop, t.workers
	}
	if s.some {
		j.DecodeSeconds = &t.decode
	}
	for i := range j.Ranks {
		if r := s.ranks[j.Ranks[i].Rank]; r != nil {
			wait := r.wait
			j.Ranks[i].LoopWaitSeconds = &wait
		}
	}
}

// period is what the counters rose by in the time that boundBy judges.
type period struct {
	seconds         float64
	samples, misses int64
	stall, idle     float64 // seconds: a rank was short of its batch; all that may be loaded lay ready
	loop            loopTotals
}

// since is the time from then to now.
func (t totals) since(then totals) period {
	return period{seconds: t.at.Sub(then.at).Seconds(), samples: t.samples - then.samples, misses: t.misses - then.misses,
		stall: (t.stall - then.stall).Seconds(), idle: (t.idle - then.idle).Seconds(),
		loop: loopTotals{wait: t.loop.wait - then.loop.wait, loop: t.loop.loop - then.loop.loop, decode: t.loop.decode - then.loop.decode}}
}

// boundBy names what the job waits for, in a word of the status document.
func boundBy(p period) string { return verdict.Judge(p.facts()).BoundBy() }

// facts are what the engine knows of a period. It does not know what the disk can give, so the disk is suspected where nothing else explains
// that the job waits.
func (p period) facts() verdict.Facts {
	return verdict.Facts{Delivered: p.samples, Seconds: p.seconds, Samples: p.samples, Misses: p.misses, Stall: p.stall, Idle: p.idle,
		LoopSeconds: p.loop.loop, LoopWait: p.loop.wait}
}

// idleFor is how long nothing more could be read before a client had consumed. e.mu is held.
func (e *Engine) idleFor() time.Duration {
	wait := e.consumerWait
	if !e.idle.IsZero() {
		wait += time.Since(e.idle)
	}
	if !e.full.IsZero() && !e.anyInWindow() {
		wait += time.Since(e.full)
	}
	return wait
}

// anyInWindow reports whether the window serves a rank. e.mu is held.
func (e *Engine) anyInWindow() bool {
	for _, r := range e.owner.ranks {
		if r.inWindow && !r.asked.IsZero() {
			return true
		}
	}
	return false
}
