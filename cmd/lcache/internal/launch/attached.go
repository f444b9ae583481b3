package launch

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"lcache/cmd/lcache/internal/attach"
	"lcache/internal/errcode"
	"lcache/internal/jsonbytes"
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
	"lcache/internal/store/cachedir"
	"lcache/internal/units"
)

// attached is a server of another process that a run uses. The connection stays open until the command has ended, so that a server which ends
// without clients does not end before.
type attached struct {
	pid   int
	began status.Document // when the run attached

	mu     sync.Mutex // guards the fields that follow, because scrapes of the metrics ask for the status too
	client *attach.Client
	last   status.Document // the last answer
	err    error           // of the first question without an answer
}

// attach finds the server that has the cache in dirs already; without one it returns nil.
func (r *run) attach(s Source, dirs []string, opened *Opened) (*serving, error) {
	c, err := cachedir.Look(dirs[0])
	if err != nil || c.Pid == 0 {
		return nil, nil // opening the directory names its fault
	}
	a := findServer(r.Registry, r.Version, c.Pid, dirs)
	if a == nil {
		return nil, nil // perhaps an ingest: opening the cache names that process
	}
	job := a.began.Jobs[0] // any: they are over the same dataset
	c.Source = job.Source
	err = r.isOf(c, s.Path, true)
	if follow := r.Ingest.FollowLinks; err == nil && follow != nil && !*follow && c.OutsideLinks > 0 {
		err = errcode.Errorf(errcode.OutsideLinks, "process %d serves %s with %s that links outside the source lead to: stop it, or leave out --no-follow-links", a.pid, c.Dir,
			units.Plural(int64(c.OutsideLinks), "sample", "samples"))
	}
	if err == nil {
		err = r.inCluster(a)
	}
	if err != nil {
		a.client.Close()
		return nil, err
	}
	var has schedule.Job
	opened.OtherJob = r.JobGiven && (jsonbytes.Unmarshal(c.Job, &has) != nil || !sameJob(has, r.Ingest.Job))
	opened.AttachedTo, opened.Dirs, opened.Samples, opened.Bytes = a.pid, a.began.Cache.Dirs, job.Samples, job.DatasetBytes
	return &serving{Source: s, other: a}, nil
}

// inCluster returns an error if a running server is not in the cluster that this run asks for.
func (r *run) inCluster(a *attached) error {
	if r.Cluster == nil {
		return nil
	}
	c, advice := a.began.Cluster, fmt.Sprintf("stop it with lcache stop %d and run again, or leave out --cluster", a.pid)
	switch {
	case c.State == status.ClusterOff || c.State == "":
		return errcode.Errorf(errcode.OtherCluster, "process %d serves this cache without a cluster, and --cluster asks for one: %s", a.pid, advice)
	case c.Label != r.Cluster.Key.Label():
		return errcode.Errorf(errcode.OtherCluster, "process %d serves this cache in a cluster with another key, or one of both has no key: %s", a.pid, advice)
	}
	return nil
}

// findServer connects to the server of the process that holds the cache's lock. It tries the default socket of the cache, and the sockets in
// the registry.
func findServer(registry, version string, pid int, dirs []string) *attached {
	sockets := []string{attach.SocketOf(dirs)}
	if entries, err := attach.Registered(registry); err == nil {
		for _, e := range entries {
			if e.PID == pid && slices.Contains(e.Cache, dirs[0]) {
				sockets = append(sockets, e.Socket)
			}
		}
	}
	for _, socket := range sockets {
		client, err := attach.DialFound(socket, "lcache-status "+version)
		if err != nil {
			continue
		}
		a := &attached{pid: pid, client: client}
		if a.began, err = a.status(); err == nil && a.began.Pid == pid && len(a.began.Jobs) > 0 {
			return a
		}
		client.Close()
	}
	return nil
}

// sameJob compares two jobs. A value that is not given equals its default.
func sameJob(a, b schedule.Job) bool {
	if max(a.World, 1) != max(b.World, 1) || !slices.Equal(a.Ranks, b.Ranks) || !maps.Equal(a.Params, b.Params) {
		return false
	}
	a.World, a.Ranks, a.Params = b.World, b.Ranks, b.Params
	return reflect.DeepEqual(a, b)
}

// status asks the server for its status. After a question without an answer it does not ask again.
func (a *attached) status() (status.Document, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return a.last, a.err
	}
	_, s, err := a.client.Status()
	if err != nil {
		a.err = err
		return a.last, err
	}
	a.last = s
	return s, nil
}

// leave asks for the last status, and closes the connection. With an error it returns the last answer.
func (a *attached) leave() (status.Document, error) {
	last, err := a.status()
	a.client.Close()
	if err != nil {
		return last, fmt.Errorf("process %d ended before the command: the summary covers the time until then: %w", a.pid, err)
	}
	return last, nil
}

// since returns a server's last status with the jobs of this run alone. These are the jobs that have delivered samples since the status began; their figures count
// from then, or from 0 for a new job. If the run had no job, the first job is returned. The totals still count from the server's start.
func since(last, began status.Document) status.Document {
	if len(last.Jobs) == 0 {
		return last
	}
	before := byAge(began.Jobs)
	var moved []status.Job
	for _, j := range byAge(last.Jobs) {
		if k := slices.IndexFunc(before, func(b status.Job) bool { return isSame(b, j) }); k >= 0 {
			j = jobSince(j, before[k])
			before = slices.Delete(before, k, k+1)
		}
		if j.SamplesDelivered > 0 || j.SkippedSamples > 0 {
			moved = append(moved, j)
		}
	}
	if len(moved) == 0 {
		moved = []status.Job{jobSince(last.Jobs[0], last.Jobs[0])}
	}
	slices.SortStableFunc(moved, func(a, b status.Job) int { return rankOf(a) - rankOf(b) })
	// The figures of the server stand in the first entry of each document, whichever job's that is.
	first := last.Jobs[0]
	if len(began.Jobs) > 0 {
		b := began.Jobs[0]
		first.LogReadBytes, first.LogWriteBytes = first.LogReadBytes-b.LogReadBytes, first.LogWriteBytes-b.LogWriteBytes
		first.CorruptSamples, first.StaleSamples = first.CorruptSamples-b.CorruptSamples, first.StaleSamples-b.StaleSamples
	}
	for k := range moved {
		moved[k].LogReadBytes, moved[k].LogWriteBytes, moved[k].CorruptSamples, moved[k].StaleSamples = 0, 0, 0, 0
	}
	m := &moved[0]
	m.LogReadBytes, m.LogWriteBytes, m.CorruptSamples, m.StaleSamples = first.LogReadBytes, first.LogWriteBytes, first.CorruptSamples, first.StaleSamples
	last.Jobs = moved
	return last
}

// byAge lists jobs that are over first: of two with one token they are the older ones.
func byAge(jobs []status.Job) []status.Job {
	jobs = slices.Clone(jobs)
	slices.SortStableFunc(jobs, func(a, b status.Job) int { return rankOf(b) - rankOf(a) })
	return jobs
}

// rankOf is the place of a job's kind in the status document.
func rankOf(j status.Job) int {
	switch {
	case j.Ended:
		return 2
	case j.Owner:
		return 0
	}
	return 1
}

// isSame reports whether a job is the one of an earlier document. One with the same token that has delivered less is a new one.
func isSame(before, now status.Job) bool {
	return before.ID == now.ID && (now.Ended || !before.Ended) && before.ChunksDelivered <= now.ChunksDelivered
}

// jobSince is the change of a job since an earlier status.
func jobSince(j, before status.Job) status.Job {
	for _, n := range []struct{ now, before *int64 }{
		{&j.ChunksDelivered, &before.ChunksDelivered}, {&j.SamplesDelivered, &before.SamplesDelivered}, {&j.Hits, &before.Hits}, {&j.Misses, &before.Misses},
		{&j.SourceBytes, &before.SourceBytes}, {&j.Divergences, &before.Divergences}, {&j.SkippedSamples, &before.SkippedSamples},
	} {
		*n.now -= *n.before
	}
	for _, n := range []struct {
		now    **float64 // nil until a training loop reports
		before *float64
	}{{&j.LoopSeconds, before.LoopSeconds}, {&j.LoopWaitSeconds, before.LoopWaitSeconds}, {&j.DecodeSeconds, before.DecodeSeconds}} {
		if *n.now != nil && n.before != nil {
			since := **n.now - *n.before
			*n.now = &since
		}
	}
	j.EpochsDone = j.EpochsDone[min(len(before.EpochsDone), len(j.EpochsDone)):]
	if before.FirstDivergence != nil {
		j.FirstDivergence = nil // it came before this run
	}
	return j
}
