package prefetch

import (
	"slices"

	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// Chunks use the miss ring, and with Options.Side also side memory. A sample that is not leased can be evicted at any
// time, and is then read again. It makes room for a chunk that is needed earlier, or for a request by index that waits for side memory.

// memory returns the bytes that chunks may use.
func (r *Prefetcher) memory() int64 {
	if r.side.Load() {
		return r.cache.Staging.MissBytes() + r.cache.Staging.SideBytes()
	}
	return r.cache.Staging.MissBytes()
}

// largestPiece returns the largest possible allocation.
func (r *Prefetcher) largestPiece() int64 {
	if r.side.Load() {
		return max(r.cache.Staging.MissBytes(), r.cache.Staging.SideBytes())
	}
	return r.cache.Staging.MissBytes()
}

// alloc allocates memory for a read, if there is room.
func (r *Prefetcher) alloc(of *prefetch, n int) (*staging.Extent, bool) {
	if x, ok := r.cache.Staging.Alloc(staging.Miss, of.index, n); ok || !r.side.Load() {
		return x, ok
	}
	return r.f.TrySide(int64(n))
}

// wait waits until ready returns true and n bytes are allocated for some prefetches. It calls pause before each wait. It returns nil if:
//
//   - no chunk wants the samples any longer, they can never fit, or the Prefetcher stops. The prefetches end.
//   - a rank waits for several of the prefetches, and memory has room for them, but not in one piece. inPieces is true.
//   - a rank requests an earlier chunk that has reads left to begin on the path. The prefetches are listed again, because memory may be
//     full of samples that are needed later, and only the reads of the requested chunk may evict them.
func (r *Prefetcher) wait(p sample.Origin, n int, prefetches []*prefetch, ready func() bool, pause func()) (x *staging.Extent, inPieces bool) {
	defer func() {
		for _, other := range r.paths { // they may have left memory for these prefetches
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
			r.notifyIdle(false)
			return x, false
		case allotInPieces:
			return nil, true
		case allotAgain:
			continue
		case allotFull:
			r.notifyIdle(true)
		}
		if got == allotUnwanted {
			break
		}
		pause()
		if got == allotFull && r.yieldToUrgent(p, prefetches) {
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

// allotment is the result of an attempt to allocate memory.
type allotment uint8

const (
	allotted      allotment = iota // memory had room
	allotUnwanted                  // no chunk wants the samples
	allotNotYet                    // ready returned false
	allotAgain                     // a chunk was evicted: the next attempt may find room
	allotInPieces                  // memory has room for the prefetches but not in one piece, and a rank waits for them
	allotFull                      // memory has no room
)

// allot tries to allocate n bytes for some prefetches; see wait.
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
	case r.evictForUrgent(prefetches):
		return nil, allotAgain
	case len(prefetches) > 1 && isUrgent(prefetches) && r.free() >= int64(n):
		return nil, allotInPieces
	}
	return nil, allotFull
}

// leaveChunks removes a prefetch that can never fit from its chunks, so that its bytes do not count as used. Prefetcher.mu is held.
func (pf *prefetch) leaveChunks() {
	for _, k := range pf.chunks {
		k.prefetches = slices.DeleteFunc(k.prefetches, func(other *prefetch) bool { return other == pf })
		k.left--
		k.bytes -= int64(fetch.SideBytes(pf.size))
		k.of.bytes -= int64(fetch.SideBytes(pf.size))
	}
	pf.chunks = nil
}

// spared returns the bytes that the other paths still need for earlier chunks of the same rank. Memory goes to the earliest chunk first.
// r.mu is held.
func (r *Prefetcher) spared(p sample.Origin, prefetches []*prefetch) (n int64) {
	first := firstWanting(prefetches)
	for _, other := range r.paths {
		if other.from != p {
			n += r.neededBefore(first, other.from)
		}
	}
	return n
}

// neededBefore returns the bytes that a path still needs for chunks of a rank before first. r.mu is held.
func (r *Prefetcher) neededBefore(first *chunk, p sample.Origin) (n int64) {
	for _, pf := range r.taken[p] {
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

// firstWanting returns the first of the chunks that want some prefetches, or nil.
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

// free returns the free bytes of the memory.
func (r *Prefetcher) free() int64 {
	n := r.cache.Staging.Free(staging.Miss)
	if r.side.Load() {
		n += r.cache.Staging.Free(staging.Side)
	}
	return n
}

// notifyIdle calls Options.Idle when idle has changed.
func (r *Prefetcher) notifyIdle(idle bool) {
	if r.o.Idle != nil && r.idle.Swap(idle) != idle {
		r.o.Idle(idle)
	}
}

// makeRoom unlists chunks beyond their rank's share. Shares shrink when there are more ranks than expected, or less memory. r.mu is held.
func (r *Prefetcher) makeRoom() {
	r.shareOut()
	for _, c := range r.ranks {
		r.trimLater(c)
		for len(c.chunks) > 1 && c.bytes > c.share {
			r.unlist(c)
		}
	}
}

// unlist removes the last listed chunk of a rank. It is listed again in its turn.
func (r *Prefetcher) unlist(c *rankCursor) {
	last := len(c.chunks) - 1
	if at := c.chunks[last].at; at.Before(c.next) {
		c.next, c.blocked = at, false
	}
	r.pass(c, last)
}

// evictForUrgent evicts a chunk for an urgent chunk that has no room. It evicts a chunk that is needed later, or a chunk of an epoch that
// its rank has left. Memory can be full even if all ranks stay within their shares, because a read of several samples may take more memory
// than is counted for its samples. r.mu is held.
func (r *Prefetcher) evictForUrgent(needy []*prefetch) bool {
	return isUrgent(needy) && r.evictOne()
}

// yieldToUrgent lists prefetches again if an urgent chunk has reads left to begin on the path and these prefetches are for later chunks.
func (r *Prefetcher) yieldToUrgent(p sample.Origin, prefetches []*prefetch) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if isUrgent(prefetches) || !r.hasUrgent(p) {
		return false
	}
	for _, pf := range prefetches {
		r.putBack(pf, p)
	}
	r.yielded[p] = true
	return true
}

// hasUrgent reports whether an urgent chunk has reads left to begin on a path. It does not count samples whose peer can't be asked for more now. r.mu is held.
func (r *Prefetcher) hasUrgent(p sample.Origin) bool {
	return r.hasUrgentTodo(p) || slices.ContainsFunc(r.taken[p], func(pf *prefetch) bool {
		return pf.state == prefetchTaken && r.mayAsk(pf.peer) && isUrgent([]*prefetch{pf})
	})
}

// hasUrgentTodo is hasUrgent without the samples that are taken. r.mu is held.
func (r *Prefetcher) hasUrgentTodo(p sample.Origin) bool {
	for _, c := range r.ranks {
		if c.urgentTodo(p) != nil {
			return true
		}
	}
	return false
}

// urgentTodo returns firstTodo if it is urgent, else nil.
func (c *rankCursor) urgentTodo(p sample.Origin) *chunk {
	if k := c.firstTodo(p); k != nil && !c.asked.Before(k.at) {
		return k
	}
	return nil
}

// isUrgent reports whether some prefetches are for an urgent chunk. Prefetcher.mu is held.
func isUrgent(prefetches []*prefetch) bool {
	return slices.ContainsFunc(prefetches, func(pf *prefetch) bool { return slices.ContainsFunc(pf.chunks, (*chunk).isUrgent) })
}

// evictOne evicts the samples that are needed least. It takes the first that exist:
//
//  1. copies for later chunks
//  2. a chunk of an epoch that its rank has left
//  3. samples of the last chunks of the rank with the most bytes: first of the first path, then of each next path except the last
//  4. the last chunk of that rank
//
// It returns false if everything left is urgent. r.mu is held.
func (r *Prefetcher) evictOne() bool {
	if r.yieldLater() {
		return true
	}
	var most *rankCursor
	for _, c := range r.ranks {
		if r.dropAbandoned(c) {
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
			if r.evictPath(most.chunks[i], p.from) {
				return true
			}
		}
	}
	r.unlist(most)
	return true
}

// hasLater reports whether a sample has been read for a chunk after the requested one.
func (c *rankCursor) hasLater() bool {
	for i := len(c.chunks) - 1; i >= 0 && c.asked.Before(c.chunks[i].at); i-- {
		if c.chunks[i].holds() {
			return true
		}
	}
	return false
}

// evictPath evicts the samples that only this chunk wants and that a path has read. They are listed again. r.mu is held.
func (r *Prefetcher) evictPath(k *chunk, p sample.Origin) (freed bool) {
	for _, pf := range k.prefetches {
		if pf.path == p && len(pf.chunks) == 1 {
			freed = r.evict(pf) || freed
		}
	}
	return freed
}

// evict frees a sample that was read, unless clients hold it, and lists it again. r.mu is held.
func (r *Prefetcher) evict(pf *prefetch) bool {
	if pf.x == nil || r.prefetches[pf.index] != pf || !r.cache.Staging.KeepAtMost(pf.x, 0) {
		return false
	}
	pf.x = nil
	r.readOnceMore(pf)
	return true
}

// dropAbandoned frees the first chunk that a rank skipped in an epoch that it has left. r.mu is held.
func (r *Prefetcher) dropAbandoned(c *rankCursor) bool {
	i := slices.IndexFunc(c.chunks, func(k *chunk) bool { return !k.asked && k.at.Epoch < c.asked.Epoch })
	if i >= 0 {
		r.pass(c, i)
	}
	return i >= 0
}

// YieldAny implements fetch.Yielder. It evicts samples of the first path that has some, because samples of the last path cost most to read again.
func (r *Prefetcher) YieldAny() bool {
	return slices.ContainsFunc(r.paths, func(p path) bool { return r.YieldOne(p.from) })
}

// YieldOne implements fetch.Yielder. It evicts samples of one path from side memory: first of chunks that are needed later, then of
// chunks before the rank's position. It never evicts samples of a requested chunk.
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
						freed = r.evict(pf) || freed
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

// Starved frees the chunks before the ranks' positions. Call it after a request has waited for room until its deadline.
func (r *Prefetcher) Starved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.ranks {
		for len(c.chunks) > 0 && c.chunks[0].at.Before(c.asked) {
			r.pass(c, 0)
		}
	}
	r.wakeAll()
}
