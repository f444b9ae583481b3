package engine

import (
	"maps"
	"sync/atomic"
	"time"

	"lcache/deliver"
	"lcache/fetch"
	"lcache/logfile"
	"lcache/schedule"
)

// A job is one program's way through the dataset: its orders, how far its ranks have come, and what is counted of it. One job of an Engine is the owner: the
// log is laid out in its order, and the state machine asks it alone. The others are served by the prefetcher. Engine.mu guards ranks and counts.
type job struct {
	number   int    // in positions; 0: of the server's own recipe
	token    string // "": of the server's own recipe
	began    time.Time
	schedule *schedule.Schedule
	lists    chunkLists // for the prefetcher

	importance atomic.Pointer[important] // nil: the job asked for none

	ranks    map[int]*rank
	counts   counts
	users    int                      // that take part: connections
	left     time.Time                // when one of them ended last
	onDemand atomic.Bool              // beyond --jobs-max: nothing is read ahead
	fits     bool                     // it has the order of a Logfile that was found at the start
	compared map[*logfile.Logfile]int // one more than the version of its order that a Logfile was compared with at the start
}

func newJob(number int, s *schedule.Schedule) *job {
	j := &job{number: number, schedule: s, ranks: map[int]*rank{}, compared: map[*logfile.Logfile]int{}}
	for _, r := range s.Local() {
		j.ranks[r] = &rank{}
	}
	return j
}

// jobOf returns the job that a position names; nil: there is no such job. e.mu is held.
func (e *Engine) jobOf(at *deliver.Position) *job { return e.jobs[at.Job] }

// publishJobs makes a change of the jobs visible to lookUp. e.mu is held.
func (e *Engine) publishJobs() {
	now := maps.Clone(e.jobs)
	e.found.Store(&now)
}

// lookUp returns the job with a number; nil: there is no such job. It takes no lock.
func (e *Engine) lookUp(number int) *job { return (*e.found.Load())[number] }

// rank returns a rank, which is new if nobody has asked for it before. e.mu is held.
func (j *job) rank(n int) *rank {
	r := j.ranks[n]
	if r == nil {
		r = &rank{}
		j.ranks[n] = r
	}
	return r
}

// next is the step that a rank comes to next.
func (j *job) next(r *rank) fetch.Step { return r.next(j.schedule) }

// at is the epoch that a rank will ask for next.
func (j *job) at(r *rank) int { return r.at(j.schedule) }

// rankBits is how many bits of a cursor's number name the rank: clients name ranks by 32 bits.
const rankBits = 32

// cursor is the prefetcher's number of a rank.
func (j *job) cursor(rank int) int { return j.number<<rankBits | rank }

// cursor is the prefetcher's number of the rank that a position names.
func cursor(at *deliver.Position) int { return (&job{number: at.Job}).cursor(at.Rank) }

// ofCursor returns what a cursor's number was made of.
func ofCursor(cursor int) (job, rank int) { return cursor >> rankBits, cursor & (1<<rankBits - 1) }
