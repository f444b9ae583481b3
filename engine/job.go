package engine

import (
	"maps"
	"sync/atomic"
	"time"

	"lcache/chunker"
	"lcache/engine/internal/count"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/logfile"
)

// A job is one program's use of the dataset: its orders, the progress of its ranks, and its counters. One job of an Engine is the owner: the log is laid
// out in its order, and only its state drives the mover. The prefetcher serves the others. Engine.mu guards ranks and counts.
type job struct {
	number   int    // as in positions; 0: the job of the server's own recipe
	token    string // "": the job of the server's own recipe
	began    time.Time
	schedule *schedule.Schedule
	lists    chunkLists // for the prefetcher

	importance atomic.Pointer[important] // nil: importance is off

	ranks    map[int]*rank
	counts   *count.Job
	users    int                      // number of connections
	left     time.Time                // when the last connection ended
	onDemand atomic.Bool              // the job is beyond --jobs-max: nothing is read ahead for it
	fits     bool                     // it has the order of a Logfile that was found at the start
	alike    map[int]bool             // by epoch: whether it has the owner's order; missing: not compared
	compared map[*logfile.Logfile]int // the order version that a Logfile was compared with at the start; missing: not compared
}

// newJob creates a job whose counters begin at the given totals.
func newJob(now func() time.Time, number int, s *schedule.Schedule, begin count.Totals) *job {
	j := &job{number: number, schedule: s, counts: count.New(now, begin), ranks: map[int]*rank{}, alike: map[int]bool{}, compared: map[*logfile.Logfile]int{}}
	for _, r := range s.Local() {
		j.rank(r)
	}
	return j
}

// jobOf returns the job that a position names, or nil. e.mu is held.
func (e *Engine) jobOf(at *deliver.Position) *job { return e.jobs[at.Job] }

// publishJobs makes a change of the jobs visible to lookUp. e.mu is held.
func (e *Engine) publishJobs() {
	now := maps.Clone(e.jobs)
	e.found.Store(&now)
}

// lookUp returns the job with a number, or nil. It takes no lock.
func (e *Engine) lookUp(number int) *job { return (*e.found.Load())[number] }

// rank returns a rank, and creates it at its first request. e.mu is held.
func (j *job) rank(n int) *rank {
	r := j.ranks[n]
	if r == nil {
		r = &rank{of: j.jobRank(n), broughtTo: -1}
		j.ranks[n] = r
	}
	return r
}

// next returns the position of rank n's first undelivered batch. Engine.mu is held.
func (j *job) next(n int) deliver.Position {
	r := j.ranks[n]
	if at := j.at(r); at != r.epoch {
		return j.jobRank(n).At(at, 0)
	}
	return j.jobRank(n).At(r.epoch, r.batch)
}

// at returns the epoch that a rank will request next.
func (j *job) at(r *rank) int { return r.at(j.schedule) }

// jobRank identifies rank n in packages that handle several jobs.
func (j *job) jobRank(n int) chunker.JobRank { return chunker.JobRank{Job: j.number, Rank: n} }
