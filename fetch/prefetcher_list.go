package fetch

import (
	"cmp"
	"slices"

	"lcache/logfile"
	"lcache/sample"
	"lcache/staging"
)

// burstSamples and burstBytes bound how much is listed before reads begin. A larger burst finds more neighbours; a smaller one begins its
// first read earlier.
const (
	burstSamples = 512
	burstBytes   = 4 << 20
)

// Neighbours share a read if the gap between them is at most nearby, which costs less than a second read, and at most as long as
// the second sample, so that the ring does not fill with bytes of other samples. A read larger than largestRead is no faster.
const (
	nearby      = 32 << 10
	largestRead = 1 << 20
)

// list lists chunks and reads them until Stop.
func (r *Prefetcher) list() {
	idle := false
	tell := func(now bool) {
		if now != idle && r.o.Idle != nil {
			r.o.Idle(now)
		}
		idle = now
	}
	for r.ctx.Err() == nil {
		burst, full := r.collect()
		tell(full && len(burst) == 0)
		if len(burst) > 0 {
			r.begin(burst, tell)
			continue
		}
		select {
		case <-r.wake:
		case <-r.ctx.Done():
		}
	}
	tell(false)
}

// collect lists chunks, always for the rank with the fewest bytes in the ring, and returns the samples to be read for them. full means
// that a rank has used up its share.
func (r *Prefetcher) collect() (burst []*prefetch, full bool) {
	bytes := 0
	for len(burst) < burstSamples && bytes < burstBytes {
		r.mu.Lock()
		c, out := r.hungriest()
		if c == nil {
			r.mu.Unlock()
			return burst, out
		}
		rank, at := c.rank, c.next
		r.mu.Unlock()
		indices, next, ok := r.o.Chunk(rank, at) // may take a second the first time
		r.mu.Lock()
		switch {
		case c.next != at: // it has jumped meanwhile
		case !ok:
			c.blocked = true
		case c.done[at]:
			delete(c.done, at)
			c.next = next
		default:
			c.next = next
			fresh := r.add(c, at, indices)
			for _, pf := range fresh {
				bytes += int(r.f.o.Manifest.Size(pf.index))
			}
			burst = append(burst, fresh...)
		}
		r.mu.Unlock()
	}
	return burst, false
}

// hungriest returns the rank to list for: of the ranks that have not used up their share, the one with the fewest bytes. A rank that has used up its share
// and waits frees the chunks that it has left behind. r.mu is held.
func (r *Prefetcher) hungriest() (best *rankCursor, full bool) {
	share := r.share()
	for _, c := range r.ranks {
		for c.bytes >= share && !c.asked.before(c.next) && r.letGo(c) { // the chunk that it asks for is not listed yet
		}
		switch {
		case c.blocked || r.ctx.Err() != nil:
		case len(c.chunks) > 0 && c.bytes >= share:
			full = true
		case best == nil || c.bytes < best.bytes || c.bytes == best.bytes && c.rank < best.rank:
			best = c
		}
	}
	return best, full
}

// add lists a chunk and returns those of its samples that have no prefetch yet. r.mu is held.
func (r *Prefetcher) add(c *rankCursor, at Step, indices []sample.Index) (fresh []*prefetch) {
	k := &chunk{of: c, at: at}
	for _, index := range indices {
		size := r.f.o.Manifest.Size(index)
		if size == 0 {
			continue
		}
		pf := r.prefetches[index]
		switch {
		case pf != nil && slices.Contains(pf.chunks, k):
			continue // twice in one chunk: one prefetch is enough
		case pf != nil && pf.state != prefetchReady:
			k.left++
		case pf != nil && r.f.o.Staging.KeepMore(pf.x):
		default: // it has no prefetch, or its extent is gone
			pf = &prefetch{index: index}
			r.prefetches[index] = pf
			fresh = append(fresh, pf)
			k.left++
		}
		pf.chunks = append(pf.chunks, k)
		k.prefetches = append(k.prefetches, pf)
		k.bytes += int64(sideBytes(size))
	}
	c.chunks = append(c.chunks, k)
	c.bytes += k.bytes
	return fresh
}

// part is one sample of a read by place.
type part struct {
	pf   *prefetch
	need int // position in the burst
	slot int
	seg  int
	off  uint64
	n    int
	sum  uint64
}

// placeRead is one read by place, of one sample or of several that lie close together.
type placeRead struct {
	parts []part // by offset
	need  int
	x     *staging.Extent
	data  []byte
	err   error
	bytes int

	batch *readBatch
	over  bool // guarded by Prefetcher.mu: the read has landed or was given up
}

func (p *placeRead) first() *part { return &p.parts[0] }
func (p *placeRead) end() uint64  { l := &p.parts[len(p.parts)-1]; return l.off + uint64(l.n) }

// arrange splits a burst into reads by place, with neighbours in one read, and samples that are read one by one (by their position in the burst).
func (r *Prefetcher) arrange(burst []*prefetch) (reads []*placeRead, source []int) {
	parts := make([]part, 0, len(burst))
	for i, pf := range burst {
		slot, seg, off, ok := r.f.o.Locations.Split(r.f.o.Locations.Get(pf.index))
		sum, known := r.f.o.Sums.Get(pf.index)
		if !ok || !known || r.f.isPacked(pf.index) {
			source = append(source, i)
			continue
		}
		parts = append(parts, part{pf: pf, need: i, slot: slot, seg: seg, off: off, n: int(r.f.o.Manifest.Size(pf.index)), sum: sum})
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.seg, b.seg), cmp.Compare(a.off, b.off))
	})
	largest := min(largestRead, uint64(r.f.o.Staging.MissBytes()/8))
	for i := 0; i < len(parts); {
		p := &placeRead{parts: parts[i : i+1], need: parts[i].need}
		first := p.first()
		for i++; i < len(parts); i++ {
			next := &parts[i]
			if next.slot != first.slot || next.seg != first.seg || next.off > p.end()+min(nearby, uint64(next.n)) || next.off+uint64(next.n)-first.off > largest {
				break
			}
			p.parts = p.parts[:len(p.parts)+1]
			p.need = min(p.need, next.need)
		}
		reads = append(reads, p)
	}
	slices.SortFunc(reads, func(a, b *placeRead) int { return a.need - b.need })
	return reads, source
}

// begin reads a burst in the order of need, and waits for room in the ring.
func (r *Prefetcher) begin(burst []*prefetch, tell func(idle bool)) {
	reads, source := r.arrange(burst)
	var batch []*placeRead
	bytes := 0
	flush := func() {
		r.submit(batch)
		batch, bytes = nil, 0
	}
	for len(reads) > 0 || len(source) > 0 {
		if len(source) > 0 && (len(reads) == 0 || source[0] < reads[0].need) {
			pf := burst[source[0]]
			source = source[1:]
			if x := r.waitRing(int(r.f.o.Manifest.Size(pf.index)), 0, []*prefetch{pf}, flush, tell); x != nil {
				flush()
				r.fromSource(pf, x)
			}
			continue
		}
		p := reads[0]
		reads = reads[1:]
		p.bytes = logfile.Span(p.first().off, int(p.end()-p.first().off))
		prefetches := make([]*prefetch, len(p.parts))
		for i := range p.parts {
			prefetches[i] = p.parts[i].pf
		}
		p.x = r.waitRing(p.bytes, len(batch), prefetches, flush, tell)
		if p.x == nil {
			continue
		}
		batch = append(batch, p)
		if bytes += p.bytes; len(batch) >= mostInFlight/8 || bytes >= mostInFlightBytes/8 {
			flush()
		}
	}
	flush()
}

// waitRing waits until the ring has n bytes and the reads in flight are within their bounds. It returns nil when no chunk wants the samples any longer.
func (r *Prefetcher) waitRing(n, batched int, prefetches []*prefetch, flush func(), tell func(bool)) *staging.Extent {
	if int64(n) > r.f.o.Staging.MissBytes() { // it never fits: a request will read it by index
		for _, pf := range prefetches {
			r.failed(pf)
		}
		return nil
	}
	for r.ctx.Err() == nil {
		changed := r.f.o.Staging.Changed()
		r.mu.Lock()
		want := slices.ContainsFunc(prefetches, func(pf *prefetch) bool { return len(pf.chunks) > 0 })
		busy := r.inFlight+batched >= mostInFlight || r.inFlightBytes >= mostInFlightBytes
		r.mu.Unlock()
		if !want {
			return nil
		}
		if !busy {
			if x, ok := r.f.o.Staging.Alloc(staging.Miss, prefetches[0].index, n); ok {
				tell(false)
				return x
			}
			r.mu.Lock()
			again := r.squeeze(prefetches)
			r.mu.Unlock()
			if again {
				continue
			}
			tell(true)
		}
		flush()
		batched = 0
		select {
		case <-changed:
		case <-r.wake:
		case <-r.ctx.Done():
		}
	}
	return nil
}
