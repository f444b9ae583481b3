package prefetch

import (
	"time"

	"lcache/chunker"
	"lcache/sample"
)

// AllJobs makes Prefetcher.Work return the sum of all jobs.
const AllJobs = -1

// A Work is the amount read so far on one path, and the time with at least one read in flight.
type Work struct {
	Bytes int64
	Busy  time.Duration
}

// Work returns the work of random reads and of the source for one job, or for AllJobs. The difference of two results gives a rate. The
// reads of other jobs lower the rate of a job. When the last rank of a job is forgotten, so is the job's work.
func (r *Prefetcher) Work(job int) (place, source Work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.work[job]
	if m == nil {
		return Work{}, Work{}
	}
	return m[sample.FromLog].work(), m[sample.FromSource].work()
}

// meters measures the rate of each path.
type meters [sample.Origins]meter

// meter measures the rate of a path: bytes read, and the time with at least one read in flight.
type meter struct {
	bytes int64
	busy  time.Duration
	n     int
	since time.Time
}

func (m *meter) enter() {
	if m.n++; m.n == 1 {
		m.since = time.Now()
	}
}

func (m *meter) leave() {
	if m.n--; m.n == 0 {
		m.busy += time.Since(m.since)
	}
}

func (m *meter) work() Work {
	w := Work{m.bytes, m.busy}
	if m.n > 0 {
		w.Busy += time.Since(m.since)
	}
	return w
}

// meters returns the meters of a job. r.mu is held.
func (r *Prefetcher) meters(job int) *meters {
	if r.work[job] == nil {
		r.work[job] = &meters{}
	}
	return r.work[job]
}

// hasRanks reports whether a job has a rank that was not forgotten. r.mu is held.
func (r *Prefetcher) hasRanks(job int) bool {
	for _, c := range r.ranks {
		if c.rank.Job == job {
			return true
		}
	}
	return false
}

// enter notes that a read for a job begins. r.mu is held.
func (r *Prefetcher) enter(job *meters, p sample.Origin) {
	r.work[AllJobs][p].enter()
	job[p].enter()
}

// leave notes that a read for a job ends. r.mu is held.
func (r *Prefetcher) leave(job *meters, p sample.Origin) {
	r.work[AllJobs][p].leave()
	job[p].leave()
}

// Advances reports whether samples were read for a rank since the last call, and there is memory for more.
func (r *Prefetcher) Advances(rank chunker.JobRank) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.ranks[rank]
	if c == nil {
		return false
	}
	before := c.seen
	c.seen = c.landed
	return c.landed > before && !r.idle.Load()
}

// Ready returns the number of chunks after the last requested one that are ready for a rank.
func (r *Prefetcher) Ready(rank chunker.JobRank) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.ranks[rank]; c != nil {
		for _, k := range c.chunks {
			if k.left == 0 && c.asked.Before(k.at) {
				n++
			}
		}
	}
	return n
}
