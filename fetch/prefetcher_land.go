package fetch

import (
	"context"
	"errors"
	"time"

	"lcache/logfile"
	"lcache/sample"
	"lcache/staging"
)

// readBatch is reads that were submitted together, and their deadline.
type readBatch struct {
	reads []*placeRead
	left  int // reads that have not landed
	watch *time.Timer
}

// submit begins reads by place. Reads that have not landed after LogTimeout are given up; their memory is used again when the
// disk has answered.
func (r *Prefetcher) submit(batch []*placeRead) {
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
	}
	b.watch = time.AfterFunc(r.f.o.LogTimeout, func() { r.giveUp(b) })
	r.mu.Unlock()
	r.f.late.Add(len(batch))
	var ranges [2][]logfile.Range
	for _, p := range batch {
		first := p.first()
		ranges[first.slot] = append(ranges[first.slot], logfile.Range{Segment: first.seg, Offset: first.off, Len: int(p.end() - first.off), Buf: p.x.Buf,
			Done: func(data []byte, err error) { r.land(p, data, err) }})
	}
	for slot, many := range ranges {
		switch l := r.f.o.Logfile(slot); {
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

// giveUp ends the reads of a batch that the disk has not answered. Waiters look again, and are served by index.
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
		}
	}
	r.mu.Unlock()
	if hung == 0 {
		return
	}
	r.f.Stats.Timeouts.Add(int64(hung))
	r.f.o.Staging.Notify()
	r.nudge()
}

func (r *Prefetcher) arrived(p *placeRead) {
	r.inFlight--
	r.inFlightBytes -= p.bytes
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
		r.sources.Add(len(bad))
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
		for _, k := range pf.chunks {
			k.left--
		}
	}
}

// again retries, by index, a sample whose bytes did not have its checksum: it may have moved meanwhile, and
// only a second failure counts.
func (r *Prefetcher) again(pf *prefetch) {
	defer r.sources.Done()
	r.mu.Lock()
	wanted := len(pf.chunks) > 0
	r.mu.Unlock()
	if !wanted {
		return
	}
	x, ok := r.f.o.Staging.Alloc(staging.Miss, pf.index, sideBytes(r.f.o.Manifest.Size(pf.index)))
	if !ok {
		r.failed(pf) // a request will read it by index
		return
	}
	r.byItself(pf, x)
}

// fromSource reads a sample into x that is not read by place with others, in a goroutine of its own.
func (r *Prefetcher) fromSource(pf *prefetch, x *staging.Extent) {
	r.mu.Lock()
	pf.state = prefetchReading
	r.mu.Unlock()
	select {
	case r.slots <- struct{}{}:
	case <-r.ctx.Done():
		r.f.o.Staging.Drop(x)
		r.failed(pf)
		return
	}
	r.sources.Go(func() {
		if r.f.isPacked(pf.index) { // the log may have it, and unpacking takes memory of its own
			r.byItself(pf, x)
		} else {
			r.ask(pf, x)
		}
		<-r.slots
	})
}

// byItself reads one sample into x: by place, or else from the source.
func (r *Prefetcher) byItself(pf *prefetch, x *staging.Extent) {
	var q lateReads
	data, ok := r.f.fromLog(r.ctx, pf.index, x.Buf, &q)
	switch {
	case ok:
		r.bring(pf, x, data, false)
	case q.any():
		r.f.dropLater(x, &q)
		r.failed(pf)
	default:
		r.ask(pf, x)
	}
}

func (r *Prefetcher) ask(pf *prefetch, x *staging.Extent) {
	size := r.f.o.Manifest.Size(pf.index)
	data := x.Buf[:size:size]
	late, err := r.f.Source(r.ctx, pf.index, data)
	switch {
	case err == nil:
		r.bring(pf, x, data, true)
		return
	case late != nil:
		r.f.After(late, func() { r.f.o.Staging.Drop(x) })
	default:
		r.f.o.Staging.Drop(x)
	}
	if !errors.Is(err, context.Canceled) {
		r.f.o.Logger.Debug("a sample could not be read ahead", "sample", pf.index, "error", err)
	}
	r.failed(pf)
}

// bring publishes one sample and ends the caller's reference to x.
func (r *Prefetcher) bring(pf *prefetch, x *staging.Extent, data []byte, fromSource bool) {
	r.mu.Lock()
	if keep := len(pf.chunks); keep > 0 && r.ctx.Err() == nil {
		r.publish([]staging.Piece{{Of: x, Index: pf.index, Data: data, Takes: keep, FromSource: fromSource}}, []*prefetch{pf}, nil)
	}
	r.mu.Unlock()
	r.f.o.Staging.Drop(x)
	r.nudge()
}

// failed ends a prefetch that brought no sample, and wakes waiters to look again.
func (r *Prefetcher) failed(pf *prefetch) {
	r.mu.Lock()
	r.forget(pf)
	r.mu.Unlock()
	r.f.o.Staging.Notify()
	r.nudge()
}
