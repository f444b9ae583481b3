package engine

import (
	"lcache/chunker"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/prefetch"
	"lcache/sample"
)

// leftOver is the part of a rank's upcoming chunk that the prefetcher reads, because the scan of the log does not load it.
type leftOver uint8

const (
	leftNothing leftOver = iota // nothing, from this chunk on
	leftAll                     // all of it
	leftMisses                  // samples that the log does not keep
	leftApart                   // samples that apartFrom lists: the order was drawn by importance
	leftOther                   // all of it: the log is in the order of another job
)

// upcomingView is the input of upcomingView.decide, at one moment. Every case is a paragraph of testdata/upcoming.txt.
type upcomingView struct {
	isKnown  bool // the job exists, and the epoch's order is known
	inPlace  bool // nothing scans the log: samples stay in place
	hasRank  bool // the rank is one of the job's
	owns     bool // the job owns the log's order, or the rank is served as the owner is
	drawn    bool // by importance
	inWindow bool // with owns: the scan loads the epoch's samples that the log keeps for the rank
	ahead    int  // with owns: how many epochs after the one that the rank comes to next
	misses   bool // the ring has memory for samples that the log does not keep
}

// decide returns the part that the prefetcher must read.
func (v *upcomingView) decide() leftOver {
	switch {
	case !v.isKnown:
		return leftNothing
	case v.inPlace || !v.hasRank:
		return leftAll
	case !v.owns:
		return leftOther
	case v.ahead > 1 || v.drawn && v.ahead > 0: // samples would be evicted before use and read again, or the scan may load all of them
		return leftNothing
	case v.inWindow && v.drawn:
		return leftApart
	case v.inWindow && !v.misses:
		return leftNothing
	case v.inWindow:
		return leftMisses
	}
	return leftAll
}

// upcomingChunk returns the chunk at a position, and the part of it that the prefetcher must read. It returns false if the prefetcher has nothing to read
// from there on. shareRanks notifies the prefetcher when that changes.
func (e *Engine) upcomingChunk(at deliver.Position) (c prefetch.Upcoming, ok bool) {
	e.mu.Lock()
	j, p, v := e.upcomingView(at)
	left := v.decide()
	if v.inWindow && v.ahead == 0 {
		j.ranks[at.Rank].inWindow = true // shareRanks notifies the prefetcher when this ends
	}
	e.mu.Unlock()
	if left == leftNothing {
		return c, false
	}
	if c, ok = e.chunkAt(j, at); !ok {
		return c, false
	}
	c.Near = substitutesLow(p) && p.Draws()
	isMiss := func(index sample.Index) bool { return !e.keeps(index) }
	switch left {
	case leftMisses:
		c.Left = isMiss
	case leftApart:
		e.mu.Lock()
		apart, known := e.apart(at.Epoch, c.Content)
		e.mu.Unlock()
		if !known {
			c.Left = isMiss
			break
		}
		c.Left = func(index sample.Index) bool { return apart[index] }
		if opportunistic := p.opportunistic.Of(at.Epoch); opportunistic != nil {
			c.Opportunistic = opportunistic
		}
	case leftOther:
		e.mu.Lock()
		c.Scanning = e.anyInWindow()
		e.mu.Unlock()
	}
	return c, true
}

// laterChunk returns the chunk at a position of another job's rank, while the window serves the log's owner. The prefetcher notes the chunk, but does
// not list it.
func (e *Engine) laterChunk(at deliver.Position) (c prefetch.Upcoming, ok bool) {
	e.mu.Lock()
	j, _, v := e.upcomingView(at)
	scanning := v.decide() == leftOther && e.anyInWindow()
	e.mu.Unlock()
	if !scanning {
		return c, false
	}
	c, ok = e.chunkAt(j, at)
	c.Scanning = true
	return c, ok
}

// chunkAt returns the samples of the chunk at a position, and the position of the next one. It returns false if the order is not known.
func (e *Engine) chunkAt(j *job, at deliver.Position) (c prefetch.Upcoming, ok bool) {
	list, chunks := e.chunkList(j, at.Rank, at.Epoch)
	if list == nil {
		return c, false
	}
	c.Next = at.JobRank().At(at.Epoch, at.Batch+1)
	if c.Next.Batch >= list.Len() {
		c.Next = at.JobRank().At(at.Epoch+1, 0)
	}
	if at.Batch < list.Len() {
		c.CM = list.CM(chunks, at.Batch)
	}
	return c, true
}

// upcomingViewreturns the input of decide for an upcoming chunk, with the rank's job and the job's importance. e.mu is held.
func (e *Engine) upcomingView(at deliver.Position) (j *job, p *important, v upcomingView) {
	j = e.jobs[at.Job]
	if j == nil || !j.schedule.IsKnown(at.Epoch) {
		return j, nil, v
	}
	r := j.ranks[at.Rank]
	p = j.importance.Load()
	v = upcomingView{isKnown: true, inPlace: e.relayout.lent, hasRank: r != nil, owns: j == e.owner, drawn: p != nil, misses: e.cache.Sizing.Miss > 0}
	if v.hasRank && !v.inPlace && e.isLaidOutFor(j, at.Epoch) {
		now := e.view()
		v.inWindow, v.ahead = e.isInWindow(&now, j, r, at.Epoch), at.Epoch-j.at(r)
		v.owns = v.owns || v.inWindow
	}
	return j, p, v
}

// apart calls apartFrom for the log of an epoch. known is false if no such log has an epoch layout. e.mu is held.
func (e *Engine) apart(epoch int, content []sample.Index) (apart map[sample.Index]bool, known bool) {
	l := e.cur
	if l == nil || l.Epoch != epoch {
		l = e.tgt
	}
	if l == nil || l.Epoch != epoch || l.Layout == nil {
		return nil, false
	}
	return apartFrom(l.Layout, content, e.fetcher.Held.Load().Has), true
}

// apartFrom lists the samples of a chunk that the scan does not load in time and that memory does not hold: samples that the log does not deliver, and
// later uses of samples.
//
// A sample is in the segment of its first use. First uses of a chunk are in its last segment, or in the segment before if the chunk crosses a boundary.
// A sample in an earlier segment was used before, and its slot may be evicted by now. If a chunk crosses several boundaries, some first uses are listed
// as well, and are read twice.
func apartFrom(layout *chunker.EpochLayout, content []sample.Index, isHeld func(sample.Index) bool) (apart map[sample.Index]bool) {
	last := -1
	for _, index := range content {
		if seg, ok := layout.Delivers(index); ok {
			last = max(last, seg)
		}
	}
	for _, index := range content {
		seg, ok := layout.Delivers(index)
		isLaterUse := layout.Repeats && seg < last-1
		if ok && !isLaterUse || isHeld(index) {
			continue
		}
		if apart == nil {
			apart = map[sample.Index]bool{}
		}
		apart[index] = true
	}
	return apart
}
