package engine

import (
	"slices"
	"sync"
	"time"

	"lcache/chunker"
	"lcache/reorder"
)

// contender is the input of chooseOwner for one job.
type contender struct {
	number  int
	samples int  // number of samples that it reads in an epoch; 0: no order is known
	active  bool // it reads samples now
	between bool // none of its ranks is in the middle of an epoch
	sleeps  bool // it has requested nothing lately, perhaps while another loop of its program reads
	fits    bool // a Logfile that was found at the start, and not changed since, is in its order
}

// chooseOwner returns the number of the job that should own the log's order. Of the active jobs with a known order, it is the one that reads most samples
// in an epoch. Of equal ones it is the first in the list, which is in order of arrival.
//
// An active owner is replaced only between two of its epochs, because the log that was laid out for it would be lost. An owner that sleeps in the middle
// of an epoch, as after reading a single batch, is an exception: a job that reads more replaces it. If a server starts under running jobs and finds
// Logfiles that one of them owned, that job owns them again, whichever job connects first.
func chooseOwner(jobs []contender, owner int) int {
	if fitting := slices.DeleteFunc(slices.Clone(jobs), func(j contender) bool { return !j.active || !j.fits }); len(fitting) > 0 {
		jobs = fitting
	}
	best := contender{number: owner}
	for _, j := range jobs {
		if j.number != owner || !j.active || j.samples == 0 {
			continue
		}
		if !j.between && !j.sleeps {
			return owner
		}
		best = j
	}
	for _, j := range jobs {
		if j.active && j.samples > best.samples {
			best = j
		}
	}
	return best.number
}

// ownerView is the input of decideOwner, at one moment. Every case is a paragraph of testdata/owner.txt.
type ownerView struct {
	now   time.Time
	late  time.Duration // a rank without a request for this long is silent
	fresh bool          // the server has just started, and has begun no Logfile
	owner int
	jobs  []jobView                  // in the order of their arrival
	holds func(chunker.JobRank) bool // reports whether clients hold batches of a rank. It is called for silent ranks only, because it may take long
}

// jobView describes a job for the choice of the owner.
type jobView struct {
	number    int
	connected bool // it has a connection, or is the job of the server's own recipe
	over      bool // it has had no connection for a while
	onDemand  bool
	fits      bool
	ranks     []rankView // ranks that have requested something
}

type rankView struct {
	number  int
	asked   time.Time // time of the last request
	between bool      // it is not in the middle of an epoch
	samples int       // in its epoch
}

// contender returns the job as a candidate. A silent owner with a connection counts as active for longer than other jobs.
func (j *jobView) contender(v *ownerView) contender {
	c := contender{number: j.number, between: true, sleeps: true, fits: j.fits && v.fresh}
	patience := v.late
	if j.number == v.owner && j.connected {
		patience *= lateEpochs
	}
	for _, r := range j.ranks {
		silent := v.now.Sub(r.asked)
		holds := silent > v.late && v.holds(chunker.JobRank{Job: j.number, Rank: r.number})
		if silent > patience && !holds {
			continue
		}
		c.active = !j.onDemand && j.connected
		c.sleeps = c.sleeps && silent > v.late && !holds
		c.between = c.between && r.between
		c.samples = max(c.samples, r.samples)
	}
	return c
}

// decideOwner returns the number of the job that should own the log's order. If the owner is over, the job of the server's own recipe owns it.
func decideOwner(v ownerView) int {
	var contenders []contender
	over := false
	for _, j := range v.jobs {
		contenders = append(contenders, j.contender(&v))
		over = over || j.number == v.owner && j.over
	}
	next := chooseOwner(contenders, v.owner)
	if next == v.owner && over {
		return 0
	}
	return next
}

// isFresh reports whether the server has just started, and has begun no Logfile. e.mu is held.
func (e *Engine) isFresh() bool {
	return !e.begun && e.now().Sub(e.started) < e.opts.LateEpoch
}

// fitLogs notes the jobs that have the order of a Logfile that was found at the start. Only the mover calls it.
func (e *Engine) fitLogs() {
	e.mu.Lock()
	if !e.isFresh() || len(e.jobs) == 1 {
		e.mu.Unlock()
		return
	}
	jobs, logs := e.sorted(), []*reorder.EpochLog{e.cur, e.tgt, e.unidentified}
	e.mu.Unlock()
	for _, j := range jobs {
		for _, l := range logs {
			if l == nil || j.fits || l.Log.IsOlder() || j.token == "" {
				continue
			}
			n := int(l.Log.Header().Epoch)
			version := j.schedule.Version(n)
			if was, is := j.compared[l.Log]; is && was == version {
				continue
			}
			if j.schedule.IsComplete(n, e.opts.LateEpoch) {
				order, epoch, err := j.schedule.Identify(e.ctx, n, e.cache.OrderKey(l.Log), e.opts.LateEpoch)
				fits := err == nil && order != nil && epoch >= 0
				e.mu.Lock()
				j.fits, j.compared[l.Log] = fits, version
				e.mu.Unlock()
			}
		}
	}
}

// nextOwner returns the job that should own the log's order. e.mu is held.
func (e *Engine) nextOwner() *job {
	now, others := e.now(), false
	for _, j := range e.jobs {
		others = others || j != e.owner && j.anyAsked()
	}
	if !others && !e.owner.isOver(now, e.opts.LateEpoch) { // the usual case
		return e.owner
	}
	v := ownerView{now: now, late: e.opts.LateEpoch, fresh: e.isFresh(), owner: e.owner.number}
	held := sync.OnceValue(func() map[chunker.JobRank]int64 { // it walks all leases
		held, _ := e.deliver.HeldByRank()
		return held
	})
	v.holds = func(of chunker.JobRank) bool { return held()[of] > 0 }
	for _, j := range e.sorted() {
		v.jobs = append(v.jobs, j.view(now, e.opts.LateEpoch))
	}
	return e.jobs[decideOwner(v)]
}

// view returns the job's description for the choice of the owner. Engine.mu is held.
func (j *job) view(now time.Time, late time.Duration) jobView {
	v := jobView{number: j.number, connected: j.isConnected(), over: j.isOver(now, late), onDemand: j.onDemand.Load(), fits: j.fits}
	for n, r := range j.ranks {
		if !r.asked.IsZero() {
			v.ranks = append(v.ranks, rankView{number: n, asked: r.asked, between: r.finished || r.batch == 0, samples: j.schedule.Samples(r.epoch)})
		}
	}
	return v
}

// settleOwner changes the owner of the log's order if another job should own it. Logfiles in orders that the new owner does not have are read and sorted
// like the Logfiles of an earlier job. Only the mover calls it.
func (e *Engine) settleOwner() {
	e.fitLogs()
	e.mu.Lock()
	e.sweepJobs()
	next := e.nextOwner()
	logs := []*reorder.EpochLog{e.cur, e.tgt}
	changes := next != e.owner && e.loading == 0
	e.mu.Unlock()
	if !changes {
		return
	}
	epochs := map[*reorder.EpochLog]int{}
	for _, l := range logs {
		if l == nil {
			continue
		}
		epochs[l] = -1
		if l.Layout == nil || l.Log.IsOlder() {
			continue
		}
		h := l.Log.Header()
		if order, epoch, err := next.schedule.Identify(e.ctx, int(h.Epoch), e.cache.OrderKey(l.Log), e.opts.LateEpoch); err == nil && order != nil {
			epochs[l] = epoch
		}
	}
	e.mu.Lock()
	e.setOwner(next, epochs)
	e.mu.Unlock()
	e.staging.Notify()
}

// setOwner makes a job the owner. epochs are the epochs of the new owner whose orders cur and tgt have. e.mu is held.
func (e *Engine) setOwner(next *job, epochs map[*reorder.EpochLog]int) {
	e.cache.Logger.Info("the log is laid out for another job from now on", "job", next.token, "before", e.owner.token)
	before := e.owner
	e.owner = next
	e.fetcher.Rest.Store(&e.ownerStats().Reads) // the scan's reads count for the owner
	for _, l := range e.logs {
		epoch, is := epochs[l]
		if !is {
			epoch = -1
		}
		l.Epoch = epoch
	}
	for epoch, l := range e.layouts {
		delete(e.layouts, epoch)
		l.layout.Free()
	}
	clear(e.compared)
	for _, j := range e.jobs {
		clear(j.alike)
	}
	e.broken = nil
	e.grace = grace{} // its epochs may take longer
	e.sortBytes += e.beginning.unfinished(e.cache.Store.Stats().WriteBytes)
	e.beginning = beginning{sequentialRate: e.beginning.sequentialRate, measuring: e.beginning.measuring, depth: e.beginning.depth}
	e.paused, e.windowHitRate, e.drained = false, 1, false
	e.readEpoch = next.latestEpoch()
	for _, r := range next.ranks {
		r.outOfWindow, r.gaveUpWaiting = false, false
	}
	for n, r := range before.ranks {
		r.inWindow = false
		if !r.asked.IsZero() {
			e.prefetcher.Refresh(before.next(n))
		}
	}
}
