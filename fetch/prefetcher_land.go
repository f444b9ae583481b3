package fetch

import (
	"time"

	"lcache/sample"
	"lcache/staging"
)

// land queues a completed read for verification. It runs on a goroutine of the I/O engine.
func (r *Prefetcher) land(p *placeRead, data []byte, err error) {
	r.mu.Lock()
	late := p.over || r.stopped
	p.over = true
	if p.batch.left--; p.batch.left == 0 {
		p.batch.watch.Stop()
	}
	if !late {
		p.data, p.err = data, err
		r.landed = append(r.landed, p)
		r.landing.Signal()
	}
	r.mu.Unlock()
	if late {
		r.f.o.Staging.Drop(p.x)
		r.f.late.Done()
	}
}

// atOnce is how many reads a worker takes under one lock.
const atOnce = 8

// verify publishes the samples of landed reads whose checksums are right.
func (r *Prefetcher) verify() {
	var reads []*placeRead
	var pieces []staging.Piece
	var prefetches []*prefetch
	out := make([]*staging.Extent, 0, 64)
	for {
		r.mu.Lock()
		for len(r.landed) == 0 && !r.stopped {
			r.landing.Wait()
		}
		if len(r.landed) == 0 {
			r.mu.Unlock()
			return
		}
		n := min(atOnce, (len(r.landed)+1)/2)
		reads = append(reads[:0], r.landed[:n]...)
		r.landed = r.landed[n:]
		r.mu.Unlock()

		good, bad := r.check(reads)
		pieces, prefetches = pieces[:0], prefetches[:0]
		r.mu.Lock()
		for _, g := range good {
			if keep := len(g.pf.chunks); keep > 0 && !r.stopped {
				pieces = append(pieces, staging.Piece{Of: g.x, Index: g.pf.index, Data: g.data, Takes: keep})
				prefetches = append(prefetches, g.pf)
			}
		}
		r.publish(pieces, prefetches, out)
		for _, p := range reads {
			r.arrived(p)
		}
		if r.stopping {
			bad = nil
		}
		r.singles.Add(len(bad))
		r.mu.Unlock()
		for _, p := range reads {
			r.f.o.Staging.Drop(p.x)
			r.f.late.Done()
		}
		for _, pf := range bad {
			go r.again(pf)
		}
		r.nudge()
	}
}

type verified struct {
	pf   *prefetch
	x    *staging.Extent
	data []byte
}

// check compares the bytes of reads with the checksums.
func (r *Prefetcher) check(reads []*placeRead) (good []verified, bad []*prefetch) {
	for _, p := range reads {
		for i := range p.parts {
			a := &p.parts[i]
			if p.err == nil {
				at := int(a.off - p.first().off)
				if data := p.data[at : at+a.n : at+a.n]; sample.Sum(data) == a.sum {
					good = append(good, verified{a.pf, p.x, data})
					continue
				}
			}
			bad = append(bad, a.pf)
		}
	}
	return good, bad
}

// publish makes samples available to waiters. r.mu is held, so that the chunks that want a sample don't change meanwhile.
func (r *Prefetcher) publish(pieces []staging.Piece, prefetches []*prefetch, out []*staging.Extent) {
	if len(pieces) == 0 {
		return
	}
	for len(out) < len(pieces) {
		out = append(out, nil)
	}
	r.f.o.Staging.PublishPieces(pieces, out)
	for i, pf := range prefetches {
		pf.x, pf.state = out[i], prefetchReady
		r.meters[pf.path].bytes += int64(pf.size)
		for _, k := range pf.chunks {
			k.left--
		}
	}
}

// meter measures the rate of a path: bytes brought, and the time with at least one read in flight.
type meter struct {
	bytes int64
	busy  time.Duration
	n     int
	since time.Time
}

func (m *meter) enter() {
	if m.n++; m.n == 1 {
		m.since = time.Now()
	}
}

func (m *meter) leave() {
	if m.n--; m.n == 0 {
		m.busy += time.Since(m.since)
	}
}

// A Work is what was brought so far on one path, and in how much time with at least one read in flight.
type Work struct {
	Bytes int64
	Busy  time.Duration
}

// Work returns what was read by place and from the source. The difference of two answers gives a rate.
func (r *Prefetcher) Work() (place, source Work) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all [paths]Work
	for p := range all {
		m := &r.meters[p]
		all[p] = Work{m.bytes, m.busy}
		if m.n > 0 {
			all[p].Busy += time.Since(m.since)
		}
	}
	return all[byPlace], all[bySource]
}
