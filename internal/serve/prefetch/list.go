package prefetch

import (
	"cmp"
	"slices"

	"lcache/chunker"
	"lcache/internal/serve/fetch"
	"lcache/sample"
)

// list lists chunks until Stop.
func (r *Prefetcher) list() {
	for r.ctx.Err() == nil {
		if r.listOne() || r.noteLater() {
			continue
		}
		select {
		case <-r.wakes[listing]:
		case <-r.ctx.Done():
		}
	}
	r.notifyIdle(false)
}

// listOne lists the next chunk of the rank with the fewest bytes in memory. It returns false if there is none, or no room.
func (r *Prefetcher) listOne() bool {
	r.mu.Lock()
	c, full := r.rankToList()
	if c == nil {
		full = full && r.inFlight == 0 && !r.hasTodo()
		r.mu.Unlock()
		r.wakeUp(int(sample.FromLog)) // a chunk may have waited for later chunks to be listed (nextTodo)
		r.notifyIdle(full)
		return false
	}
	at := c.next
	r.mu.Unlock()
	upcoming, ok := r.o.Chunk(at) // the first call may take a second
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.asked.Before(at) {
		defer r.cache.Staging.Notify() // a request that waited for the listing of its chunk looks again: the Prefetcher may not read all of it
	}
	switch {
	case c.next != at || r.ranks[c.rank] != c: // the rank has jumped meanwhile, or is forgotten
	case !ok:
		c.blocked = true
		r.leaveRest(c, at)
	case c.done[at]:
		c.next = upcoming.Next
		r.passLater(c)
		if i, listed := c.find(at); listed {
			c.chunks[i].stale = false
		}
	default:
		c.next, c.scanning = upcoming.Next, upcoming.Scanning
		r.add(c, at, &upcoming)
		r.passLater(c)
	}
	return true
}

// rankToList returns the rank to list a chunk for: of the ranks below their share, the one with the fewest bytes. full means that a rank
// has used up its share. The chunk that a rank requests is listed regardless, and the rank frees the chunks before it. r.mu is held.
func (r *Prefetcher) rankToList() (best *rankCursor, full bool) {
	r.shareOut()
	for _, c := range r.ranks {
		r.trimLater(c)
		waits := !c.asked.Before(c.next) || c.hasStale()
		for waits && c.bytes >= c.share && r.dropAbandoned(c) {
		}
		switch {
		case c.blocked || r.ctx.Err() != nil:
		case !waits && len(c.chunks) > 0 && (c.bytes >= c.nearShare() || len(c.chunks) >= mostListed):
			full = true
		case best == nil || c.bytes < best.bytes || c.bytes == best.bytes && c.rank.Compare(best.rank) < 0:
			best = c
		}
	}
	return best, full
}

// add lists the samples of a chunk that the Prefetcher must read, or updates a listed chunk. It lists no empty chunk. r.mu is held.
func (r *Prefetcher) add(c *rankCursor, at chunker.Position, upcoming *Upcoming) {
	i, listed := c.find(at)
	k := &chunk{of: c, at: at, asked: at == c.asked, near: upcoming.Near}
	left := upcoming.Left
	if left == nil {
		left = func(sample.Index) bool { return true }
	}
	if listed {
		k = c.chunks[i]
		k.stale = false
		r.leaveOut(k, func(index sample.Index) bool { return !left(index) })
	}
	for _, index := range upcoming.Content {
		if size := r.cache.Manifest.Size(index); size > 0 && left(index) {
			r.want(k, index, size, upcoming)
		}
	}
	c.largest = max(c.largest, k.bytes)
	if len(k.prefetches) > 0 && !listed {
		c.chunks = slices.Insert(c.chunks, i, k)
		for p := range c.begun {
			c.begun[p] = min(c.begun[p], i)
		}
	}
	for p, todo := range k.todo {
		if len(todo) > 0 {
			r.wakeUp(p)
		}
	}
}

// want adds a sample to a chunk that does not have it yet. It reuses the prefetch that another chunk has
// for the sample, or makes one. r.mu is held.
func (r *Prefetcher) want(k *chunk, index sample.Index, size uint32, upcoming *Upcoming) {
	pf := r.prefetches[index]
	if x := r.claim(index); x != nil && pf == nil {
		pf = &prefetch{index: index, size: size, state: prefetchReady, x: x}
		r.prefetches[index] = pf
		r.appendTo(k, pf)
		k.of.landed++
		return
	} else if x != nil {
		r.cache.Staging.KeepAtMost(x, 0)
	}
	switch {
	case pf != nil && slices.Contains(pf.chunks, k):
		return // the chunk has the sample twice: one prefetch is enough
	case pf != nil && pf.state == prefetchInSlot:
	case pf != nil && pf.state != prefetchReady:
		k.left++
	case pf != nil && r.cache.Staging.KeepMore(pf.x):
	default: // it has no prefetch, or its extent was freed
		pf = &prefetch{index: index, size: size, path: sample.FromLog, near: upcoming.Near, memory: upcoming.Opportunistic}
		if !upcoming.Cached {
			pf.path = r.pathOf(index)
		}
		r.prefetches[index] = pf
		k.left++
	}
	r.appendTo(k, pf)
}

// appendTo adds a prefetch to the prefetches that a chunk waits for. r.mu is held.
func (r *Prefetcher) appendTo(k *chunk, pf *prefetch) {
	pf.chunks = append(pf.chunks, k)
	if pf.state == prefetchQueued {
		pf.bringForward()
	}
	k.prefetches = append(k.prefetches, pf)
	k.bytes += int64(fetch.SideBytes(pf.size))
	k.of.bytes += int64(fetch.SideBytes(pf.size))
}

// hasStale reports whether a chunk must be listed again.
func (c *rankCursor) hasStale() bool {
	n := len(c.chunks)
	return n > 0 && c.chunks[n-1].stale && !c.chunks[n-1].at.Before(c.next)
}

// leaveRest removes prefetches that have not begun from the chunks at from and later: another producer loads their samples. r.mu is held.
func (r *Prefetcher) leaveRest(c *rankCursor, from chunker.Position) {
	for _, k := range c.chunks {
		k.stale = false
		if !k.at.Before(from) {
			r.leaveOut(k, func(sample.Index) bool { return true })
		}
	}
}

// hasTodo reports whether a read is left to begin. r.mu is held.
func (r *Prefetcher) hasTodo() bool {
	for _, c := range r.ranks {
		for _, p := range r.paths {
			if c.nextTodo(p.from) != nil {
				return true
			}
		}
	}
	return false
}

// firstTodo returns the first chunk with a read left to begin on a path, or nil.
func (c *rankCursor) firstTodo(p sample.Origin) *chunk {
	for ; c.begun[p] < len(c.chunks); c.begun[p]++ {
		k := c.chunks[c.begun[p]]
		switch {
		case k.stale && !k.at.Before(c.next):
			return nil
		case len(k.todo[p]) > 0:
			return k
		}
	}
	return nil
}

// nextTodo returns the chunk whose reads begin next on a path: firstTodo, or nil if that chunk waits for others to be listed.
func (c *rankCursor) nextTodo(p sample.Origin) *chunk {
	k := c.firstTodo(p)
	if k == nil || p != sample.FromLog || !k.near || k.isUrgent() {
		return k
	}
	before := int64(0)
	for _, other := range c.chunks {
		if other == k {
			break
		}
		before += other.bytes
	}
	if c.bytes < c.share-c.share/4 && !c.blocked && len(c.chunks) < mostListed || before > c.share/2 {
		return nil
	}
	return k
}

// take takes the next prefetches on a path off their lists. It always chooses the job with the fewest bytes in flight, and in it the rank
// with the fewest. Prefetches of one rank come in the order of need. take locks r.mu.
func (r *Prefetcher) take(p sample.Origin, samples, bytes int) (burst []*prefetch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := slices.DeleteFunc(r.taken[p], func(pf *prefetch) bool { return pf.state != prefetchTaken || pf.path != p || len(pf.chunks) == 0 })
	taken := 0
	jobs, weight := map[int]int64{}, func(job int) int64 {
		if job == r.patient {
			return patience
		}
		return 1
	}
	for _, c := range r.ranks {
		jobs[c.rank.Job] += c.inFlight[p] * weight(c.rank.Job)
	}
	todo := (*rankCursor).nextTodo
	if r.yielded[p] && r.hasUrgentTodo(p) {
		todo = (*rankCursor).urgentTodo
	}
	r.yielded[p] = false
	for len(burst) < samples && taken < bytes {
		var from *chunk
		for _, c := range r.ranks {
			if k := todo(c, p); k != nil && (from == nil || cmp.Or(cmp.Compare(jobs[c.rank.Job], jobs[from.of.rank.Job]), cmp.Compare(c.inFlight[p], from.of.inFlight[p])) < 0) {
				from = k
			}
		}
		if from == nil {
			break
		}
		// At most an even share of the burst comes from one chunk before the next rank's turn.
		for quota := max(1, samples/max(1, len(r.ranks))/2); quota > 0 && len(from.todo[p]) > 0 && len(burst) < samples && taken < bytes; quota-- {
			pf := from.todo[p][0]
			from.todo[p], pf.on = from.todo[p][1:], nil
			from.todoBytes[p] -= int64(pf.size)
			if r.isInSlot(pf) {
				continue
			}
			pf.state, pf.of, pf.work = prefetchTaken, from.of, from.of.work
			pf.of.inFlight[p] += int64(pf.size)
			jobs[from.of.rank.Job] += int64(pf.size) * weight(from.of.rank.Job)
			taken += int(pf.size)
			burst = append(burst, pf)
		}
	}
	r.taken[p] = append(waiting, burst...)
	return burst
}

// readOnceMore lists a prefetch again that its chunks had counted as ready. r.mu is held.
func (r *Prefetcher) readOnceMore(pf *prefetch) {
	pf.state, pf.path, pf.asked = prefetchQueued, r.pathOf(pf.index), 0
	for _, k := range pf.chunks {
		k.left++
	}
	pf.enlist()
}

// putBack lists a prefetch again, on another path. r.mu is held.
func (r *Prefetcher) putBack(pf *prefetch, p sample.Origin) {
	r.settle(pf)
	if len(pf.chunks) == 0 {
		pf.dropOpportunistic()
		return
	}
	pf.state, pf.path = prefetchQueued, p
	pf.enlist()
	r.wakeUp(int(p))
}

// settle takes a prefetch out of its rank's bytes in flight. r.mu is held.
func (r *Prefetcher) settle(pf *prefetch) {
	r.notDue(pf)
	if pf.of != nil {
		pf.of.inFlight[pf.path] -= int64(pf.size)
		pf.of = nil
	}
}

// wakeUp wakes one goroutine.
func (r *Prefetcher) wakeUp(which int) {
	select {
	case r.wakes[which] <- struct{}{}:
	default:
	}
}
