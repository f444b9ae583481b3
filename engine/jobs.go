package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"time"

	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
	"lcache/sample"
)

// Several jobs may read one cache: training and validation, a notebook next to a run, hyperparameter searches over one dataset. The processes of a job
// send the same token: all ranks and workers with one token are one job. A job begins with the orders of the server's own recipe, and may push others. A
// job without connections ends after a while, and only its last counters remain.

const (
	defaultJobs = 8    // jobs that are read ahead for
	mostJobs    = 1024 // connected jobs
	mostEnded   = 16   // ended jobs in the status document
	mostToken   = 128  // bytes
	lateEpochs  = 6    // a job ends after LateEpoch * lateEpochs without a connection; an owner without requests loses ownership after the same time
)

// Attach begins or resumes a session for a process.
func (e *Engine) Attach(pid int, token string) (*deliver.Client, status.Hello, error) {
	c, err := e.deliver.Attach(pid, token)
	if err != nil {
		return nil, status.Hello{}, err
	}
	j := e.cache.Record.Job
	return c, status.Hello{Protocol: 1, Pid: os.Getpid(), Version: e.opts.Version, Server: e.server, Token: c.Token, Name: e.cache.Name(), Source: e.cache.Record.Source,
		Fingerprint: e.cache.Manifest.Fingerprint().String(), Samples: e.cache.Manifest.Len(), Epochs: j.Epochs, BatchSize: j.BatchSize, World: j.World,
		Ranks: e.cache.Schedule.Local(), DropLast: j.DropLast, Recipe: j.Recipe, Seed: j.Seed, Classes: e.cache.Manifest.Classes(), Parts: e.cache.Manifest.HasParts(),
		MemoryBytes: e.staging.Bytes(), CreditBytes: int64(e.cache.Sizing.Credit) / int64(max(1, len(e.cache.Schedule.Local()))), OnError: e.opts.OnError, Features: []string{"report", "lend", "labels", "jobs", "importance"},
		Params: j.Params, Listing: e.listing()}, nil
}

// listing describes to clients how the dataset was listed.
func (e *Engine) listing() status.Listing {
	j := e.cache.Record
	l := status.Listing{Identity: e.cache.Source.Identity(), Exts: j.Exts, Flat: j.Flat, Group: cmp.Or(j.Group, "none"), Labels: j.Labels, FirstPart: j.FirstPart, RecordFlags: j.RecordFlags, RecordFiles: e.recordFiles(), S3Endpoint: j.Remote.S3.Endpoint,
		FollowLinks: j.FollowLinks, OutsideLinks: j.OutsideLinks}
	if j.Counted != nil {
		l.Extensions = j.Counted.Files
	}
	return l
}

// filesDigest returns the SHA-256 of a line "SIZE VERSION" for each file of a source of records, in the order of their records. "": it is another source.
// A client that has mapped the files compares it with its own.
func filesDigest(shards []sample.Shard) string {
	if len(shards) == 0 || !shards[0].Records {
		return ""
	}
	digest := sha256.New()
	for _, s := range shards {
		fmt.Fprintf(digest, "%d %d\n", s.Size, s.Version)
	}
	return hex.EncodeToString(digest.Sum(nil))
}

// Join adds a connection to the job with a token, and returns the job's number. Leave removes it.
func (e *Engine) Join(token string) (int, error) {
	if token == "" || len(token) > mostToken {
		return 0, &deliver.ArgumentError{Reason: fmt.Sprintf("the job's token has %d bytes: pass 1 to %d", len(token), mostToken)}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, j := range e.jobs {
		if j.token == token {
			if j.users == 0 {
				j.onDemand.Store(e.readAhead() >= e.opts.JobsMax)
			}
			j.users++
			return j.number, nil
		}
	}
	if len(e.jobs) > mostJobs {
		return 0, &deliver.ArgumentError{Reason: fmt.Sprintf("%d jobs are connected, which is the limit of a server: end one of them first", mostJobs)}
	}
	s, err := schedule.New(e.cache.Record.Job, e.cache.Manifest.Len())
	if err != nil {
		return 0, err
	}
	s.CountIn(e.orders)
	e.lastJob++
	j := newJob(e.now, e.lastJob, s, e.totals(e.lastJob))
	j.token, j.users, j.began = token, 1, e.now()
	j.onDemand.Store(e.readAhead() >= e.opts.JobsMax)
	e.jobs[j.number] = j
	e.publishJobs()
	if j.onDemand.Load() {
		e.cache.Logger.Warn("nothing is read ahead for a job, because --jobs-max other jobs are connected", "job", token, "jobs_max", e.opts.JobsMax)
	}
	return j.number, nil
}

// Leave removes a connection from a job.
func (e *Engine) Leave(number int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if j := e.jobs[number]; j != nil && j.token != "" {
		j.users--
		j.left = e.now()
		e.admitJobs()
	}
}

// admitJobs begins to read ahead for jobs that were served on demand, as far as other jobs have left. e.mu is held.
func (e *Engine) admitJobs() {
	for _, j := range e.sorted() {
		if j.onDemand.Load() && j.users > 0 && e.readAhead() < e.opts.JobsMax {
			j.onDemand.Store(false)
		}
	}
}

// readAhead counts the connected jobs with tokens that are read ahead for. A job without a connection does not count, because a program may create a
// loader for each epoch. e.mu is held.
func (e *Engine) readAhead() (n int) {
	for _, j := range e.jobs {
		if j.token != "" && !j.onDemand.Load() && j.users > 0 {
			n++
		}
	}
	return n
}

// sorted lists the jobs in the order of their arrival. e.mu is held.
func (e *Engine) sorted() (jobs []*job) {
	for _, j := range e.jobs {
		jobs = append(jobs, j)
	}
	slices.SortFunc(jobs, func(a, b *job) int { return a.number - b.number })
	return jobs
}

// sweepJobs ends the jobs that have had no connection for a while. In other jobs, ranks that sleep lose their memory except for their leases; the jobs
// keep their orders. e.mu is held.
func (e *Engine) sweepJobs() {
	if len(e.jobs) == 1 {
		return
	}
	var held map[int]int64
	now := e.now()
	for _, j := range e.sorted() {
		switch {
		case j != e.owner && j.isOver(now, e.opts.LateEpoch):
			e.endJob(j)
			continue
		case j == e.owner || !j.anyAsked():
			continue
		case held == nil:
			held = e.deliver.Held()
		}
		var needed []int
		for n, r := range j.ranks {
			switch {
			case r.isActive(now, e.opts.LateEpoch, held):
				needed = append(needed, r.epoch, j.at(r))
			case !r.asked.IsZero():
				e.prefetcher.Forget(j.jobRank(n))
			}
		}
		j.schedule.SetNeeded(needed)
	}
}

// isConnected reports whether a job has a connection. The job of the server's own recipe always counts as connected. Engine.mu is held.
func (j *job) isConnected() bool { return j.token == "" || j.users > 0 }

// isOver reports whether a job has had no connection for a while. Engine.mu is held.
func (j *job) isOver(now time.Time, late time.Duration) bool {
	return j.token != "" && j.users == 0 && now.Sub(j.left) > lateEpochs*late
}

// endJob removes a job, and keeps its last entry for the status document. e.mu is held.
func (e *Engine) endJob(j *job) {
	for n := range j.ranks {
		e.prefetcher.Forget(j.jobRank(n))
	}
	e.ended = append(e.ended, e.lastStatusOf(j))
	if len(e.ended) > mostEnded {
		e.ended = slices.Delete(e.ended, 0, 1)
	}
	delete(e.jobs, j.number)
	e.publishJobs()
	if p := j.importance.Load(); p != nil {
		e.builders.Go(func() { p.stop(errJobOver) })
	}
	e.deliver.Forget(j.number)
	e.builders.Go(j.schedule.Stop) // it waits for orders that are being computed
}

// latestEpoch returns the epoch of the job's latest request. Engine.mu is held.
func (j *job) latestEpoch() int {
	var last *rank
	for _, r := range j.ranks {
		if last == nil || r.asked.After(last.asked) {
			last = r
		}
	}
	if last == nil {
		return 0
	}
	return last.epoch
}
