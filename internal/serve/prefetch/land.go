package prefetch

import (
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// land queues a completed read for verification. It runs on a goroutine of the I/O engine.
func (r *Prefetcher) land(p *randomRead, data []byte, err error) {
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
		r.cache.Staging.Drop(p.x)
		r.f.EndRead()
	}
}

// atOnce is the number of reads that a worker takes under one lock.
const atOnce = 8

// verify checks landed reads, and publishes the samples with the right checksum.
func (r *Prefetcher) verify() {
	var reads []*randomRead
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
		good = keepOpportunistic(good)
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
			r.cache.Staging.Drop(p.x)
			r.f.EndRead()
		}
		for _, pf := range bad {
			go r.retry(pf)
		}
		r.wakeAll()
	}
}

type verified struct {
	pf   *prefetch
	x    *staging.Extent
	data []byte
}

// check compares the bytes of reads with their checksums.
func (r *Prefetcher) check(reads []*randomRead) (good []verified, bad []*prefetch) {
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
			if a.pf.opportunistic {
				a.pf.dropOpportunistic()
			} else {
				bad = append(bad, a.pf)
			}
		}
	}
	return good, bad
}

// publish makes samples available to waiters. r.mu is held, so that the chunks that want a sample do not change meanwhile.
func (r *Prefetcher) publish(pieces []staging.Piece, prefetches []*prefetch, out []*staging.Extent) {
	if len(pieces) == 0 {
		return
	}
	for len(out) < len(pieces) {
		out = append(out, nil)
	}
	r.cache.Staging.PublishPieces(pieces, out)
	for i, pf := range prefetches {
		pf.x, pf.state = out[i], prefetchReady
		r.work[AllJobs][pf.path].bytes += int64(pf.size)
		pf.work[pf.path].bytes += int64(pf.size)
		for _, k := range pf.chunks {
			k.left--
			k.of.landed++
		}
	}
}
