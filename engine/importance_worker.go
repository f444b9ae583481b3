package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"lcache/deliver"
	"lcache/importance"
)

// joined notes a rank that takes part. A new process of it counts its batches from 0. allHere says that all ranks are known to run on this machine.
func (p *important) joined(rank int, run string, allHere bool) {
	p.mu.Lock()
	restarted, again := p.positions.join(time.Now(), rank, run, allHere)
	if again { // it may begin with an epoch of which nothing is left but the order
		maps.DeleteFunc(p.given, func(epoch int, _ bool) bool { return epoch < p.positions.epoch-1 })
	}
	if restarted {
		p.note(queued{restarted: uint16(rank)})
	}
	p.mu.Unlock()
	p.nudge()
}

// note queues what a client says without an observation. When the queue is full, it comes behind all observations, once. p.mu is held.
func (p *important) note(q queued) {
	if q.bytes = noteBytes; p.queued+noteBytes <= mostQueued && p.e.observed.Take(noteBytes) {
		p.queue, p.queued = append(p.queue, q), p.queued+noteBytes
	} else if q.bytes = 0; !slices.Contains(p.behind, q) {
		p.behind = append(p.behind, q)
	}
}

func (p *important) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Observe takes an observation of a job without importance for nothing, and any other one for later. It never waits.
func (e *Engine) Observe(number int, o importance.Observation) {
	j := e.lookUp(number)
	if j == nil {
		return
	}
	if p := j.importance.Load(); p != nil {
		p.observe(o)
	}
}

// observe queues an observation. Beyond a limit, the job's or that of all jobs, they are dropped. Only the papers' policies are to know of it at once.
func (p *important) observe(o importance.Observation) {
	bytes := int64(4*(len(o.Index)+len(o.Loss)+len(o.Neighbours)) + 2*(len(o.Same)+len(o.Other)) + 256)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped:
		return
	case p.queued+bytes > mostQueued || !p.e.observed.Take(bytes):
		p.dropped++
		return
	}
	p.queue = append(p.queue, queued{seen: &o, bytes: bytes})
	p.queued += bytes
	switch {
	case p.config.Policy == "paper" || p.queued >= gatherBytes:
		p.nudge()
	case !p.gathering:
		p.gathering = true
		time.AfterFunc(gatherTime, p.nudge)
	}
}

// do does what is queued. It reports whether the memory of it is kept. p.stateMu is held.
func (p *important) do(q queued) (kept bool) {
	switch o := q.seen; {
	case q.changed:
		p.high.ForgetNodes()
	case o == nil:
		p.state.Restarted(q.restarted)
	case int64(o.Epoch) != int64(p.state.Epoch())+1:
		p.take(*o)
	case p.earlyBytes+q.bytes <= mostQueued: // of a rank that is ahead: the epoch before is not over for the others
		p.early, p.earlyBytes = append(p.early, *o), p.earlyBytes+q.bytes
		return true
	default:
		p.mu.Lock()
		p.dropped++
		p.mu.Unlock()
	}
	return false
}

// take gives the state an observation.
func (p *important) take(o importance.Observation) {
	p.undelivered += p.high.Undelivered(o.Index)
	p.looked = p.looked || o.Kind == importance.Reevaluated && int64(o.Epoch) == int64(p.state.Epoch()) // one that is late was for the boundary before
	p.state.Observe(o)
}

// Unsent are observations that a client did not send since it last said so: Shape counts whole ones, NotFinite and Dimension samples. Changed says that embeddings have another length from now on.
type Unsent struct {
	Dropped, Shape, NotFinite, Dimension int64
	Changed                              bool
}

// EndEpoch notes that a rank has ended an epoch, and how training went. It never waits.
func (e *Engine) EndEpoch(number, rank int, said importance.Progress, unsent Unsent) {
	j := e.lookUp(number)
	if j == nil {
		return
	}
	if p := j.importance.Load(); p != nil {
		p.endEpoch(rank, said, unsent)
	}
}

func (p *important) endEpoch(rank int, said importance.Progress, unsent Unsent) {
	unstable := p.status.Load().SSize
	p.mu.Lock()
	p.dropped += unsent.Dropped
	p.refused.Shape += unsent.Shape
	p.refused.NotFinite += unsent.NotFinite
	p.refused.Dimension += unsent.Dimension
	if unsent.Changed || unsent.Dimension > 0 || said.Off { // embeddings of another network: neighbours are to be found again
		p.note(queued{changed: true})
	}
	p.positions.ends(time.Now(), rank, said, unstable > 0)
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
		queue, stopped := append(p.queue, p.behind...), p.stopped
		p.queue, p.behind, p.queued, p.gathering = nil, nil, 0, false
		step := decideBoundary(time.Now(), p.positions.view(p.late())) // whoever asked for it has sent its observations before
		p.mu.Unlock()
		done := int64(0)
		p.stateMu.Lock()
		for _, q := range queue {
			if stopped || !p.do(q) {
				done += q.bytes
			}
		}
		if stopped {
			done += p.earlyBytes
			p.early, p.earlyBytes = nil, 0
		}
		p.stateMu.Unlock()
		p.e.observed.Give(done)
		if stopped {
			return
		}
		if step.to >= 0 {
			p.advance(step.to)
			continue
		}
		if len(queue) > 0 {
			p.tell()
		}
		wait := time.Hour
		if !step.until.IsZero() {
			wait = time.Until(step.until)
		}
		late.Reset(p.giveAgain(wait))
		select {
		case <-p.wake:
		case <-late.C:
		}
	}
}

// advance makes the boundary before an epoch.
func (p *important) advance(to int) {
	p.warnAbsent(to)
	p.mu.Lock()
	p.version++
	says := p.positions.progress()
	says.Epochs = p.e.cache.Record.Job.Epochs
	p.mu.Unlock()
	p.high.EndEpoch()
	p.stateMu.Lock()
	if len(p.state.Unstable()) > 0 && !p.looked {
		p.missed++
	}
	looked := p.looked
	p.looked = false
	err := p.state.Advance(to, says)
	for _, o := range p.early {
		p.take(o)
	}
	p.e.observed.Give(p.earlyBytes)
	p.early, p.earlyBytes = nil, 0
	p.stateMu.Unlock()
	if err == nil {
		p.tell() // first: who gets the new order finds what it was drawn from
		p.beginMemory()
		p.give()
	} else {
		p.e.cache.Logger.Error("the next epoch's order can't be drawn", "name", p.config.Name, "epoch", to, "err", err)
		err = fmt.Errorf("the order of epoch %d can't be drawn: %w", to, err)
	}
	p.mu.Lock()
	if p.err = err; err == nil {
		p.positions.made(time.Now(), to, p.state.Epoch(), looked)
	} else {
		p.positions.failed(time.Now(), looked)
	}
	p.tellWaiters()
	p.mu.Unlock()
	if err == nil {
		p.save()
	}
}

// stop ends the session and waits until its name is free again. Requests get why as their error. The file stays.
func (p *important) stop(why error) {
	p.mu.Lock()
	first := !p.stopped
	if first {
		p.stopped, p.err = true, why
		p.tellWaiters()
	}
	p.mu.Unlock()
	if first {
		p.nudge()
		<-p.ready
		p.giveBack()
		close(p.ended)
	}
	<-p.ended
}

// isStopped reports whether the session has ended, or is about to.
func (p *important) isStopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped
}

// giveBack frees the memory of a session whose worker has ended, then its name when the file is written.
func (p *important) giveBack() {
	p.drawn.Store(false)
	p.packs.Close()
	p.stateMu.Lock()
	p.state.Close()
	p.stateMu.Unlock()
	p.e.holdBy(nil, p.high.Held())
	p.high.Close()
	if p.along != nil {
		p.e.holdBy(nil, p.along.Held())
		p.along.Close()
	}
	p.file.Wait()
	p.dropTwo(func(int) bool { return true })
	p.j.schedule.CountIn(p.e.orders)
	p.room.giveBack()
	p.e.giveBackDisk(p.config.Name)
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	delete(p.e.states, p.config.Name)
}

// endImportance ends all sessions.
func (e *Engine) endImportance() {
	e.importing <- struct{}{} // nobody begins one meanwhile
	defer func() { <-e.importing }()
	e.mu.Lock()
	states := slices.Collect(maps.Values(e.states))
	e.mu.Unlock()
	for _, p := range states {
		p.stop(deliver.ErrClosing)
	}
}
