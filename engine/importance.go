package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"lcache/internal/importance/disk"
	"lcache/internal/importance/memory"
	"lcache/internal/importance/packing"
	"lcache/internal/importance/session"
	"lcache/internal/importance/state"
	"lcache/internal/importance/substitute"
	"lcache/internal/serve/deliver"
	"lcache/internal/store/cache"
	"lcache/logfile"
)

// An important has a job's importance: its session, and the memory and packages that the session uses.
type important struct {
	*session.Session
	e      *Engine
	j      *job
	config state.Config
	room   *session.Holding

	high          *memory.High          // samples that the policy keeps
	opportunistic *memory.Opportunistic // samples of opportunistic reads; nil: there are none
	packs         *packing.Packer       // nil: L-samples stay in place

	ended chan struct{} // closed when everything is freed
}

// Importance turns on importance-sampled orders for a job, with the options in a client's text. run names the client's process. A second call with the
// same text changes nothing; another text is an error.
func (e *Engine) Importance(ctx context.Context, number, rank int, run string, text []byte) (ImportanceInfo, error) {
	j := e.lookUp(number)
	if j == nil {
		return ImportanceInfo{}, errJobOver
	}
	lag := "0"
	if e.cache.Layout == cache.LayoutLog {
		lag = "1"
	}
	job := e.cache.Record.Job
	c, here, err := session.Parse(text, state.Defaults{Cache: cacheNotGiven, Seed: job.Seed, BatchSize: job.BatchSize, WorldSize: max(job.World, 1), DropLast: job.DropLast, Lag: lag}, j.schedule)
	if err != nil {
		return ImportanceInfo{}, err
	}
	if e.cache.Manifest.Len() == 0 {
		return ImportanceInfo{}, &deliver.ArgumentError{Reason: "importance: the dataset has no samples"}
	}
	if e.peers != nil && c.Substitute != "" {
		return ImportanceInfo{}, &deliver.ArgumentError{Reason: "importance: substitute does not work with --cluster yet, because the machines keep the samples of all; leave substitute out, or start the server without --cluster"}
	}
	p, err := e.importanceWithin(ctx, j, c)
	if err != nil {
		return ImportanceInfo{}, err
	}
	p.Join(rank, run, here)
	return p.Info(c), nil
}

// spareMemory returns the memory not yet reserved, for samples and packages of importance.
func (e *Engine) spareMemory() int64 { return e.shares.Kept.Left() }

// opportunisticShare is the part of importance memory for opportunistic reads if a job gives no cache=: 1/opportunisticShare.
const opportunisticShare = 16

// readsOpportunistically reports whether a job has opportunistic reads: in a log that is reordered, where drawn epochs leave segments in place.
func (e *Engine) readsOpportunistically(c state.Config) bool {
	return c.Lag != "0" && c.Substitute == "" && !e.cache.IsStatic()
}

// cacheNotGiven marks a configuration without cache=.
const cacheNotGiven = -1

// defaultCache returns the memory of a job without cache=: what --memory leaves, minus a reserve for packages or opportunistic reads. It warns if no
// sample fits.
func (e *Engine) defaultCache(c state.Config) int64 {
	left := max(e.spareMemory(), 0)
	n := left
	if c.Substitute == substitute.Low {
		n = packing.MemoryLeft(e.cache, left)
	} else if e.readsOpportunistically(c) {
		n -= left / opportunisticShare
	}
	if mean := int64(e.cache.Manifest.Bytes()) / int64(e.cache.Manifest.Len()); n < mean {
		e.cache.Logger.Warn("importance keeps no sample in memory: --memory and other jobs leave less than one sample needs; pass cache= to every job, or raise --memory", "name", c.Name, "bytes", n, "sample_bytes", mean)
	}
	return n
}

// ImportanceInfo is the answer to a client that turned on importance.
type ImportanceInfo = session.Info

// importanceWithin calls importanceOf with the deadline of a request, because importanceOf reads files and a disk may hang.
func (e *Engine) importanceWithin(ctx context.Context, j *job, c state.Config) (*important, error) {
	ctx, cancel := context.WithTimeout(ctx, e.deliver.Timeout())
	defer cancel()
	var p *important
	var err error
	select {
	case e.importing <- struct{}{}:
		err = logfile.Within(ctx, "job.importance", func() (err error) {
			defer func() { <-e.importing }()
			p, err = e.importanceOf(j, c)
			return err
		})
	case <-ctx.Done():
		err = ctx.Err()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &deliver.TimeoutError{Waited: e.deliver.Timeout(), For: "reading the file of importance " + c.Name + " in " + e.cache.Dirs[0] + ": look at the disk (dmesg)"}
	case err != nil:
		return nil, err // importanceOf may still be running
	}
	return p, nil
}

// errNameTaken is the error of a job whose importance ended while none of its clients was connected.
var errNameTaken = &deliver.ArgumentError{Reason: "importance: another job took this job's name while no client of this job was connected: call job.importance again, with another name="}

// importanceOf returns a job's importance. It creates one if the job has none, or if another job took its name while none of this job's clients was
// connected. The caller has locked importing.
func (e *Engine) importanceOf(j *job, c state.Config) (*important, error) {
	if p := j.importance.Load(); p != nil && !p.IsStopped() {
		if c.Cache == cacheNotGiven {
			c.Cache = p.config.Cache
		}
		if differs := p.config.Differs(c); differs != "" {
			return nil, &deliver.ArgumentError{Reason: "importance: options changed since the job started: " + differs}
		}
		return p, nil
	}
	if err := e.freeName(j, c.Name); err != nil {
		return nil, err
	}
	h, err := e.shares.Hold(c, e.cache.Manifest.Len())
	if err != nil {
		return nil, err
	}
	p, err := e.beginImportant(j, c, h)
	if err != nil {
		h.GiveBack()
		return nil, err
	}
	e.changeHolders(p.holders(), nil)
	e.mu.Lock()
	if e.states == nil {
		e.states = map[string]*important{}
	}
	e.states[c.Name] = p
	over := e.jobs[j.number] != j // if not, endJob finds the session
	j.importance.Store(p)
	e.mu.Unlock()
	if over {
		p.stop(errJobOver)
		return nil, errJobOver
	}
	return p, nil
}

// freeName ends the session of another job with the same name, if that job is not connected. It returns an error if that job is connected, or if the
// requesting job is over.
func (e *Engine) freeName(j *job, name string) error {
	e.mu.Lock()
	other, closing, over := e.states[name], e.ctx.Err() != nil, e.jobs[j.number] != j
	used := other != nil && (other.j.token == "" || other.j.users > 0)
	e.mu.Unlock()
	switch {
	case closing:
		return deliver.ErrClosing
	case over:
		return errJobOver
	case used:
		return &deliver.ArgumentError{Reason: fmt.Sprintf("importance: job name %q is in use: pass name=", name)}
	case other != nil:
		other.stop(errNameTaken)
	}
	return nil
}

// beginImportant reserves memory and disk space for a job's importance, and starts it.
func (e *Engine) beginImportant(j *job, c state.Config, h *session.Holding) (*important, error) {
	if c.Cache == cacheNotGiven {
		c.Cache = e.defaultCache(c)
	}
	if err := h.KeepCache(c); err != nil {
		return nil, err
	}
	if err := e.disk.Take(c.Name); err != nil {
		return nil, err
	}
	p, err := e.newImportant(j, c, h)
	if err != nil {
		e.disk.GiveBack(c.Name)
	}
	return p, err
}

// newImportant creates the memory and packages of a job's importance, and starts its session.
func (e *Engine) newImportant(j *job, c state.Config, h *session.Holding) (p *important, err error) {
	p = &important{e: e, j: j, config: c, room: h, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			p.freeMemory()
			err = fmt.Errorf("importance %s: %w", c.Name, err)
		}
	}()
	data := memory.Dataset{Manifest: e.cache.Manifest, Sums: e.cache.Sums, Logger: e.cache.Logger}
	if p.high, err = memory.NewHigh(c, memory.Options{Dataset: data, Slice: e.staging.Slice, Read: e.fetcher.ReadNow}); err != nil {
		return nil, err
	}
	o := session.Options{Now: e.now, Config: c, Manifest: e.cache.Manifest, Schedule: j.schedule, Host: sessionHost{e, j}, Log: e.cache.Logger, High: p.high, Observations: e.observed, Orders: h.Orders,
		Path: e.disk.Path(c.Name), Trace: e.cache.Store.Trace(), Room: func(bytes int64) error { return e.disk.Grow(c.Name, bytes) }, Epochs: e.cache.Record.Job.Epochs, LateEpoch: e.opts.LateEpoch, Timeout: e.deliver.Timeout()}
	if substitutesLow(p) {
		if p.packs, err = e.newPacker(p); err != nil {
			return nil, err
		}
		if !h.Keep(p.packs.Memory()) { // other jobs have taken the memory meanwhile
			p.packs.Close()
			p.packs = nil
		}
		if p.packs != nil {
			o.BeginPackages = p.packs.Begin
		}
	}
	if e.readsOpportunistically(c) {
		if p.opportunistic, err = memory.NewOpportunistic(e.spareMemory(), data, e.undelivered); err != nil {
			return nil, err
		}
		if !h.Keep(p.opportunistic.Total()) {
			p.opportunistic.Close()
			p.opportunistic = nil
		}
		o.Opportunistic = p.opportunistic
	}
	if p.Session, err = session.New(e.ctx, o); err != nil {
		return nil, err
	}
	return p, nil
}

// freeMemory frees the memory of a job whose session has ended or did not start.
func (p *important) freeMemory() {
	p.packs.Close()
	if p.high != nil {
		p.high.Close()
	}
	p.opportunistic.Close()
}

// stop ends the session and waits until its name is free again. Pending requests fail with why. The file stays.
func (p *important) stop(why error) {
	if p.Stop(why) {
		p.giveBack()
		close(p.ended)
	}
	<-p.ended
}

// giveBack frees the memory of a session whose worker has ended. When the file is written, it frees the name, too.
func (p *important) giveBack() {
	p.e.changeHolders(nil, p.holders())
	p.freeMemory()
	p.Wait()
	p.j.schedule.CountIn(p.e.orders)
	p.room.GiveBack()
	p.e.disk.GiveBack(p.config.Name)
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	delete(p.e.states, p.config.Name)
}

// asleep lists the jobs with importance that are not connected. The job that disconnected first comes first.
func (e *Engine) asleep() (jobs []disk.Job) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []*important
	for _, p := range e.states {
		if p.j.token != "" && p.j.users == 0 {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *important) int { return a.j.left.Compare(b.j.left) })
	for _, p := range list {
		jobs = append(jobs, disk.Job{Name: p.config.Name, Stop: p.stop})
	}
	return jobs
}

// endImportance ends all sessions.
func (e *Engine) endImportance() {
	e.importing <- struct{}{} // no session begins meanwhile
	defer func() { <-e.importing }()
	e.mu.Lock()
	states := slices.Collect(maps.Values(e.states))
	e.mu.Unlock()
	for _, p := range states {
		p.stop(deliver.ErrClosing)
	}
}
