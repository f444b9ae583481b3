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
	p.allHere = allHere
	fresh := p.runs[rank] != run
	if fresh && p.joins[rank] { // another training: where the ranks of the last one were says nothing
		clear(p.at)
		clear(p.heard)
		clear(p.passed)
		clear(p.joins)
		maps.DeleteFunc(p.given, func(epoch int, _ bool) bool { return epoch < p.epoch-1 }) // it may begin with one of these, from which nothing is left but the order
	}
	p.joins[rank] = true
	p.runs[rank] = run
	if _, known := p.at[rank]; !known && p.isOurs(rank) {
		p.at[rank], p.heard[rank] = p.epoch, time.Now()
	}
	if fresh {
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

// progress is what a rank said of an epoch. That of the lowest rank counts.
type progress struct {
	importance.Progress
	by int
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
	if said.Epoch >= p.epoch && said.Epoch <= p.epoch+1 {
		if before, some := p.says[said.Epoch]; !some || rank <= before.by {
			p.says[said.Epoch] = progress{said, rank}
		}
		if unstable > 0 && p.lookBegan.IsZero() {
			p.lookBegan = time.Now()
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
		queue, stopped := append(p.queue, p.behind...), p.stopped
		p.queue, p.behind, p.queued, p.gathering = nil, nil, 0, false
		to, wait := p.next() // whoever asked for it has sent its observations before
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
		if to >= 0 {
			p.advance(to)
			continue
		}
		if len(queue) > 0 {
			p.tell()
		}
		late.Reset(p.giveAgain(wait))
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
	for epoch := range p.passed { // a short epoch whose order was known may be over before its boundary is made
		if to >= 0 && epoch > p.epoch && epoch < to {
			to = epoch
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
	p.warnAbsent(to)
	p.mu.Lock()
	p.version++
	says := p.says[p.epoch].Progress
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
	if looked && !p.lookBegan.IsZero() {
		p.lookTook = time.Since(p.lookBegan)
	}
	p.lookBegan = time.Time{}
	back := to < p.epoch
	p.err, p.due = err, time.Time{}
	if err == nil {
		p.epoch = p.state.Epoch()
		maps.DeleteFunc(p.passed, func(epoch int, _ bool) bool { return epoch <= p.epoch })
		maps.DeleteFunc(p.says, func(epoch int, _ progress) bool { return epoch < p.epoch })
	}
	for rank, at := range p.at {
		if err != nil { // those that wait are told, and may ask again
			p.at[rank] = p.epoch
		} else if (at < to || back && at > to) && time.Since(p.heard[rank]) >= p.e.opts.LateEpoch { // it may be gone, or has joined and not asked yet; it is heard of again when it asks
			delete(p.at, rank)
			delete(p.heard, rank)
		} else if at < to && !p.given[at] {
			p.at[rank] = to
		} else if at > to {
			p.due = time.Now().Add(p.late())
		}
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
