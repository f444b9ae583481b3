package fetch

import (
	"cmp"
	"slices"

	"lcache/logfile"
	"lcache/sample"
	"lcache/staging"
)

// burst is how many samples, or bytes, are looked at together: the more, the more neighbours are found; the fewer, the earlier the
// first read begins.
const (
	burstSamples = 512
	burstBytes   = 4 << 20
)

// Neighbours are read at once if what lies between them is no more than nearby, which costs less than a second read, and no more than
// the sample that is gained, so that the ring does not fill with what nobody asks for. A read that is larger than largestRead is no faster.
const (
	nearby      = 32 << 10
	largestRead = 1 << 20
)

// list goes on listing and reading until Stop.
func (r *Reader) list() {
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

// collect lists chunks, each time one of the rank that has the least in the ring, and returns what is to be read for them. full says
// that a rank has used up its share.
func (r *Reader) collect() (burst []*flight, full bool) {
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
			for _, fl := range fresh {
				bytes += int(r.f.Manifest.Size(fl.index))
			}
			burst = append(burst, fresh...)
		}
		r.mu.Unlock()
	}
	return burst, false
}

// hungriest is the rank to list for: one that has not used up its share, and holds the least. A rank that has, and waits, gives up what it has
// left behind first. r.mu is held.
func (r *Reader) hungriest() (best *course, full bool) {
	share := r.share()
	for _, c := range r.ranks {
		for c.bytes >= share && !c.asked.before(c.next) && r.letGo(c) { // what it asks for is not listed yet
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

// add lists a chunk and returns its samples that nobody reads yet. r.mu is held.
func (r *Reader) add(c *course, at Step, indices []sample.Index) (fresh []*flight) {
	k := &chunk{of: c, at: at}
	for _, index := range indices {
		size := r.f.Manifest.Size(index)
		if size == 0 {
			continue
		}
		fl := r.flights[index]
		switch {
		case fl != nil && slices.Contains(fl.chunks, k):
			continue // twice in one chunk: both get the same
		case fl != nil && fl.state != flightReady:
			k.left++
		case fl != nil && r.f.Staging.KeepMore(fl.x):
		default: // nobody reads it, or everybody has given it back
			fl = &flight{index: index}
			r.flights[index] = fl
			fresh = append(fresh, fl)
			k.left++
		}
		fl.chunks = append(fl.chunks, k)
		k.flights = append(k.flights, fl)
		k.bytes += int64(room(size))
	}
	c.chunks = append(c.chunks, k)
	c.bytes += k.bytes
	return fresh
}

// part is one sample of a read by place.
type part struct {
	fl   *flight
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
	over  bool // guarded by Reader.mu: it has landed, or nobody waits for it any more
}

func (p *placeRead) first() *part { return &p.parts[0] }
func (p *placeRead) end() uint64  { l := &p.parts[len(p.parts)-1]; return l.off + uint64(l.n) }

// arrange says how a burst is read: by place where the log has it, neighbours at once. Those that are left are read one by one.
func (r *Reader) arrange(burst []*flight) (reads []*placeRead, source []int) {
	parts := make([]part, 0, len(burst))
	for i, fl := range burst {
		slot, seg, off, ok := r.f.Locations.Split(r.f.Locations.Get(fl.index))
		sum, known := r.f.Sums.Get(fl.index)
		if !ok || !known || r.f.isPacked(fl.index) {
			source = append(source, i)
			continue
		}
		parts = append(parts, part{fl: fl, need: i, slot: slot, seg: seg, off: off, n: int(r.f.Manifest.Size(fl.index)), sum: sum})
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.seg, b.seg), cmp.Compare(a.off, b.off))
	})
	largest := min(largestRead, uint64(r.f.Staging.MissBytes()/8))
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

// begin reads a burst in the order of need, waiting for room where there is none.
func (r *Reader) begin(burst []*flight, tell func(idle bool)) {
	reads, source := r.arrange(burst)
	var batch []*placeRead
	bytes := 0
	flush := func() {
		r.submit(batch)
		batch, bytes = nil, 0
	}
	for len(reads) > 0 || len(source) > 0 {
		if len(source) > 0 && (len(reads) == 0 || source[0] < reads[0].need) {
			fl := burst[source[0]]
			source = source[1:]
			if x := r.room(int(r.f.Manifest.Size(fl.index)), 0, []*flight{fl}, flush, tell); x != nil {
				flush()
				r.fromSource(fl, x)
			}
			continue
		}
		p := reads[0]
		reads = reads[1:]
		p.bytes = logfile.Span(p.first().off, int(p.end()-p.first().off))
		flights := make([]*flight, len(p.parts))
		for i := range p.parts {
			flights[i] = p.parts[i].fl
		}
		p.x = r.room(p.bytes, len(batch), flights, flush, tell)
		if p.x == nil {
			continue
		}
		batch = append(batch, p)
		if bytes += p.bytes; len(batch) >= mostFlying/8 || bytes >= mostFlyingBytes/8 {
			flush()
		}
	}
	flush()
}

// room waits for memory in the ring, and until not too much is on its way. It gives up when nobody wants it any more.
func (r *Reader) room(n, batched int, flights []*flight, flush func(), tell func(bool)) *staging.Extent {
	if int64(n) > r.f.Staging.MissBytes() { // it never has room here: who needs it asks by index
		for _, fl := range flights {
			r.failed(fl)
		}
		return nil
	}
	for r.ctx.Err() == nil {
		changed := r.f.Staging.Changed()
		r.mu.Lock()
		want := slices.ContainsFunc(flights, func(fl *flight) bool { return len(fl.chunks) > 0 })
		busy := r.flying+batched >= mostFlying || r.flyingBytes >= mostFlyingBytes
		r.mu.Unlock()
		if !want {
			return nil
		}
		if !busy {
			if x, ok := r.f.Staging.Alloc(staging.Miss, flights[0].index, n); ok {
				tell(false)
				return x
			}
			r.mu.Lock()
			again := r.squeeze(flights)
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
