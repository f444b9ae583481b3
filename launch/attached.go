package launch

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"lcache/attach"
	"lcache/caches"
	"lcache/engine"
	"lcache/figures"
	"lcache/schedule"
)

// attached is a server of another process that a run uses. The connection is held until COMMAND has ended, so that a server which ends
// without clients stays for as long.
type attached struct {
	pid   int
	began engine.Status // when the run attached

	mu     sync.Mutex // guards the fields that follow: a scrape of the metrics asks too
	client *attach.Client
	last   engine.Status // that it answered
	err    error         // it does not answer any more
}

// attach finds the server that has the cache in dirs already; without one it returns nil.
func (r *run) attach(s Source, dirs []string, opened *Opened) (*serving, error) {
	c, err := caches.Look(dirs[0])
	if err != nil || c.Pid == 0 {
		return nil, nil // serving the directory will say what is wrong with it
	}
	a := r.findServer(c.Pid, dirs)
	if a == nil {
		return nil, nil // an ingest, perhaps: opening the cache will name that process
	}
	job := a.began.Jobs[0]
	c.Source = job.Source
	err = r.isOf(c, s.Path)
	if follow := r.Ingest.FollowLinks; err == nil && follow != nil && !*follow && c.OutsideLinks > 0 {
		err = fmt.Errorf("process %d serves %s with %s that links outside the source lead to: stop it, or leave out --no-follow-links", a.pid, c.Dir,
			figures.Plural(int64(c.OutsideLinks), "sample", "samples"))
	}
	if err != nil {
		a.client.Close()
		return nil, err
	}
	var has schedule.Job
	opened.OtherJob = r.JobGiven && (json.Unmarshal(c.Job, &has) != nil || !sameJob(has, r.Ingest.Job))
	opened.AttachedTo, opened.Dirs, opened.Samples, opened.Bytes = a.pid, a.began.Cache.Dirs, job.Samples, job.DatasetBytes
	return &serving{Source: s, other: a}, nil
}

// findServer looks where servers say that they are, and where that of a cache is if nothing else was said. One that answers is the right
// one if it is the process that holds the cache's lock.
func (r *run) findServer(pid int, dirs []string) *attached {
	sockets := []string{attach.SocketOf(dirs)}
	if entries, err := attach.Registered(r.Registry); err == nil {
		for _, e := range entries {
			if e.PID == pid && slices.Contains(e.Cache, dirs[0]) {
				sockets = append(sockets, e.Socket)
			}
		}
	}
	for _, socket := range sockets {
		client, err := attach.Dial(socket, "lcache-status "+r.Version)
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

// sameJob compares what was given: nothing is the same as the default, or as an empty list.
func sameJob(a, b schedule.Job) bool {
	if max(a.World, 1) != max(b.World, 1) || !slices.Equal(a.Ranks, b.Ranks) || !maps.Equal(a.Params, b.Params) {
		return false
	}
	a.World, a.Ranks, a.Params = b.World, b.Ranks, b.Params
	return reflect.DeepEqual(a, b)
}

// status asks the server. Once it did not answer it is not asked again.
func (a *attached) status() (engine.Status, error) {
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

// leave asks a last time and lets go. The status is the last one that there was, also with an error.
func (a *attached) leave() (engine.Status, error) {
	last, err := a.status()
	a.client.Close()
	if err != nil {
		return last, fmt.Errorf("process %d ended before the command did: the summary is of what was seen until then: %w", a.pid, err)
	}
	return last, nil
}

// since is the part of a server's work that was done after it said began.
func since(last, began engine.Status) engine.Status {
	if len(last.Jobs) == 0 {
		return last
	}
	j, before := last.Jobs[0], began.Jobs[0]
	for _, n := range []struct{ now, before *int64 }{
		{&j.SamplesDelivered, &before.SamplesDelivered}, {&j.Hits, &before.Hits}, {&j.Misses, &before.Misses},
		{&j.SourceBytes, &before.SourceBytes}, {&j.LogReadBytes, &before.LogReadBytes}, {&j.LogWriteBytes, &before.LogWriteBytes},
		{&j.CorruptSamples, &before.CorruptSamples}, {&j.StaleSamples, &before.StaleSamples}, {&j.Divergences, &before.Divergences},
		{&j.SkippedSamples, &before.SkippedSamples},
	} {
		*n.now -= *n.before
	}
	for _, n := range []struct {
		now    **float64 // null as long as no training loop told
		before *float64
	}{{&j.LoopSeconds, before.LoopSeconds}, {&j.LoopWaitSeconds, before.LoopWaitSeconds}, {&j.DecodeSeconds, before.DecodeSeconds}} {
		if *n.now != nil && n.before != nil {
			since := **n.now - *n.before
			*n.now = &since
		}
	}
	j.EpochsDone = j.EpochsDone[min(len(before.EpochsDone), len(j.EpochsDone)):]
	if before.FirstDivergence != nil {
		j.FirstDivergence = nil // not of this run
	}
	last.Jobs = []engine.JobStatus{j}
	return last
}
