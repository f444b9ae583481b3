package prefetch

import (
	"slices"

	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// Chunks lie in the ring, and with Options.Side in side memory as well. What is there and not leased can be given up at any time, which costs
// a second read: for a chunk that is needed earlier, and for a request by index that waits for side memory.

// memory is how many bytes chunks may lie in.
func (r *Prefetcher) memory() int64 {
	if r.side.Load() {
		return r.cache.Staging.MissBytes() + r.cache.Staging.SideBytes()
	}
	return r.cache.Staging.MissBytes()
}

// largestPiece is the most that can be had in one piece.
func (r *Prefetcher) largestPiece() int64 {
	if r.side.Load() {
		return max(r.cache.Staging.MissBytes(), r.cache.Staging.SideBytes())
	}
	return r.cache.Staging.MissBytes()
}

// alloc takes memory for a read, if there is some.
func (r *Prefetcher) alloc(of *prefetch, n int) (*staging.Extent, bool) {
	if x, ok := r.cache.Staging.Alloc(staging.Miss, of.index, n); ok || !r.side.Load() {
		return x, ok
	}
	return r.f.TrySide(int64(n))
}

// wait waits until there are n bytes of memory for some prefetches, and ready reports that they may be begun. pause is called before each wait. wait returns nil
// when no chunk wants the samples any longer, when they never fit, and when a rank asks for a chunk of which something is still to be begun on the path: the memory may be full of
// what is needed later, and only the reads of that chunk may take it. Then the prefetches are listed again. inPieces says that a rank waits for several prefetches, and that there is memory
// for each of them but not for all in one piece.
func (r *Prefetcher) wait(p sample.Origin, n int, prefetches []*prefetch, ready func() bool, pause func()) (x *staging.Extent, inPieces bool) {
	defer func() {
		for _, other := range r.paths { // they may have let these prefetches go first
			if other.from != p {
				r.wakeUp(int(other.from))
			}
		}
	}()
	for r.ctx.Err() == nil {
		changed := r.cache.Staging.Changed()
		x, got := r.allot(p, n, prefetches, ready)
		switch got {
		case allotted:
			r.tellIdle(false)
			return x, false
		case allotInPieces:
			return nil, true
		case allotAgain:
			continue
		case allotFull:
			r.tellIdle(true)
		}
		if got == allotUnwanted {
			break
		}
		pause()
		if got == allotFull && r.giveWay(p, prefetches) {
			return nil, false
		}
		select {
		case <-changed:
		case <-r.wakes[p]:
		case <-r.ctx.Done():
		}
	}
	for _, pf := range prefetches {
		r.failed(pf)
	}
	return nil, false
}

// allotment is what became of an attempt to take memory.
type allotment uint8

const (
	allotted      allotment = iota // there was room
	allotUnwanted                  // no chunk wants the samples
	allotNotYet                    // they may not be begun yet
	allotAgain                     // a chunk was freed for them: the next attempt may find room
	allotInPieces                  // there is room for each of them, and not for all in one piece, and a rank waits for them
	allotFull                      // there is no room
)

// allot tries to take n bytes for some prefetches: see wait.
func (r *Prefetcher) allot(p sample.Origin, n int, prefetches []*prefetch, ready func() bool) (*staging.Extent, allotment) {
	r.mu.Lock()
	if int64(n) > r.largestPiece() { // a request will read it by index
		for _, pf := range prefetches {
			pf.leaveChunks()
		}
	}
	wanted := slices.ContainsFunc(prefetches, func(pf *prefetch) bool { return len(pf.chunks) > 0 })
	may, spared := ready(), int64(0)
	if wanted {
		spared = r.spared(p, prefetches)
	}
	r.mu.Unlock()
	switch {
	case !wanted:
		return nil, allotUnwanted
	case !may:
		return nil, allotNotYet
	case spared == 0 || r.free() >= spared+int64(n):
		if x, ok := r.alloc(prefetches[0], n); ok {
			return x, allotted
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.squeeze(prefetches):
		return nil, allotAgain
	case len(prefetches) > 1 && isUrgent(prefetches) && r.free() >= int64(n):
		return nil, allotInPieces
	}
	return nil, allotFull
}

// leaveChunks takes a prefetch that never fits off its chunks, so that its bytes do not count as taken. Prefetcher.mu is held.
func (pf *prefetch) leaveChunks() {
	for _, k := range pf.chunks {
		k.prefetches = slices.DeleteFunc(k.prefetches, func(other *prefetch) bool { return other == pf })
		k.left--
		k.bytes -= int64(fetch.SideBytes(pf.size))
		k.of.bytes -= int64(fetch.SideBytes(pf.size))
	}
	pf.chunks = nil
}

// spared returns how many bytes the other paths still need for earlier chunks of the same rank: memory goes to what is needed first. r.mu is held.
func (r *Prefetcher) spared(p sample.Origin, prefetches []*prefetch) (n int64) {
	first := firstWanting(prefetches)
	for _, other := range r.paths {
		if other.from != p {
			n += r.neededBefore(first, other.from)
		}
	}
	return n
}

// neededBefore returns how many bytes a path still needs for chunks of a rank that come before one of them. r.mu is held.
func (r *Prefetcher) neededBefore(first *chunk, p sample.Origin) (n int64) {
	for _, pf := range r.inHand[p] {
		if pf.state == prefetchTaken && pf.of == first.of && len(pf.chunks) > 0 && pf.neededBy().at.Before(first.at) {
			n += int64(fetch.SideBytes(pf.size))
		}
	}
	if first.of.firstTodo(p) == nil {
		return n
	}
	for _, k := range first.of.chunks[first.of.begun[p]:] {
		if !k.at.Before(first.at) {
			break
		}
		for _, pf := range k.todo[p] {
			n += int64(fetch.SideBytes(pf.size))
		}
	}
	return n
}

// firstWanting returns the first of the chunks that want some prefetches; nil: none does.
func firstWanting(prefetches []*prefetch) (first *chunk) {
	for _, pf := range prefetches {
		for _, k := range pf.chunks {
			if first == nil || k.at.Before(first.at) {
				first = k
			}
		}
	}
	return first
}

// free returns how many bytes of the memory are not taken.
func (r *Prefetcher) free() int64 {
	n := r.cache.Staging.Free(staging.Miss)
	if r.side.Load() {
		n += r.cache.Staging.Free(staging.Side)
	}
	return n
}

// tellIdle tells Options.Idle of a change.
func (r *Prefetcher) tellIdle(idle bool) {
	if r.o.Idle != nil && r.idle.Swap(idle) != idle {
		r.o.Idle(idle)
	}
}

// makeRoom unlists ranks' chunks beyond their share, which has become smaller: there is one rank more than expected, or less memory. r.mu is held.
func (r *Prefetcher) makeRoom() {
	r.shareOut()
	for _, c := range r.ranks {
		r.trimLater(c)
		for len(c.chunks) > 1 && c.bytes > c.share {
			r.unlist(c)
		}
	}
}

// unlist removes the last chunk that was listed for a rank. The chunk is listed again in its turn.
func (r *Prefetcher) unlist(c *rankCursor) {
	last := len(c.chunks) - 1
	if at := c.chunks[last].at; at.Before(c.next) {
		c.next = at
	}
	r.pass(c, last)
}

// squeeze frees a chunk when a chunk that a rank asks for now has no room. It frees a chunk that is needed later (a read of several samples may
// take more memory than is counted for each), or a chunk of an epoch that its rank has left. r.mu is held.
func (r *Prefetcher) squeeze(needy []*prefetch) bool {
	return isUrgent(needy) && r.giveUpOne()
}

// giveWay lists prefetches again if they are for later chunks than one that a rank asks for, of which something is still to be begun on the path.
func (r *Prefetcher) giveWay(p sample.Origin, prefetches []*prefetch) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isUrgent(prefetches) || !r.hasUrgent(p) {
		return false
	}
	for _, pf := range prefetches {
		r.putBack(pf, p)
	}
	r.gaveWay[p] = true
	return true
}

// hasUrgent reports whether something is to be begun on a path for a chunk that a rank asks for. r.mu is held.
func (r *Prefetcher) hasUrgent(p sample.Origin) bool {
	return r.hasUrgentTodo(p) || slices.ContainsFunc(r.inHand[p], func(pf *prefetch) bool { return pf.state == prefetchTaken && isUrgent([]*prefetch{pf}) })
}

// hasUrgentTodo is hasUrgent without the burst that was taken. r.mu is held.
func (r *Prefetcher) hasUrgentTodo(p sample.Origin) bool {
	for _, c := range r.ranks {
		if c.urgentTodo(p) != nil {
			return true
		}
	}
	return false
}

// urgentTodo returns firstTodo if the rank asks for it now; else nil.
func (c *rankCursor) urgentTodo(p sample.Origin) *chunk {
	if k := c.firstTodo(p); k != nil && !c.asked.Before(k.at) {
		return k
	}
	return nil
}

// isUrgent reports whether a rank asks for one of the chunks that want some prefetches. Prefetcher.mu is held.
func isUrgent(prefetches []*prefetch) bool {
	return slices.ContainsFunc(prefetches, func(pf *prefetch) bool { return slices.ContainsFunc(pf.chunks, (*chunk).isUrgent) })
}

// giveUpOne frees what is missed least: a chunk of an epoch that its rank has left, else what the last chunk of the rank with the most bytes has on the first path, else on the next one
// but the last, else that chunk. It returns false if there is nothing but what ranks request now. r.mu is held.
func (r *Prefetcher) giveUpOne() bool {
	if r.yieldLater() {
		return true
	}
	var most *rankCursor
	for _, c := range r.ranks {
		if r.letGo(c) {
			return true
		}
		if n := len(c.chunks); n > 0 && c.asked.Before(c.chunks[n-1].at) && c.hasLater() && (most == nil || c.bytes > most.bytes) {
			most = c
		}
	}
	if most == nil {
		return false
	}
	for _, p := range r.paths[:len(r.paths)-1] {
		for i := len(most.chunks) - 1; i >= 0 && most.asked.Before(most.chunks[i].at); i-- {
			if r.shed(most.chunks[i], p.from) {
				return true
			}
		}
	}
	r.unlist(most)
	return true
}

// hasLater reports whether a sample is read already for a chunk after the one that the rank asks for.
func (c *rankCursor) hasLater() bool {
	for i := len(c.chunks) - 1; i >= 0 && c.asked.Before(c.chunks[i].at); i-- {
		if c.chunks[i].holds() {
			return true
		}
	}
	return false
}

// shed frees what a chunk, and no other, has on a path, to be read once more. r.mu is held.
func (r *Prefetcher) shed(k *chunk, p sample.Origin) (freed bool) {
	for _, pf := range k.prefetches {
		if pf.path == p && len(pf.chunks) == 1 {
			freed = r.giveBack(pf) || freed
		}
	}
	return freed
}

// giveBack frees a sample that was read, unless clients hold it, and lists it to be read once more. r.mu is held.
func (r *Prefetcher) giveBack(pf *prefetch) bool {
	if pf.x == nil || r.prefetches[pf.index] != pf || !r.cache.Staging.KeepAtMost(pf.x, 0) {
		return false
	}
	pf.x = nil
	r.readOnceMore(pf)
	return true
}

// letGo frees the first chunk that a rank did not ask for in an epoch that it has left. r.mu is held.
func (r *Prefetcher) letGo(c *rankCursor) bool {
	i := slices.IndexFunc(c.chunks, func(k *chunk) bool { return !k.asked && k.at.Epoch < c.asked.Epoch })
	if i >= 0 {
		r.pass(c, i)
	}
	return i >= 0
}

// YieldAny frees something on the first path that has something (fetch.Yielder): what the last path brings costs most to read once more.
func (r *Prefetcher) YieldAny() bool {
	return slices.ContainsFunc(r.paths, func(p path) bool { return r.YieldOne(p.from) })
}

// YieldOne frees what a chunk has on a path in side memory, for a caller that needs it (fetch.Yielder): first of chunks that are needed later, then of those that ranks have left behind, never of
// those that they ask for now.
func (r *Prefetcher) YieldOne(p sample.Origin) (freed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p == sample.FromLog && r.yieldLater() {
		return true
	}
	for _, later := range []bool{true, false} {
		for _, c := range r.ranks {
			for i := len(c.chunks) - 1; i >= 0; i-- {
				k := c.chunks[i]
				if k.asked || c.asked.Before(k.at) != later {
					continue
				}
				for _, pf := range k.prefetches {
					if pf.path == p && pf.x != nil && r.cache.Staging.IsSide(pf.x) && !slices.ContainsFunc(pf.chunks, func(k *chunk) bool { return k.asked }) {
						freed = r.giveBack(pf) || freed
					}
				}
				if freed {
					return true
				}
			}
		}
	}
	return false
}

// Starved frees the chunks that ranks have left behind, after a request has waited for room until its patience was over.
func (r *Prefetcher) Starved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.ranks {
		for len(c.chunks) > 0 && c.chunks[0].at.Before(c.asked) {
			r.pass(c, 0)
		}
	}
	r.nudge()
}
