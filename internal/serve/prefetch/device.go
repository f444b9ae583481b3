package prefetch

import (
	"cmp"
	"slices"
	"time"

	"lcache/internal/serve/staging"
	"lcache/logfile"
	"lcache/sample"
)

// burstSamples and burstBytes bound the samples that are looked up together. A larger burst finds more neighbours. In a smaller burst
// fewer samples move in the log before they are read.
const (
	burstSamples = 512
	burstBytes   = 4 << 20
)

// Samples share a read if the gap between them is at most Nearby, because that costs less than a second read. The gap must also be at
// most as long as the second sample, so that gaps do not fill the memory. A read larger than largestRead is not faster.
const (
	Nearby      = 32 << 10
	largestRead = 1 << 20
)

// part is one sample of a random read.
type part struct {
	pf   *prefetch
	need int // position in the burst
	num  int
	seg  int
	off  uint64
	n    int
	sum  uint64
}

// gap returns the largest gap before a sample that shares a read with an earlier sample.
func (p *part) gap() uint64 {
	if p.pf.near || p.pf.memory != nil {
		return Nearby
	}
	return min(Nearby, uint64(p.n))
}

// randomRead is one read by location: of one sample, or of several near each other.
type randomRead struct {
	parts []part // by offset
	need  int
	x     *staging.Extent
	data  []byte
	err   error
	bytes int

	batch *readBatch
	work  *meters // of the job that it was begun for
	over  bool    // guarded by Prefetcher.mu: the read has landed or was given up
}

// split returns one read for each sample that a chunk wants.
func (p *randomRead) split() (reads []*randomRead) {
	for i := range p.parts {
		if p.parts[i].pf.opportunistic {
			p.parts[i].pf.dropOpportunistic()
			continue
		}
		reads = append(reads, &randomRead{parts: p.parts[i : i+1 : i+1], need: p.parts[i].need})
	}
	return reads
}

func (p *randomRead) first() *part { return &p.parts[0] }
func (p *randomRead) end() uint64  { l := &p.parts[len(p.parts)-1]; return l.off + uint64(l.n) }

// beginRandomReads begins random reads until Stop.
func (r *Prefetcher) beginRandomReads() {
	for r.ctx.Err() == nil {
		if burst := r.take(sample.FromLog, burstSamples, burstBytes); len(burst) > 0 {
			r.begin(r.gather(burst))
			continue
		}
		select {
		case <-r.wakes[sample.FromLog]:
		case <-r.ctx.Done():
		}
	}
}

// arrange turns a burst into reads. Neighbours share a read. Samples that must be decompressed, or copied from memory, are read one by
// one (packed). A sample that has left the log meanwhile goes to the next path that has it.
func (r *Prefetcher) arrange(burst []*prefetch) (reads []*randomRead, packed []*prefetch) {
	parts := make([]part, 0, len(burst))
	held := r.f.Held.Load()
	for i, pf := range burst {
		if held.Has(pf.index) {
			packed = append(packed, pf)
			continue
		}
		num, seg, off, ok := r.cache.Locations.Split(r.cache.Locations.Get(pf.index))
		sum, known := r.cache.Sums.Get(pf.index)
		switch {
		case !ok || !known:
			r.mu.Lock()
			r.putBack(pf, r.pathAfter(sample.FromLog, pf.index))
			r.mu.Unlock()
		case r.f.IsPacked(pf.index):
			packed = append(packed, pf)
		default:
			parts = append(parts, part{pf: pf, need: i, num: num, seg: seg, off: off, n: int(pf.size), sum: sum})
		}
	}
	largest := min(largestRead, uint64(r.memory()/8))
	parts = r.addOpportunistic(parts, largest)
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(a.num, b.num), cmp.Compare(a.seg, b.seg), cmp.Compare(a.off, b.off))
	})
	for i := 0; i < len(parts); {
		p := &randomRead{parts: parts[i : i+1], need: parts[i].need}
		first := p.first()
		for i++; i < len(parts); i++ {
			next := &parts[i]
			if next.num != first.num || next.seg != first.seg || next.off > p.end()+next.gap() || next.off+uint64(next.n)-first.off > largest {
				break
			}
			p.parts = p.parts[:len(p.parts)+1]
			p.need = min(p.need, next.need)
		}
		reads = append(reads, p)
	}
	slices.SortFunc(reads, func(a, b *randomRead) int { return a.need - b.need })
	return reads, packed
}

// begin submits the reads of a burst, most urgent first. It waits for memory.
func (r *Prefetcher) begin(burst []*prefetch) {
	reads, packed := r.arrange(burst)
	for _, pf := range packed {
		r.readPacked(pf)
	}
	var batch []*randomRead
	bytes := 0
	flush := func() {
		r.submit(batch)
		batch, bytes = nil, 0
	}
	r.mu.Lock()
	some := max(1, r.depth/8)
	r.mu.Unlock()
	for len(reads) > 0 {
		p := reads[0]
		reads = reads[1:]
		p.bytes = logfile.Span(p.first().off, int(p.end()-p.first().off))
		prefetches := make([]*prefetch, len(p.parts))
		for i := range p.parts {
			prefetches[i] = p.parts[i].pf
		}
		free := func() bool { return r.inFlight+len(batch) < r.depth && r.inFlightBytes < mostInFlightBytes }
		var inPieces bool
		if p.x, inPieces = r.wait(sample.FromLog, p.bytes, prefetches, free, flush); inPieces {
			reads = append(p.split(), reads...)
		}
		if p.x == nil {
			continue
		}
		batch = append(batch, p)
		if bytes += p.bytes; len(batch) >= some || bytes >= mostInFlightBytes/8 {
			flush()
		}
	}
	flush()
}

// readBatch is a set of reads that were submitted together, with one deadline.
type readBatch struct {
	reads []*randomRead
	left  int // reads that have not landed
	watch *time.Timer
}

// submit submits random reads. It gives up reads that have not landed after LogTimeout. Their memory is reused after the kernel has
// completed them.
func (r *Prefetcher) submit(batch []*randomRead) {
	if len(batch) == 0 {
		return
	}
	b := &readBatch{reads: batch, left: len(batch)}
	r.mu.Lock()
	for _, p := range batch {
		p.batch = b
		for i := range p.parts {
			p.parts[i].pf.state = prefetchReading
		}
		r.inFlight++
		r.inFlightBytes += p.bytes
		p.work = p.first().pf.work
		r.enter(p.work, sample.FromLog)
	}
	b.watch = time.AfterFunc(r.f.LogTimeout(), func() { r.giveUp(b) })
	r.mu.Unlock()
	r.f.BeginReads(len(batch))
	var ranges [logfile.PackagesNum + 1][]logfile.Range
	for _, p := range batch {
		first := p.first()
		ranges[first.num] = append(ranges[first.num], logfile.Range{Segment: first.seg, Offset: first.off, Len: int(p.end() - first.off), Buf: p.x.Buf,
			Done: func(data []byte, err error) { r.land(p, data, err) }})
	}
	for num, many := range ranges {
		switch l := r.cache.Logfile(num); {
		case len(many) == 0:
		case l != nil:
			l.ReadMany(many)
		default:
			for _, one := range many {
				one.Done(nil, logfile.ErrClosed)
			}
		}
	}
}

// giveUp ends the reads of a batch that the disk has not completed. Waiting requests look again, and read the samples by index.
func (r *Prefetcher) giveUp(b *readBatch) {
	hung := 0
	r.mu.Lock()
	for _, p := range b.reads {
		if p.over || r.stopped {
			continue
		}
		p.over = true
		hung++
		r.arrived(p)
		for i := range p.parts {
			r.forget(p.parts[i].pf)
			p.parts[i].pf.dropOpportunistic()
		}
	}
	r.mu.Unlock()
	if hung == 0 {
		return
	}
	r.f.Stats.Timeouts.Add(int64(hung))
	r.cache.Staging.Notify()
	r.wakeAll()
}

// arrived takes a read out of the counts of reads in flight. r.mu is held.
func (r *Prefetcher) arrived(p *randomRead) {
	r.inFlight--
	r.inFlightBytes -= p.bytes
	r.leave(p.work, sample.FromLog)
	for i := range p.parts {
		r.settle(p.parts[i].pf)
	}
}
