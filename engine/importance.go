package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"lcache/cache"
	"lcache/deliver"
	"lcache/drawn"
	"lcache/importance"
	"lcache/internal/importance/memory"
	"lcache/internal/serve/status"
	"lcache/logfile"
)

// An important is the importance of one job: one goroutine, its worker, owns the state, takes observations, and makes the boundaries between epochs. The
// orders that it draws are given to the job's schedule, as if they were pushed. Requests wait for it only at an epoch's beginning, for that epoch's order.
type important struct {
	e      *Engine
	j      *job
	config drawn.Config
	world  int
	room   *holding

	state *drawn.State  // the worker's alone; weights and S are read under stateMu
	file  *drawn.Saver  // of the state
	high  *memory.High  // what it keeps in memory
	along *memory.Along // what was read along with others; nil: nothing is
	drawn atomic.Bool   // an epoch that was drawn is known
	packs *packaging    // nil: its L-samples stay where they are
	ready chan struct{} // closed when the worker has ended
	ended chan struct{} // closed when all that the session had is given back

	stateMu sync.Mutex // held while the state changes, or is read by others than the worker

	mu        sync.Mutex // guards the fields that follow
	queue     []queued   // for the worker, in the order in which they came
	behind    []queued   // what came when the queue was full, each once
	queued    int64      // bytes of it
	gathering bool       // the worker is woken for them in a while
	positions positions
	foretold  int                // the epoch whose order the schedule was told in part; -1: none
	given     map[int]bool       // the epochs whose orders the schedule has
	two       map[int]*twoOrders // by epoch in which others are served in place of some
	changed   chan struct{}      // closed when given changes, or err
	err       error              // why there are no more orders
	giveErr   error              // why an order that was drawn is not given
	giveTried time.Time          // when it failed
	stopped   bool
	dropped   int64  // observations that came too fast, here or in a client
	refused   Unsent // by clients

	// Of the file, under mu.
	version      int64                // of the state: grows at each boundary
	savedVersion int64                // that the file has
	fileLate     bool                 // the file hangs: no order waits for it
	unsaved      map[int]unsavedOrder // by epoch

	wake                chan struct{}
	status              atomic.Pointer[status.Importance]
	undelivered, missed int64            // of the status; the worker's
	loaded, loads       int64            // of the status: bytes that the newest plan loads at once, units that all plans load; the worker's
	looked              bool             // at the unstable samples, since the last boundary; the worker's
	shape               importance.Shape // of the epoch shapeOf; the worker's
	shapeOf             int
	early               []importance.Observation // of the epoch after the one that is trained; the worker's
	earlyBytes          int64
}

// A queued thing is an observation, a rank whose training process is a new one, or word that nodes are of another network.
type queued struct {
	seen      *importance.Observation // nil: a rank has begun
	bytes     int64
	restarted uint16
	changed   bool
}

// mostQueued bounds the observations that wait for the worker, in bytes. It is woken for gatherBytes of them, or gatherTime after the first: to wake it for each one
// takes longer than to note it.
const (
	mostQueued  = 32 << 20
	gatherBytes = 256 << 10
	noteBytes   = 256 // of what is not an observation
	gatherTime  = 20 * time.Millisecond
)

// Importance begins to draw the orders of a job by importance, as a client's text asks. run names the client's process. The same again changes nothing; something else
// is refused.
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
	c, err := drawn.Parse(text, drawn.Defaults{Cache: cacheNotGiven, Seed: job.Seed, BatchSize: job.BatchSize, WorldSize: max(job.World, 1), DropLast: job.DropLast, Lag: lag})
	if err != nil {
		return ImportanceInfo{}, &deliver.ArgumentError{Reason: err.Error()}
	}
	here, err := allHere(text, c.WorldSize)
	if err != nil {
		return ImportanceInfo{}, err
	}
	if j.schedule.Replays() && (j.schedule.World() != c.WorldSize || job.BatchSize != c.BatchSize) {
		return ImportanceInfo{}, &deliver.ArgumentError{Reason: fmt.Sprintf("importance: a world of %d ranks with batches of %d, and this server's recipe has %d with %d: give the same",
			c.WorldSize, c.BatchSize, j.schedule.World(), job.BatchSize)}
	}
	if e.cache.Manifest.Len() == 0 {
		return ImportanceInfo{}, &deliver.ArgumentError{Reason: "importance: the dataset has no samples"}
	}
	p, err := e.importanceWithin(ctx, j, c)
	if err != nil {
		return ImportanceInfo{}, err
	}
	p.joined(rank, run, here)
	return ImportanceInfo{Name: c.Name, Lag: c.Lag, Seed: fmt.Sprint(c.Seed), Length: int64(p.status.Load().EpochLength), WorldSize: c.WorldSize, BatchSize: c.BatchSize, Ignored: c.Ignored}, nil
}

// cacheNotGiven marks a configuration whose cache= was left out.
const cacheNotGiven = -1

// defaultCache returns the memory of a job that was given no cache=: what --memory leaves, without a part for packages or samples that are read along. It warns if no sample fits.
func (e *Engine) defaultCache(c drawn.Config) int64 {
	left := max(e.spareMemory(), 0)
	n := left
	if c.Substitute == importance.Low {
		n = e.besidePackages(left)
	} else if e.readsAlong(c) {
		n -= left / alongShare
	}
	if mean := int64(e.cache.Manifest.Bytes()) / int64(e.cache.Manifest.Len()); n < mean {
		e.cache.Logger.Warn("importance keeps no sample in memory: --memory and other jobs leave less than one sample needs; pass cache= to every job, or raise --memory", "name", c.Name, "bytes", n, "sample_bytes", mean)
	}
	return n
}

// ImportanceInfo is what a client is told of the importance that it asked for.
type ImportanceInfo struct {
	Name      string `json:"name"`
	Lag       string `json:"lag"`
	Seed      string `json:"seed"`
	Length    int64  `json:"epoch_length"`
	WorldSize int    `json:"world_size"`
	BatchSize int    `json:"batch_size"`

	Ignored []string `json:"ignored,omitempty"` // parameters that were given and have no effect
}

// importanceWithin is importanceOf within a request's time: it reads files, and a disk may hang.
func (e *Engine) importanceWithin(ctx context.Context, j *job, c drawn.Config) (*important, error) {
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
		return nil, &deliver.TimeoutError{Waited: e.deliver.Timeout(), For: "the file of importance " + c.Name + " in " + e.cache.Dirs[0] + ": look at the disk (dmesg)"}
	case err != nil:
		return nil, err // importanceOf may not have ended
	}
	return p, nil
}

// errNameTaken answers a job whose importance ended while none of its clients was connected.
var errNameTaken = &deliver.ArgumentError{Reason: "importance: another job took over the name of this job's while none of its clients was connected: call job.importance again, with another name="}

// importanceOf returns the importance of a job. It is a new one if the job has none, or if another job took over the name while none of this job's clients was connected. It has the turn importing.
func (e *Engine) importanceOf(j *job, c drawn.Config) (*important, error) {
	if p := j.importance.Load(); p != nil && !p.isStopped() {
		if c.Cache == cacheNotGiven {
			c.Cache = p.config.Cache
		}
		if differs := p.config.Differs(c); differs != "" {
			return nil, &deliver.ArgumentError{Reason: "importance: this job asked for something else before: " + differs}
		}
		return p, nil
	}
	e.mu.Lock()
	other, closing, over := e.states[c.Name], e.ctx.Err() != nil, e.jobs[j.number] != j
	used := other != nil && (other.j.token == "" || other.j.users > 0)
	e.mu.Unlock()
	switch {
	case closing:
		return nil, deliver.ErrClosing
	case over:
		return nil, errJobOver
	case used:
		return nil, &deliver.ArgumentError{Reason: fmt.Sprintf("importance: another job of this server uses the name %q: give name=", c.Name)}
	case other != nil:
		other.stop(errNameTaken)
	}
	h, err := e.hold(c)
	if err != nil {
		return nil, err
	}
	if c.Cache == cacheNotGiven {
		c.Cache = e.defaultCache(c)
	}
	if err := h.keepCache(c); err != nil {
		h.giveBack()
		return nil, err
	}
	if err := e.takeDisk(c.Name); err != nil {
		h.giveBack()
		return nil, err
	}
	p, err := e.newImportant(j, c, h)
	if err != nil {
		h.giveBack()
		e.giveBackDisk(c.Name)
		return nil, err
	}
	e.holdBy(p.high.Held(), nil)
	if p.along != nil {
		e.holdBy(p.along.Held(), nil)
	}
	e.mu.Lock()
	if e.states == nil {
		e.states = map[string]*important{}
	}
	e.states[c.Name] = p
	over = e.jobs[j.number] != j // else the job's end finds the session
	j.importance.Store(p)
	e.mu.Unlock()
	if over {
		p.stop(errJobOver)
		return nil, errJobOver
	}
	return p, nil
}

// newImportant restores or begins the state of a job, gives the schedule the orders that are known, and starts the worker.
func (e *Engine) newImportant(j *job, c drawn.Config, h *holding) (*important, error) {
	m := e.cache.Manifest
	data := drawn.Dataset{Fingerprint: m.Fingerprint().String(), Labels: m.Labels(), Sizes: m.Sizes()}
	path := e.statePath(c.Name)
	state, err := drawn.Open(c, path, data, j.schedule.Replays(), e.cache.Logger)
	if err != nil {
		return nil, fmt.Errorf("importance %s: %w", c.Name, err)
	}
	p := &important{e: e, j: j, config: c, room: h, world: c.WorldSize, state: state, ready: make(chan struct{}), ended: make(chan struct{}),
		given: map[int]bool{}, two: map[int]*twoOrders{}, changed: make(chan struct{}), wake: make(chan struct{}, 1), shapeOf: -1, foretold: -1, version: 1, unsaved: map[int]unsavedOrder{}}
	p.positions = positions{world: c.WorldSize, silence: e.opts.LateEpoch, published: func(epoch int) bool { return p.given[epoch] }, epoch: state.Epoch(), ranks: map[int]*rankState{}}
	p.file = drawn.NewSaver(path, e.cache.Store.Trace(), e.cache.Logger, p.saved)
	p.file.Room = p.roomToSave
	if p.high, err = e.newHigh(c); err != nil {
		state.Close()
		return nil, fmt.Errorf("importance %s: %w", c.Name, err)
	}
	if c.Policy == "paper" { // the others decide by orders and targets
		state.OnObserve = p.high.Observe
	}
	state.Serve = p.plan
	if c.Policy != "next-use" { // which goes by the greatest values across an epoch's end
		state.Held = p.high.Held().Set
	}
	state.OnNode = p.high.OnNode()
	if err := state.Advance(state.Epoch(), importance.Progress{}); err != nil {
		state.Close()
		p.high.Close()
		return nil, fmt.Errorf("importance %s: %w", c.Name, err)
	}
	if substitutesLow(p) {
		if p.packs, err = e.newPackaging(p, e.spareMemory()); err != nil {
			state.Close()
			p.high.Close()
			return nil, fmt.Errorf("importance %s: %w", c.Name, err)
		}
	}
	if e.readsAlong(c) {
		if p.along, err = e.newAlong(e.spareMemory()); err != nil {
			p.packs.Close()
			state.Close()
			p.high.Close()
			return nil, fmt.Errorf("importance %s: %w", c.Name, err)
		}
	}
	h.keep(p.packs.Memory())
	if p.along != nil {
		h.keep(p.along.Total())
	}
	before := e.epochsOf(j)
	j.schedule.Withhold()
	j.schedule.CountIn(h.orders)
	p.beginMemory()
	p.give()
	for epoch := range before {
		if !p.given[epoch] {
			e.reordered(j, epoch, true)
		}
	}
	p.tell()
	p.save()
	go p.work()
	return p, nil
}

// epochsOf lists the epochs that a job's lines and Logfiles are of.
func (e *Engine) epochsOf(j *job) map[int]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	epochs := map[int]bool{}
	if j != e.owner {
		return epochs
	}
	for epoch := range e.layouts {
		epochs[epoch] = true
	}
	for _, l := range e.logs {
		if l.Epoch >= 0 {
			epochs[l.Epoch] = true
		}
	}
	return epochs
}
