package prefetch

import (
	"context"
	"slices"
	"sync"
	"time"

	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// Bounds of requests to peers. A request for 1 MiB keeps a peer's disk and the network busy together with the next one.
const (
	peerBurstSamples = 2048
	peerBurstBytes   = 8 << 20
	peerListSamples  = 256
	peerListBytes    = 1 << 20
	peerBytes        = 8 << 20  // requested from one peer and not received yet; then it is asked for no more
	peerWaiting      = 16 << 20 // of requests that wait for their peers; then no more samples are looked up
	samplesWaiting   = 4096     // likewise
)

// longestRequest bounds a request to a peer that brings samples all the time, in units of SourceTimeout.
const longestRequest = 20

// peerRequest asks one peer for several samples. Its memory is reserved before it is sent, so the peer never waits for memory here. It is the Sink of
// what the peer sends.
type peerRequest struct {
	r          *Prefetcher
	peer       string
	prefetches []*prefetch
	bytes      int // of memory
	level      int // of the peer, when the request was made
	began      time.Time
	x          *staging.Extent
	places     map[sample.Index]*arriving
	verifying  sync.WaitGroup // samples that are complete, and with a worker
}

// whole is a sample of a request that is complete, to be verified.
type whole struct {
	q *peerRequest
	p *arriving
	a fetch.Arrival
}

// mostWhole bounds the samples that wait for a worker. One more is verified on the goroutine that reads the peer's stream, which slows the peer down.
const mostWhole = 1024

// arriving is the state of one sample of a request.
type arriving struct {
	pf   *prefetch
	at   int // in the extent
	over bool
}

// requestFromPeers begins requests to peers until Stop. Requests to a peer that has much to send already wait, and do not delay requests to others.
func (r *Prefetcher) requestFromPeers() {
	var waiting []*peerRequest
	for r.ctx.Err() == nil {
		waiting = r.sendSome(waiting)
		bytes, samples := 0, 0
		for _, q := range waiting {
			bytes, samples = bytes+q.bytes, samples+len(q.prefetches)
		}
		if bytes < peerWaiting && samples < samplesWaiting {
			if burst := r.take(sample.FromPeer, peerBurstSamples, peerBurstBytes); len(burst) > 0 {
				waiting = append(waiting, r.byPeer(burst)...)
				continue
			}
		}
		select {
		case <-r.wakes[sample.FromPeer]:
		case <-r.ctx.Done():
		}
	}
	for _, q := range waiting {
		for _, pf := range q.prefetches {
			r.failed(pf)
		}
	}
}

// sendSome sends the requests whose peers have little to send, and returns the others.
func (r *Prefetcher) sendSome(lists []*peerRequest) (waiting []*peerRequest) {
	for len(lists) > 0 && r.ctx.Err() == nil {
		q := lists[0]
		lists = lists[1:]
		r.mu.Lock()
		r.thin(q)
		isFree := r.mayAsk(q.peer)
		r.mu.Unlock()
		if len(q.prefetches) == 0 {
			continue
		}
		if !isFree {
			waiting = append(waiting, q)
			continue
		}
		var inPieces bool
		if q.x, inPieces = r.wait(sample.FromPeer, q.bytes, q.prefetches, func() bool { return true }, func() {}); inPieces {
			lists = append(q.split(), lists...)
		}
		if q.x != nil {
			r.request(q)
		}
	}
	return append(waiting, lists...)
}

// mayAsk reports whether a peer may be asked for more now. r.mu is held.
func (r *Prefetcher) mayAsk(peer string) bool { return r.requested[peer] < peerBytes }

// byPeer groups a burst into requests, each for one peer. A sample that no peer should be asked for goes to the next path.
func (r *Prefetcher) byPeer(burst []*prefetch) (lists []*peerRequest) {
	open := map[string]*peerRequest{}
	for _, pf := range burst {
		peer, ok := r.cache.Peers.Holder(pf.index, pf.asked)
		r.mu.Lock()
		level := r.slow.level(peer)
		if !ok || r.leaveToSource(peer, 0) {
			r.putBack(pf, r.pathAfter(sample.FromPeer, pf.index))
			r.mu.Unlock()
			continue
		}
		r.isDue(pf, peer)
		r.mu.Unlock()
		q, n := open[peer], fetch.SideBytes(pf.size)
		if q == nil || len(q.prefetches) == peerListSamples || q.bytes+n > peerListBytes {
			q = &peerRequest{r: r, peer: peer, level: level}
			open[peer] = q
			lists = append(lists, q)
		}
		q.prefetches = append(q.prefetches, pf)
		q.bytes += n
	}
	return lists
}

// thin leaves a part of a request's samples to the source, if its peer has become slower since it was made. r.mu is held.
func (r *Prefetcher) thin(q *peerRequest) {
	level := r.slow.level(q.peer)
	if level <= q.level {
		return
	}
	q.prefetches = slices.DeleteFunc(q.prefetches, func(pf *prefetch) bool {
		isLeft := r.leaveToSource(q.peer, q.level)
		if isLeft {
			q.bytes -= fetch.SideBytes(pf.size)
			r.putBack(pf, r.pathAfter(sample.FromPeer, pf.index))
		}
		return isLeft
	})
	q.level = level
}

// split returns one request for each sample.
func (q *peerRequest) split() (each []*peerRequest) {
	for _, pf := range q.prefetches {
		each = append(each, &peerRequest{r: q.r, peer: q.peer, level: q.level, prefetches: []*prefetch{pf}, bytes: fetch.SideBytes(pf.size)})
	}
	return each
}

// request sends a request that has its memory. A goroutine waits for its end.
func (r *Prefetcher) request(q *peerRequest) {
	q.places, q.began = make(map[sample.Index]*arriving, len(q.prefetches)), time.Now()
	indices := make([]sample.Index, 0, len(q.prefetches))
	at, align := 0, r.cache.Staging.Align()
	r.mu.Lock()
	for _, pf := range q.prefetches {
		if len(pf.chunks) == 0 || q.places[pf.index] != nil { // nobody wants it any longer
			r.settle(pf)
			r.forget(pf)
			continue
		}
		pf.state = prefetchReading
		q.places[pf.index] = &arriving{pf: pf, at: at}
		indices = append(indices, pf.index)
		at += (int(pf.size) + align - 1) / align * align
	}
	if len(indices) == 0 {
		r.mu.Unlock()
		r.cache.Staging.Drop(q.x)
		return
	}
	work := q.places[indices[0]].pf.work
	r.requested[q.peer] += q.bytes
	r.enter(work, sample.FromPeer)
	brings := r.supplyOf(q.peer).begin(r.ctx)
	r.mu.Unlock()
	r.singles.Go(func() {
		ctx, cancel := context.WithTimeout(brings, longestRequest*r.f.Options().SourceTimeout)
		err := r.cache.Peers.Fetch(ctx, q.peer, indices, q)
		cancel()
		q.verifying.Wait()
		if err != nil && r.ctx.Err() == nil {
			r.cache.Logger.Debug("a request to a peer failed; what is missing comes from elsewhere", "peer", q.peer, "samples", len(indices), "error", err)
		}
		for _, a := range q.places {
			if !a.over {
				r.askNext(a.pf)
			}
		}
		r.cache.Staging.Drop(q.x)
		r.mu.Lock()
		r.leave(work, sample.FromPeer)
		r.supplyOf(q.peer).end()
		if r.requested[q.peer] -= q.bytes; r.requested[q.peer] == 0 {
			delete(r.requested, q.peer)
		}
		r.mu.Unlock()
		r.wakeAll()
	})
}

// askNext lists a prefetch for the next peer that should have the sample, or for the path after the peers.
func (r *Prefetcher) askNext(pf *prefetch) {
	pf.asked++
	next := sample.FromPeer
	if _, ok := r.cache.Peers.Holder(pf.index, pf.asked); !ok {
		next = r.pathAfter(sample.FromPeer, pf.index)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(pf.chunks) == 0 {
		r.settle(pf)
		r.forget(pf)
		return
	}
	r.putBack(pf, next)
}

// Room implements fetch.Sink.
func (q *peerRequest) Room(a fetch.Arrival) []byte {
	p := q.places[a.Index]
	if p == nil || p.over || uint64(a.Offset)+uint64(a.Length) > uint64(p.pf.size) {
		return nil
	}
	return q.x.Buf[p.at+int(a.Offset):][:a.Length:a.Length]
}

// Came implements fetch.Sink. It passes a sample that is complete to a worker, because the peer's next samples wait on the goroutine that calls it.
func (q *peerRequest) Came(a fetch.Arrival) {
	p, r := q.places[a.Index], q.r
	switch {
	case p == nil || p.over:
		return
	case !a.Absent && uint64(a.Offset)+uint64(a.Length) < uint64(p.pf.size):
		return
	}
	p.over = true
	if a.Absent {
		r.askNext(p.pf)
		return
	}
	w := whole{q, p, a}
	q.verifying.Add(1)
	select {
	case r.wholes <- w:
	default:
		r.takeWhole(w)
	}
}

// verifyWholes verifies samples from peers until all requests to peers have ended.
func (r *Prefetcher) verifyWholes() {
	for w := range r.wholes {
		r.takeWhole(w)
	}
}

// takeWhole verifies a sample from a peer, and publishes it.
func (r *Prefetcher) takeWhole(w whole) {
	defer w.q.verifying.Done()
	pf := w.p.pf
	data := w.q.x.Buf[w.p.at:][:pf.size:pf.size]
	if !r.f.Received(r.counted(pf), w.q.peer, w.a, data, w.q.began) {
		r.askNext(pf)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle(pf)
	s := r.supplyOf(w.q.peer)
	s.bytes += int64(pf.size)
	if w.a.FromSource {
		s.via += int64(pf.size)
	}
	if keep := len(pf.chunks); keep > 0 && !r.stopped {
		var out [1]*staging.Extent
		r.publish([]staging.Piece{{Of: w.q.x, Index: w.a.Index, Data: data, Takes: keep, From: w.a.From()}}, []*prefetch{pf}, out[:])
	} else {
		r.forget(pf)
	}
}

// readPeer requests one sample from peers, and reads it from the source if no peer has it.
func (r *Prefetcher) readPeer(pf *prefetch, x *staging.Extent) {
	if r.cache.Peers != nil {
		data := x.Buf[:pf.size:pf.size]
		if from, ok := r.f.Peer(r.counted(pf), pf.index, data); ok {
			r.publishOne(pf, x, data, from)
			return
		}
	}
	r.readSource(pf, x)
}

// isWithPeer reports whether a peer should have a sample.
func (r *Prefetcher) isWithPeer(index sample.Index) bool {
	_, ok := r.cache.Peers.Holder(index, 0)
	return ok
}

// withPeers adds the path of other machines to the paths of this one, before the source.
func (r *Prefetcher) withPeers(paths []path) []path {
	if r.cache.Peers == nil {
		return paths
	}
	return slices.Insert(paths, len(paths)-1, path{from: sample.FromPeer, jobs: 1, has: r.isWithPeer, begin: r.requestFromPeers, read: r.readPeer})
}
