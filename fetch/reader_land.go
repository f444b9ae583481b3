package fetch

import (
	"context"
	"errors"
	"time"

	"lcache/logfile"
	"lcache/sample"
	"lcache/staging"
)

// readBatch are reads that were begun at once, and the clock that runs for them.
type readBatch struct {
	reads []*placeRead
	left  int // not landed
	watch *time.Timer
}

// submit begins reads by place. Those that have not come when the log's time is up are given up; their memory is used again when the
// disk is done with it.
func (r *Reader) submit(batch []*placeRead) {
	if len(batch) == 0 {
		return
	}
	b := &readBatch{reads: batch, left: len(batch)}
	r.mu.Lock()
	for _, p := range batch {
		p.batch = b
		for i := range p.parts {
			p.parts[i].fl.state = flightReading
		}
		r.flying++
		r.flyingBytes += p.bytes
	}
	b.watch = time.AfterFunc(r.f.LogTimeout, func() { r.giveUp(b) })
	r.mu.Unlock()
	r.f.late.Add(len(batch))
	var ranges [2][]logfile.Range
	for _, p := range batch {
		first := p.first()
		ranges[first.slot] = append(ranges[first.slot], logfile.Range{Segment: first.seg, Offset: first.off, Len: int(p.end() - first.off), Buf: p.x.Buf,
			Done: func(data []byte, err error) { r.land(p, data, err) }})
	}
	for slot, many := range ranges {
		switch l := r.f.Logfile(slot); {
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

// land takes what the disk has brought, on a goroutine of the I/O engine.
func (r *Reader) land(p *placeRead, data []byte, err error) {
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
		r.f.Staging.Drop(p.x)
		r.f.late.Done()
	}
}

// giveUp ends the reads of a batch that the disk has not answered: who waits is served otherwise.
func (r *Reader) giveUp(b *readBatch) {
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
			r.forget(p.parts[i].fl)
		}
	}
	r.mu.Unlock()
	if hung == 0 {
		return
	}
	r.f.Stats.Timeouts.Add(int64(hung))
	r.f.Staging.Notify()
	r.nudge()
}

func (r *Reader) arrived(p *placeRead) {
	r.flying--
	r.flyingBytes -= p.bytes
}

// atOnce is how many reads a worker takes, so that the locks are taken once for them.
const atOnce = 8

// verify publishes what has landed and is what it should be.
func (r *Reader) verify() {
	var reads []*placeRead
	var pieces []staging.Piece
	var flights []*flight
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
		pieces, flights = pieces[:0], flights[:0]
		r.mu.Lock()
		for _, g := range good {
			if keep := len(g.fl.chunks); keep > 0 && !r.stopped {
				pieces = append(pieces, staging.Piece{Of: g.x, Index: g.fl.index, Data: g.data, Keep: keep})
				flights = append(flights, g.fl)
			}
		}
		r.publish(pieces, flights, out)
		for _, p := range reads {
			r.arrived(p)
		}
		if r.stopping {
			bad = nil
		}
		r.sources.Add(len(bad))
		r.mu.Unlock()
		for _, p := range reads {
			r.f.Staging.Drop(p.x)
			r.f.late.Done()
		}
		for _, fl := range bad {
			go r.again(fl)
		}
		r.nudge()
	}
}

type verified struct {
	fl   *flight
	x    *staging.Extent
	data []byte
}

// check compares what reads have brought with the sums.
func (r *Reader) check(reads []*placeRead) (good []verified, bad []*flight) {
	for _, p := range reads {
		for i := range p.parts {
			a := &p.parts[i]
			if p.err == nil {
				at := int(a.off - p.first().off)
				if data := p.data[at : at+a.n : at+a.n]; sample.Sum(data) == a.sum {
					good = append(good, verified{a.fl, p.x, data})
					continue
				}
			}
			bad = append(bad, a.fl)
		}
	}
	return good, bad
}

// publish makes samples available to who waits for them. r.mu is held, so that nobody begins or ceases to want one meanwhile.
func (r *Reader) publish(pieces []staging.Piece, flights []*flight, out []*staging.Extent) {
	if len(pieces) == 0 {
		return
	}
	for len(out) < len(pieces) {
		out = append(out, nil)
	}
	r.f.Staging.PublishPieces(pieces, out)
	for i, fl := range flights {
		fl.x, fl.state = out[i], flightReady
		for _, k := range fl.chunks {
			k.left--
		}
	}
}

// again reads a sample whose place did not give its bytes as one that is asked for by index: the place may be another by now, and
// only a second failure is believed.
func (r *Reader) again(fl *flight) {
	defer r.sources.Done()
	r.mu.Lock()
	wanted := len(fl.chunks) > 0
	r.mu.Unlock()
	if !wanted {
		return
	}
	x, ok := r.f.Staging.Alloc(staging.Miss, fl.index, room(r.f.Manifest.Size(fl.index)))
	if !ok {
		r.failed(fl) // who needs it asks by index
		return
	}
	r.byItself(fl, x)
}

// fromSource reads a sample that is not read by place with others into x, beside what else is read.
func (r *Reader) fromSource(fl *flight, x *staging.Extent) {
	r.mu.Lock()
	fl.state = flightReading
	r.mu.Unlock()
	select {
	case r.slots <- struct{}{}:
	case <-r.ctx.Done():
		r.f.Staging.Drop(x)
		r.failed(fl)
		return
	}
	r.sources.Go(func() {
		if r.f.isPacked(fl.index) { // the log may have it: it takes memory of its own meanwhile
			r.byItself(fl, x)
		} else {
			r.ask(fl, x)
		}
		<-r.slots
	})
}

// byItself reads a sample into x: from its place, else from the source.
func (r *Reader) byItself(fl *flight, x *staging.Extent) {
	var q lateReads
	data, ok := r.f.fromLog(r.ctx, fl.index, x.Buf, &q)
	switch {
	case ok:
		r.bring(fl, x, data, false)
	case q.any():
		r.f.dropLater(x, &q)
		r.failed(fl)
	default:
		r.ask(fl, x)
	}
}

func (r *Reader) ask(fl *flight, x *staging.Extent) {
	size := r.f.Manifest.Size(fl.index)
	data := x.Buf[:size:size]
	late, err := r.f.Source(r.ctx, fl.index, data)
	switch {
	case err == nil:
		r.bring(fl, x, data, true)
		return
	case late != nil:
		r.f.After(late, func() { r.f.Staging.Drop(x) })
	default:
		r.f.Staging.Drop(x)
	}
	if !errors.Is(err, context.Canceled) {
		r.f.Logger.Debug("a sample could not be read ahead", "sample", fl.index, "error", err)
	}
	r.failed(fl)
}

// bring publishes one sample and ends the caller's reference to x.
func (r *Reader) bring(fl *flight, x *staging.Extent, data []byte, fromSource bool) {
	r.mu.Lock()
	if keep := len(fl.chunks); keep > 0 && r.ctx.Err() == nil {
		r.publish([]staging.Piece{{Of: x, Index: fl.index, Data: data, Keep: keep, FromSource: fromSource}}, []*flight{fl}, nil)
	}
	r.mu.Unlock()
	r.f.Staging.Drop(x)
	r.nudge()
}

// failed ends a flight that nothing came of, and lets who waits look again.
func (r *Reader) failed(fl *flight) {
	r.mu.Lock()
	r.forget(fl)
	r.mu.Unlock()
	r.f.Staging.Notify()
	r.nudge()
}
