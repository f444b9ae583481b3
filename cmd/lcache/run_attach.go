package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"lcache/attach"
	"lcache/caches"
	"lcache/engine"
	"lcache/figures"
	"lcache/source"
)

// attachment is a server of another process that a run uses. The connection is held until COMMAND has ended, so that a server which ends
// without clients stays for as long.
type attachment struct {
	pid   int
	began engine.Status // when the run attached

	mu     sync.Mutex // guards the fields that follow: a scrape of the metrics asks too
	client *attach.Client
	last   engine.Status // that it answered
	err    error         // it does not answer any more
}

// attach finds the server that has the cache in dirs already; without one it returns nil.
func (r *runner) attach(s namedSource, dirs []string, bar *progress) (*serving, error) {
	c, err := caches.Look(dirs[0])
	if err != nil || c.Pid == 0 {
		return nil, nil // serving it will say what is wrong with the directory
	}
	a := findServer(c.Pid, dirs)
	if a == nil {
		return nil, nil // an ingest, perhaps, which is then named as the one who has the cache
	}
	c.Source = a.began.Jobs[0].Source
	err = r.isOf(c, s.source)
	if follow := r.ingest.FollowLinks; err == nil && follow != nil && !*follow && c.OutsideLinks > 0 {
		err = fmt.Errorf("process %d serves %s with %s that links outside the source lead to: stop it, or leave out --no-follow-links", a.pid, c.Dir, figures.Plural(int64(c.OutsideLinks), "sample", "samples"))
	}
	if err != nil {
		a.client.Close()
		return nil, err
	}
	r.remark(bar, func(w io.Writer) { r.writeAttached(w, a, s, c) })
	return &serving{namedSource: s, dirs: dirs, other: a}, nil
}

// findServer looks where servers say that they are, and where that of a cache is if nothing else was said. One that answers is the right
// one if it is the process that holds the cache's lock.
func findServer(pid int, dirs []string) *attachment {
	sockets := []string{attach.SocketOf(dirs)}
	if entries, err := attach.Registered(attach.Dir()); err == nil {
		for _, e := range entries {
			if e.PID == pid && slices.Contains(e.Cache, dirs[0]) {
				sockets = append(sockets, e.Socket)
			}
		}
	}
	for _, socket := range sockets {
		client, err := attach.Dial(socket, clientName())
		if err != nil {
			continue
		}
		a := &attachment{pid: pid, client: client}
		if a.began, err = a.status(); err == nil && a.began.Pid == pid && len(a.began.Jobs) > 0 {
			return a
		}
		client.Close()
	}
	return nil
}

// isOf refuses a cache of another source, or of other files of it.
func (r *runner) isOf(c caches.Cache, src string) error {
	if !source.Same(c.Source, src) {
		return fmt.Errorf("%s is the cache of %s, not of %s: use another --cache, or remove it", c.Dir, c.Source, src)
	}
	return r.listedAs(c)
}

// listedAs refuses a cache that lists other files of its source than the flags say, if they say any.
func (r *runner) listedAs(c caches.Cache) error {
	if !r.listingGiven {
		return nil
	}
	asked := source.Options{Exts: r.ingest.Exts, Flat: r.ingest.Flat, Group: r.ingest.Group, Labels: r.ingest.Labels}
	made := source.Options{Exts: c.Exts, Flat: c.Flat, Group: c.Group, Labels: c.Labels}
	if differ := asked.Difference(made, c.Files); differ != "" {
		return fmt.Errorf("%s lists other files of %s than you ask for (%s): leave out these flags, or use another --cache", c.Dir, c.Source, differ)
	}
	return nil
}

// writeAttached says whose server is used, and which flags it does not heed.
func (r *runner) writeAttached(w io.Writer, a *attachment, s namedSource, c caches.Cache) {
	j := a.began.Jobs[0]
	fmt.Fprintln(w, servedText(s, "attached", a.began.Cache.Dirs, j.Samples, j.DatasetBytes))
	fmt.Fprintf(w, "          to process %d, which serves it already and goes on when the command has ended\n", a.pid)
	ignored := r.serverGiven
	var has engine.Job
	if r.jobGiven && (json.Unmarshal(c.Job, &has) != nil || !sameJob(has, r.ingest.Job)) {
		ignored = append(slices.Clone(ignored), "the flags of the job")
	}
	if len(ignored) > 0 {
		fmt.Fprintf(w, "! no effect here: %s: that server was started with its own\n", strings.Join(ignored, ", "))
	}
}

// sameJob compares what was given: nothing is the same as the default, or as an empty list.
func sameJob(a, b engine.Job) bool {
	if max(a.World, 1) != max(b.World, 1) || !slices.Equal(a.Ranks, b.Ranks) || !maps.Equal(a.Params, b.Params) {
		return false
	}
	a.World, a.Ranks, a.Params = b.World, b.Ranks, b.Params
	return reflect.DeepEqual(a, b)
}

// status asks the server. Once it did not answer it is not asked again.
func (a *attachment) status() (engine.Status, error) {
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
func (a *attachment) leave() (engine.Status, error) {
	last, err := a.status()
	a.client.Close()
	if err != nil {
		return last, fmt.Errorf("process %d ended before the command did: the summary is of what was seen until then: %w", a.pid, err)
	}
	return last, nil
}

// ofRun is the part of a server's work that the summary is about: with a server that was there before, what was done since.
func (s *serving) ofRun() engine.Status {
	if s.other == nil || len(s.last.Jobs) == 0 {
		return s.last
	}
	part := s.last
	j, before := s.last.Jobs[0], s.other.began.Jobs[0]
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
	part.Jobs = []engine.JobStatus{j}
	return part
}
