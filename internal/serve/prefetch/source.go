package prefetch

import (
	"context"
	"errors"

	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// readSingly begins reads on a path until Stop, each in a goroutine of its own. It holds a token of the path while it waits for memory,
// but no other goroutine waits for that token.
func (r *Prefetcher) readSingly(from sample.Origin) {
	read := r.pathFrom(from).read
	for {
		select {
		case r.slots[from] <- struct{}{}:
		case <-r.ctx.Done():
			return
		}
		var burst []*prefetch
		for {
			if burst = r.take(from, 1, 1); len(burst) > 0 {
				break
			}
			select {
			case <-r.wakes[from]:
			case <-r.ctx.Done():
				return
			}
		}
		pf := burst[0]
		x, _ := r.wait(from, fetch.SideBytes(pf.size), burst, func() bool { return true }, func() {})
		if x == nil {
			<-r.slots[from]
			continue
		}
		r.single(pf, x, read)
	}
}

// readPacked reads a sample that must be decompressed.
func (r *Prefetcher) readPacked(pf *prefetch) {
	select {
	case r.slots[sample.FromLog] <- struct{}{}:
	case <-r.ctx.Done():
		r.failed(pf)
		return
	}
	x, _ := r.wait(sample.FromLog, fetch.SideBytes(pf.size), []*prefetch{pf}, func() bool { return true }, func() {})
	if x == nil {
		<-r.slots[sample.FromLog]
		return
	}
	r.single(pf, x, r.readOne)
}

// single reads one sample to x in a goroutine, which returns the caller's token. It does not read a sample that no chunk wants any
// longer, because a request may be reading it by index.
func (r *Prefetcher) single(pf *prefetch, x *staging.Extent, read func(*prefetch, *staging.Extent)) {
	p := pf.path
	r.mu.Lock()
	wanted := len(pf.chunks) > 0
	work := pf.work
	if wanted {
		pf.state = prefetchReading
		r.enter(work, p)
	}
	r.mu.Unlock()
	if !wanted {
		r.cache.Staging.Drop(x)
		<-r.slots[p]
		r.failed(pf)
		return
	}
	r.singles.Go(func() {
		read(pf, x)
		r.mu.Lock()
		r.leave(work, p)
		r.mu.Unlock()
		<-r.slots[p]
		r.wakeUp(int(p))
	})
}

// retry reads a sample again, by index, after a checksum mismatch. The sample may have moved meanwhile, so only a second mismatch
// counts. Without memory for it, the sample is listed again for a random read.
func (r *Prefetcher) retry(pf *prefetch) {
	defer r.singles.Done()
	r.mu.Lock()
	wanted := len(pf.chunks) > 0
	r.mu.Unlock()
	if !wanted {
		r.failed(pf)
		return
	}
	x, ok := r.alloc(pf, fetch.SideBytes(pf.size))
	switch {
	case ok:
		r.readOne(pf, x)
	case pf.retried:
		r.failed(pf) // a request will read it by index
	default:
		pf.retried = true
		r.mu.Lock()
		r.putBack(pf, sample.FromLog)
		r.mu.Unlock()
	}
}

// readOne reads one sample to x: from memory, at its location in the log, or on the next path.
func (r *Prefetcher) readOne(pf *prefetch, x *staging.Extent) {
	if data, ok := r.f.FromMemory(pf.index, x.Buf); ok {
		r.publishOne(pf, x, data, sample.FromMemory)
		return
	}
	data, ok, late := r.f.FromLog(r.ctx, pf.index, x)
	switch {
	case ok:
		r.publishOne(pf, x, data, sample.FromLog)
	case late:
		r.failed(pf)
	default:
		r.pathFrom(r.pathAfter(sample.FromLog, pf.index)).read(pf, x)
	}
}

// readSource reads one sample from the source into x, unless memory has it.
func (r *Prefetcher) readSource(pf *prefetch, x *staging.Extent) {
	if data, ok := r.f.FromMemory(pf.index, x.Buf); ok {
		r.publishOne(pf, x, data, sample.FromMemory)
		return
	}
	data := x.Buf[:pf.size:pf.size]
	from, late, err := r.f.Source(r.counted(pf), pf.index, data)
	switch {
	case err == nil:
		r.publishOne(pf, x, data, from)
		return
	case late != nil:
		r.f.After(late, func() { r.cache.Staging.Drop(x) })
	default:
		r.cache.Staging.Drop(x)
	}
	if !errors.Is(err, context.Canceled) {
		r.cache.Logger.Debug("sample not prefetched; the request reads it", "sample", pf.index, "error", err)
	}
	r.failed(pf)
}

// counted returns a context whose reads count for the job that the prefetch was begun for.
func (r *Prefetcher) counted(pf *prefetch) context.Context {
	r.mu.Lock()
	of := pf.of
	r.mu.Unlock()
	if of == nil || r.o.Count == nil {
		return r.ctx
	}
	return fetch.CountedBy(r.ctx, r.o.Count(of.rank.Job))
}

// publishOne publishes one sample and drops the caller's reference to x.
func (r *Prefetcher) publishOne(pf *prefetch, x *staging.Extent, data []byte, from sample.Origin) {
	r.mu.Lock()
	r.settle(pf)
	if keep := len(pf.chunks); keep > 0 && r.ctx.Err() == nil {
		r.publish([]staging.Piece{{Of: x, Index: pf.index, Data: data, Takes: keep, From: from}}, []*prefetch{pf}, make([]*staging.Extent, 1))
	}
	r.mu.Unlock()
	r.cache.Staging.Drop(x)
	r.wakeAll()
}

// failed ends a prefetch without a sample, and wakes waiters to look again.
func (r *Prefetcher) failed(pf *prefetch) {
	r.mu.Lock()
	r.settle(pf)
	r.forget(pf)
	r.mu.Unlock()
	pf.dropOpportunistic()
	r.cache.Staging.Notify()
	r.wakeAll()
}
