package engine

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lcache/cache"
	"lcache/deliver"
	"lcache/drawn"
	"lcache/importance"
	"lcache/sample"
	"lcache/schedule"
)

// An important is the importance of one job: one goroutine, its worker, owns the state, takes observations, and makes the boundaries between epochs. The
// orders that it draws are given to the job's schedule, as if they were pushed. Requests wait for it only at an epoch's beginning, for that epoch's order.
type important struct {
	e      *Engine
	j      *job
	config drawn.Config
	world  int

	state *drawn.State  // the worker's alone; weights and S are read under stateMu
	ready chan struct{} // closed when the worker has ended

	stateMu sync.Mutex // held while the state changes or is read

	mu      sync.Mutex  // guards the fields that follow
	queue   []func()    // for the worker: observations and ends of epochs, in the order in which they came
	queued  int64       // bytes of observations in it
	at      map[int]int // by rank: the epoch that it is in or asks for
	heard   map[int]time.Time
	runs    map[int]string   // by rank: its training process
	given   map[int]bool     // the epochs whose orders the schedule has
	epoch   int              // that is trained
	due     time.Time        // when the boundary is made at the latest; zero: nobody has come to it
	says    map[int]progress // by epoch
	changed chan struct{}    // closed when given changes, or err
	err     error            // why there are no more orders
	stopped bool
	dropped int64 // observations that came too fast

	wake       chan struct{}
	status     atomic.Pointer[ImportanceStatus]
	shape      importance.Shape // of the epoch shapeOf; the worker's
	shapeOf    int
	early      []importance.Observation // of the epoch after the one that is trained; the worker's
	earlyBytes int64
}

// mostQueued bounds the observations that wait for the worker, in bytes.
const mostQueued = 32 << 20

// Importance begins to draw the orders of a job by importance, as a client's text asks. run names the client's process. The same again changes nothing; something else
// is refused.
func (e *Engine) Importance(number, rank int, run string, text []byte) (ImportanceInfo, error) {
	j := e.lookUp(&deliver.Position{Job: number})
	if j == nil {
		return ImportanceInfo{}, errJobOver
	}
	lag := "0"
	if e.cache.Layout == cache.LayoutLog {
		lag = "1"
	}
	job := e.cache.Record.Job
	c, err := drawn.Parse(text, drawn.Defaults{Cache: 0, Seed: job.Seed, BatchSize: job.BatchSize, WorldSize: max(job.World, 1), DropLast: job.DropLast, Lag: lag})
	if err != nil {
		return ImportanceInfo{}, &deliver.ArgumentError{Reason: err.Error()}
	}
	if j.schedule.Replays() && (j.schedule.World() != c.WorldSize || job.BatchSize != c.BatchSize) {
		return ImportanceInfo{}, &deliver.ArgumentError{Reason: fmt.Sprintf("importance: a world of %d ranks with batches of %d, and this server's recipe has %d with %d: give the same",
			c.WorldSize, c.BatchSize, j.schedule.World(), job.BatchSize)}
	}
	if e.cache.Manifest.Len() == 0 {
		return ImportanceInfo{}, &deliver.ArgumentError{Reason: "importance: the dataset has no samples"}
	}
	p, err := e.importanceOf(j, c)
	if err != nil {
		return ImportanceInfo{}, err
	}
	p.joined(rank, run)
	return ImportanceInfo{Name: c.Name, Lag: c.Lag, Seed: fmt.Sprint(c.Seed), Length: int64(p.status.Load().EpochLength), WorldSize: c.WorldSize, BatchSize: c.BatchSize}, nil
}

// ImportanceInfo is what a client is told of the importance that it asked for.
type ImportanceInfo struct {
	Name      string `json:"name"`
	Lag       string `json:"lag"`
	Seed      string `json:"seed"`
	Length    int64  `json:"epoch_length"`
	WorldSize int    `json:"world_size"`
	BatchSize int    `json:"batch_size"`
}

// importanceOf returns the importance of a job, which is new if the job has none.
func (e *Engine) importanceOf(j *job, c drawn.Config) (*important, error) {
	e.importing.Lock()
	defer e.importing.Unlock()
	if p := j.importance.Load(); p != nil {
		if differs := p.config.Differs(c); differs != "" {
			return nil, &deliver.ArgumentError{Reason: "importance: this job asked for something else before: " + differs}
		}
		return p, nil
	}
	e.mu.Lock()
	other, over := e.states[c.Name], e.ctx.Err() != nil
	used := other != nil && (other.j.token == "" || other.j.users > 0)
	e.mu.Unlock()
	switch {
	case over:
		return nil, deliver.ErrClosing
	case used:
		return nil, &deliver.ArgumentError{Reason: fmt.Sprintf("importance: another job of this server uses the name %q: give name=", c.Name)}
	case other != nil:
		other.stop()
	}
	p, err := e.newImportant(j, c)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	if e.states == nil {
		e.states = map[string]*important{}
	}
	e.states[c.Name] = p
	e.mu.Unlock()
	j.importance.Store(p)
	return p, nil
}

// newImportant restores or begins the state of a job, gives the schedule the orders that are known, and starts the worker.
func (e *Engine) newImportant(j *job, c drawn.Config) (*important, error) {
	m := e.cache.Manifest
	data := drawn.Dataset{Fingerprint: m.Fingerprint().String(), Labels: m.Labels(), Sizes: m.Sizes()}
	state, err := drawn.Open(c, filepath.Join(e.cache.Dirs[0], drawn.FilePrefix+c.Name), data, j.schedule.Replays(), e.cache.Logger)
	if err != nil {
		return nil, fmt.Errorf("importance %s: %w", c.Name, err)
	}
	p := &important{e: e, j: j, config: c, world: c.WorldSize, state: state, ready: make(chan struct{}), at: map[int]int{}, heard: map[int]time.Time{}, runs: map[int]string{},
		given: map[int]bool{}, says: map[int]progress{}, changed: make(chan struct{}), wake: make(chan struct{}, 1), epoch: state.Epoch(), shapeOf: -1}
	if err := state.Advance(state.Epoch(), importance.Progress{}); err != nil {
		state.Close()
		return nil, fmt.Errorf("importance %s: %w", c.Name, err)
	}
	before := e.epochsOf(j)
	j.schedule.Withhold()
	p.give()
	for epoch := range before {
		if !p.given[epoch] {
			e.reordered(j, epoch, true)
		}
	}
	p.tell()
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

// joined notes a rank that takes part. A new process of it counts its batches from 0.
func (p *important) joined(rank int, run string) {
	p.mu.Lock()
	fresh := p.runs[rank] != run
	if fresh && p.runs[rank] != "" { // a training has begun anew: where its ranks were says nothing
		clear(p.at)
		clear(p.heard)
	}
	p.runs[rank] = run
	if _, known := p.at[rank]; !known {
		p.at[rank], p.heard[rank] = p.epoch, time.Now()
	}
	if fresh {
		p.queue = append(p.queue, func() { p.state.Restarted(uint16(rank)) })
	}
	p.mu.Unlock()
	p.nudge()
}

func (p *important) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// note notes that a rank asks for an epoch.
func (p *important) note(rank, epoch int) {
	p.mu.Lock()
	wakes := p.noteLocked(rank, epoch)
	p.mu.Unlock()
	if wakes {
		p.nudge()
	}
}

// noteLocked is note with p.mu held. It reports whether the worker has to look.
func (p *important) noteLocked(rank, epoch int) bool {
	p.heard[rank] = time.Now()
	if p.at[rank] == epoch && epoch <= p.epoch && p.given[epoch] {
		return false
	}
	p.at[rank] = epoch
	if epoch > p.epoch && p.due.IsZero() {
		p.due = time.Now().Add(p.e.opts.LateEpoch)
	}
	return true
}

// await waits until the order of an epoch is known.
func (p *important) await(ctx context.Context, rank, epoch int) error {
	for waited := false; ; waited = true {
		p.mu.Lock()
		if err := p.err; err != nil && (waited || p.stopped) {
			p.mu.Unlock()
			return err
		}
		wakes := p.noteLocked(rank, epoch)
		known, changed := p.given[epoch] || !p.j.schedule.Exists(epoch), p.changed
		p.mu.Unlock()
		if wakes {
			p.nudge()
		}
		if known {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("the order of epoch %d is drawn when the other ranks have ended the epoch before: %w", epoch, ctx.Err())
		}
	}
}

// Observe takes an observation of a job without importance for nothing, and any other one for later. It never waits.
func (e *Engine) Observe(number int, o importance.Observation) {
	j := e.lookUp(&deliver.Position{Job: number})
	if j == nil {
		return
	}
	if p := j.importance.Load(); p != nil {
		p.observe(o)
	}
}

// observe queues an observation. Beyond a limit they are dropped.
func (p *important) observe(o importance.Observation) {
	bytes := int64(4*(len(o.Index)+len(o.Loss)+len(o.Neighbours)) + 2*(len(o.Same)+len(o.Other)) + 256)
	p.mu.Lock()
	switch {
	case p.stopped:
	case p.queued+bytes > mostQueued:
		p.dropped++
	default:
		p.queue = append(p.queue, func() {
			switch ahead := int64(o.Epoch) == int64(p.state.Epoch())+1; { // of a rank that is ahead: the epoch before is not over for the others
			case !ahead:
				p.state.Observe(o)
			case p.earlyBytes+bytes <= mostQueued:
				p.early, p.earlyBytes = append(p.early, o), p.earlyBytes+bytes
			default:
				p.mu.Lock()
				p.dropped++
				p.mu.Unlock()
			}
		})
		p.queued += bytes
	}
	p.mu.Unlock()
	p.nudge()
}

// EndEpoch notes that a rank has ended an epoch, and how training went. It never waits.
func (e *Engine) EndEpoch(number, rank int, said importance.Progress) {
	j := e.lookUp(&deliver.Position{Job: number})
	if j == nil {
		return
	}
	if p := j.importance.Load(); p != nil {
		p.endEpoch(rank, said)
	}
}

// progress is what a rank said of an epoch. That of the lowest rank counts.
type progress struct {
	importance.Progress
	by int
}

func (p *important) endEpoch(rank int, said importance.Progress) {
	unstable := p.status.Load().SSize
	p.mu.Lock()
	if said.Epoch >= p.epoch && said.Epoch <= p.epoch+1 {
		if before, some := p.says[said.Epoch]; !some || rank <= before.by {
			p.says[said.Epoch] = progress{said, rank}
		}
		if unstable == 0 { // else the rank may look at those first, and has ended when it asks for the next epoch
			p.noteLocked(rank, said.Epoch+1)
		}
	}
	p.mu.Unlock()
	p.nudge()
}

// work is the worker: it does what is queued, and makes the boundary when it is time.
func (p *important) work() {
	defer close(p.ready)
	late := time.NewTimer(time.Hour)
	defer late.Stop()
	for {
		p.mu.Lock()
		queue, stopped := p.queue, p.stopped
		p.queue, p.queued = nil, 0
		to, wait := p.next() // whoever asked for it has sent its observations before
		p.mu.Unlock()
		if stopped {
			return
		}
		p.stateMu.Lock()
		for _, do := range queue {
			do()
		}
		p.stateMu.Unlock()
		if to >= 0 {
			p.advance(to)
			continue
		}
		if len(queue) > 0 {
			p.tell()
		}
		late.Reset(wait)
		select {
		case <-p.wake:
		case <-late.C:
		}
	}
}

// next is the epoch that the boundary is to be made before, -1: none now, and how long to wait at most. p.mu is held.
func (p *important) next() (to int, wait time.Duration) {
	to, behind, back := -1, 0, -1
	for _, at := range p.at {
		switch {
		case at > p.epoch:
			if to < 0 || at < to {
				to = at
			}
		case at < p.epoch && !p.given[at]:
			back = at
		default:
			behind++
		}
	}
	switch {
	case back >= 0 && (to < 0 && behind == 0 || p.quiet(back)):
		return back, 0
	case back >= 0:
		return -1, p.e.opts.LateEpoch
	case to < 0:
		p.due = time.Time{}
		return -1, time.Hour
	case behind == 0 || !time.Now().Before(p.due):
		return to, 0
	}
	return -1, time.Until(p.due)
}

// quiet reports whether only ranks that are in an epoch were heard of lately. p.mu is held.
func (p *important) quiet(epoch int) bool {
	for rank, at := range p.at {
		if at != epoch && time.Since(p.heard[rank]) < p.e.opts.LateEpoch {
			return false
		}
	}
	return true
}

// advance makes the boundary before an epoch.
func (p *important) advance(to int) {
	p.mu.Lock()
	says := p.says[p.epoch].Progress
	says.Epochs = p.e.cache.Record.Job.Epochs
	p.mu.Unlock()
	p.stateMu.Lock()
	err := p.state.Advance(to, says)
	for _, o := range p.early {
		p.state.Observe(o)
	}
	p.early, p.earlyBytes = nil, 0
	p.stateMu.Unlock()
	if err == nil {
		p.give()
	} else {
		p.e.cache.Logger.Error("the next epoch's order can't be drawn", "name", p.config.Name, "epoch", to, "err", err)
		err = fmt.Errorf("the order of epoch %d can't be drawn: %w", to, err)
	}
	p.mu.Lock()
	p.err, p.due = err, time.Time{}
	if err == nil {
		p.epoch = p.state.Epoch()
		maps.DeleteFunc(p.says, func(epoch int, _ progress) bool { return epoch < p.epoch })
	}
	for rank, at := range p.at {
		if err != nil { // those that wait are told, and may ask again
			p.at[rank] = p.epoch
		} else if at < to && time.Since(p.heard[rank]) >= p.e.opts.LateEpoch { // it may be gone; it is heard of again when it asks
			delete(p.at, rank)
			delete(p.heard, rank)
		} else if at < to && !p.given[at] {
			p.at[rank] = to
		} else if at > to {
			p.due = time.Now().Add(p.e.opts.LateEpoch)
		}
	}
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	p.tell()
}

// give gives the schedule the orders that the state has and the schedule lacks, and takes back those that the state has forgotten.
func (p *important) give() {
	orders := p.state.Orders()
	p.mu.Lock()
	back := -1
	for epoch := range p.given {
		if orders[epoch] == nil && epoch >= p.state.Epoch() && (back < 0 || epoch < back) {
			back = epoch
		}
	}
	if first := p.state.Epoch(); first < p.epoch {
		back = first
	}
	if back >= 0 {
		for epoch := range p.given {
			if epoch >= back {
				delete(p.given, epoch)
			}
		}
	}
	p.mu.Unlock()
	if back >= 0 {
		p.j.schedule.Retract(back)
		for epoch := range p.e.epochsOf(p.j) {
			if epoch >= back {
				p.e.reordered(p.j, epoch, true)
			}
		}
	}
	for epoch, o := range orders {
		p.mu.Lock()
		has := p.given[epoch]
		p.mu.Unlock()
		if has {
			continue
		}
		if err := p.giveOne(o); err != nil {
			p.e.cache.Logger.Error("a drawn order can't be read", "name", p.config.Name, "epoch", epoch, "err", err)
			continue
		}
		p.mu.Lock()
		p.given[epoch] = true
		p.mu.Unlock()
	}
	p.e.nudge()
}

// giveOne gives the schedule an epoch's order, as the ranks served here read it: rank r has places r, r+W, ….
func (p *important) giveOne(o *drawn.Order) error {
	s := p.j.schedule
	if o.Indices == nil {
		s.Allow(o.Epoch)
	} else {
		order := importance.Striped(o.Indices, p.world, p.config.DropLast)
		for rank := range p.world {
			if !s.IsLocal(rank) || !s.Exists(o.Epoch) {
				continue
			}
			if err := p.push(o.Epoch, rank, batches(order, rank, p.world, p.config.BatchSize, p.config.DropLast)); err != nil {
				return err
			}
		}
	}
	for _, b := range p.e.window.bringers {
		for rank := range p.world {
			b.pushed(p.j, rank, o.Epoch)
		}
	}
	return nil
}

// push pushes an order for the server itself: it holds for all sessions.
func (p *important) push(epoch, rank int, batches [][]sample.Index) error {
	s, by := p.j.schedule, schedule.Pusher{Pid: os.Getpid()}
	if err := s.Claim(by.Pid, rank, 0, func(int) bool { return false }); err != nil {
		return err
	}
	first := p.state.Epoch() - 1
	changed, replaced, err := s.Push(p.e.ctx, by, epoch, rank, batches, func(epoch, _ int) bool { return epoch < first })
	if changed {
		p.e.reordered(p.j, epoch, replaced)
	}
	return err
}

// batches cuts one rank's part of an order.
func batches(order []sample.Index, rank, world, size int, dropLast bool) (out [][]sample.Index) {
	var mine []sample.Index
	for k := rank; k < len(order); k += world {
		mine = append(mine, order[k])
	}
	for batch := range slices.Chunk(mine, size) {
		if len(batch) == size || !dropLast {
			out = append(out, batch)
		}
	}
	return out
}

// stop ends the worker, and gives the state's memory back. The file stays.
func (p *important) stop() {
	p.mu.Lock()
	first := !p.stopped
	p.stopped = true
	if first {
		p.err = deliver.ErrClosing
		close(p.changed)
		p.changed = make(chan struct{})
	}
	p.mu.Unlock()
	p.nudge()
	<-p.ready
	if first {
		p.stateMu.Lock()
		p.state.Close()
		p.stateMu.Unlock()
	}
}

// endImportance stops all workers.
func (e *Engine) endImportance() {
	e.importing.Lock() // nobody begins one meanwhile
	defer e.importing.Unlock()
	e.mu.Lock()
	states := e.states
	e.states = nil
	e.mu.Unlock()
	for _, p := range states {
		p.stop()
	}
}
