package fetch

import (
	"context"
	"slices"
	"sync"

	"lcache/cores"
	"lcache/sample"
	"lcache/staging"
)

// A Step is a chunk's place in the order of a rank.
type Step struct{ Epoch, Batch int }

func (s Step) before(t Step) bool {
	return s.Epoch < t.Epoch || s.Epoch == t.Epoch && s.Batch < t.Batch
}

// near reports whether a later step is at most leap chunks ahead, counted from its epoch's first where that is the next one.
func (s Step) near(t Step) bool {
	return t.Epoch == s.Epoch && t.Batch-s.Batch <= leap || t.Epoch == s.Epoch+1 && t.Batch <= leap
}

// PrefetcherOptions configure a Prefetcher. The Prefetcher holds no lock of its own while it calls a function.
type PrefetcherOptions struct {
	// Chunk returns the samples of a rank's chunk at a step, and the step after it. ok is false past the job's end, and while the
	// order is not known.
	Chunk func(rank int, at Step) (indices []sample.Index, next Step, ok bool)
	// Leased is how many bytes of the ring clients may hold at once. Reading ahead leaves that part of the ring free.
	Leased int64
	// Ranks is how many ranks are expected. Each rank has its share from the start, so that no chunk is taken back when the others come.
	Ranks int
	// Idle is called with true when the ring is full, and with false when it has room again. Nil is allowed.
	Idle func(bool)
}

// A Prefetcher reads the coming chunks of each rank ahead of their need, as far as the ring has room: samples that the log holds by place,
// many at once, neighbours in one read; the others from the source. In the static layout a Prefetcher does what the pass does in the reordered one.
// Ranks share the ring evenly and don't wait for each other.
type Prefetcher struct {
	f *Fetcher
	o PrefetcherOptions

	ctx     context.Context
	cancel  context.CancelFunc
	listing sync.WaitGroup // the goroutine that lists
	workers sync.WaitGroup // those that verify
	sources sync.WaitGroup // reads from the source, and second tries
	slots   chan struct{}  // a token for each of them
	wake    chan struct{}  // something may be begun

	mu            sync.Mutex // guards the fields that follow; taken before staging's lock
	ranks         map[int]*rankCursor
	prefetches    map[sample.Index]*prefetch
	inFlight      int // reads by place not yet verified
	inFlightBytes int
	landed        []*placeRead // brought, to be verified
	landing       *sync.Cond   // there is something, or the end
	stopping      bool         // no read is begun
	stopped       bool         // and none is published
}

// rankCursor is one rank's position, and the chunks listed for it.
type rankCursor struct {
	rank    int
	next    Step          // to be listed
	blocked bool          // the chunk at next is not known
	chunks  []*chunk      // listed and not passed, in order
	done    map[Step]bool // chunks near next that need no listing, because they were brought by index
	strays  int           // requests in a row for chunks that are passed
	asked   Step
	bytes   int64 // of chunks
}

// chunk is a batch that a rank will ask for.
type chunk struct {
	of         *rankCursor
	at         Step
	prefetches []*prefetch
	left       int // prefetches that are not ready
	bytes      int64
	asked      bool
}

// holds reports whether a sample of the chunk is read already.
func (k *chunk) holds() bool {
	return slices.ContainsFunc(k.prefetches, func(pf *prefetch) bool { return pf.x != nil })
}

type prefetchState uint8

const (
	prefetchQueued  prefetchState = iota
	prefetchReading               // on its way
	prefetchReady                 // published
)

// prefetch is the read of one sample for one or more chunks.
type prefetch struct {
	index  sample.Index
	state  prefetchState
	chunks []*chunk        // that want it
	x      *staging.Extent // once published
}

// mostInFlight and mostInFlightBytes bound the reads in flight, so that a read does not wait for its turn until it counts as late.
const (
	mostInFlight      = 256
	mostInFlightBytes = 16 << 20
)

// lagging is how many chunks behind its newest request a rank's chunks are kept: several workers of one rank don't ask in order. leap is how many
// chunks ahead of the listed ones a request may be without being a jump.
const (
	lagging = 32
	leap    = 64
)

// NewPrefetcher makes a Prefetcher and starts its goroutines. It reads nothing before the first Asked.
func NewPrefetcher(f *Fetcher, o PrefetcherOptions) *Prefetcher {
	r := &Prefetcher{f: f, o: o, slots: make(chan struct{}, f.o.Jobs), wake: make(chan struct{}, 1), ranks: map[int]*rankCursor{}, prefetches: map[sample.Index]*prefetch{}}
	r.landing = sync.NewCond(&r.mu)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.listing.Go(r.list)
	for range max(2, min(4, cores.N)) {
		r.workers.Go(r.verify)
	}
	return r
}

// Stop ends all reading and frees what was read and not delivered. Reads that the disk still owns end in the background; Fetcher.Close waits
// for them.
func (r *Prefetcher) Stop() {
	r.mu.Lock()
	r.stopping = true
	r.mu.Unlock()
	r.cancel()
	r.listing.Wait()
	r.sources.Wait()
	r.mu.Lock()
	r.stopped = true
	for _, c := range r.ranks {
		r.passAll(c)
	}
	r.landing.Broadcast()
	r.mu.Unlock()
	r.workers.Wait()
}

func (r *Prefetcher) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Asked notes which chunk a rank asks for. Reading begins there with the rank's first request, and starts over where the rank jumps to.
func (r *Prefetcher) Asked(rank int, at Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.nudge()
	c := r.ranks[rank]
	if c == nil {
		c = &rankCursor{rank: rank, next: at, done: map[Step]bool{}}
		r.ranks[rank] = c
		if len(r.ranks) > r.o.Ranks {
			r.makeRoom()
		}
	}
	c.asked, c.blocked = at, false
	i := slices.IndexFunc(c.chunks, func(k *chunk) bool { return k.at == at })
	switch {
	case i >= 0:
		c.strays, c.chunks[i].asked = 0, true
		for ; i > lagging; i-- {
			r.pass(c, 0)
		}
	case !at.before(c.next) && at.Epoch == c.next.Epoch && at.Batch-c.next.Batch <= leap:
		c.strays = 0
	case at.before(c.next):
		// Either a delivered chunk is asked for again, or the rank has gone back.
		if c.strays++; c.strays > 1 || len(c.chunks) == 0 {
			r.jump(c, at)
		}
	default:
		r.jump(c, at)
	}
}

func (r *Prefetcher) jump(c *rankCursor, at Step) {
	r.passAll(c)
	clear(c.done)
	c.next, c.strays = at, 0
}

func (r *Prefetcher) passAll(c *rankCursor) {
	for len(c.chunks) > 0 {
		r.pass(c, 0)
	}
}

// pass removes a chunk from a rank's list, and frees what was read for it and not delivered. r.mu is held.
func (r *Prefetcher) pass(c *rankCursor, i int) {
	k := c.chunks[i]
	c.chunks = slices.Delete(c.chunks, i, i+1)
	c.bytes -= k.bytes
	for _, pf := range k.prefetches {
		r.unwant(pf, k)
	}
}

func (r *Prefetcher) unwant(pf *prefetch, k *chunk) {
	if i := slices.Index(pf.chunks, k); i >= 0 {
		pf.chunks = slices.Delete(pf.chunks, i, i+1)
	}
	if pf.x != nil {
		r.f.o.Staging.KeepAtMost(pf.x, len(pf.chunks))
	}
	if len(pf.chunks) == 0 {
		r.forget(pf)
	}
}

// forget removes a prefetch from the table, unless a later prefetch of the same sample has replaced it. r.mu is held.
func (r *Prefetcher) forget(pf *prefetch) {
	if r.prefetches[pf.index] == pf {
		delete(r.prefetches, pf.index)
	}
}

// Delivered notes that a chunk was delivered to a rank.
func (r *Prefetcher) Delivered(rank int, at Step) { r.over(rank, at, true) }

// Skip notes that a chunk is brought by index: its samples that are not in flight are no longer read for it.
func (r *Prefetcher) Skip(rank int, at Step) { r.over(rank, at, false) }

func (r *Prefetcher) over(rank int, at Step, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.ranks[rank]
	if c == nil {
		return
	}
	i := slices.IndexFunc(c.chunks, func(k *chunk) bool { return k.at == at })
	switch {
	case i >= 0 && whole:
		r.pass(c, i)
		r.nudge()
	case i >= 0:
		k := c.chunks[i]
		k.prefetches = slices.DeleteFunc(k.prefetches, func(pf *prefetch) bool {
			queued := pf.state == prefetchQueued
			if queued {
				r.unwant(pf, k)
			}
			return queued
		})
	case !at.before(c.next) && c.next.near(at): // else only a jump leads there
		c.done[at] = true
	}
}

// Changed notes that a rank's order from an epoch on was replaced, or has become known.
func (r *Prefetcher) Changed(rank, epoch int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.ranks[rank]
	if c == nil {
		return
	}
	c.blocked = false
	for n := len(c.chunks); n > 0 && c.chunks[n-1].at.Epoch >= epoch; n-- {
		r.unlist(c)
	}
	r.nudge()
}

// unlist removes the last chunk that was listed for a rank. The chunk is listed again in its turn.
func (r *Prefetcher) unlist(c *rankCursor) {
	last := len(c.chunks) - 1
	c.next = c.chunks[last].at
	r.pass(c, last)
}

// makeRoom unlists the other ranks' chunks beyond their share, which is smaller now that there is one rank more than expected.
func (r *Prefetcher) makeRoom() {
	share := r.share()
	for _, c := range r.ranks {
		for len(c.chunks) > 1 && c.bytes > share {
			r.unlist(c)
		}
	}
}

// squeeze frees a chunk when a chunk that a rank asks for now has no room in the ring. It frees a chunk that is needed later (a read of several samples may
// take more memory than is counted for each), or a chunk of an epoch that its rank has left. r.mu is held.
func (r *Prefetcher) squeeze(needy []*prefetch) bool {
	urgent := slices.ContainsFunc(needy, func(pf *prefetch) bool {
		return slices.ContainsFunc(pf.chunks, func(k *chunk) bool { return !k.of.asked.before(k.at) })
	})
	if !urgent {
		return false
	}
	var most *rankCursor
	for _, c := range r.ranks {
		if r.letGo(c) {
			return true
		}
		if n := len(c.chunks); n > 0 && c.asked.before(c.chunks[n-1].at) && c.chunks[n-1].holds() && (most == nil || c.bytes > most.bytes) {
			most = c
		}
	}
	if most == nil {
		return false
	}
	r.unlist(most)
	return true
}

// letGo frees the first chunk that a rank did not ask for in an epoch that it has left. r.mu is held.
func (r *Prefetcher) letGo(c *rankCursor) bool {
	i := slices.IndexFunc(c.chunks, func(k *chunk) bool { return !k.asked && k.at.Epoch < c.asked.Epoch })
	if i >= 0 {
		r.pass(c, i)
	}
	return i >= 0
}

// share returns how many bytes of the ring each rank may fill.
func (r *Prefetcher) share() int64 {
	ring := r.f.o.Staging.MissBytes()
	return max(ring-r.o.Leased, ring/4) / int64(max(1, r.o.Ranks, len(r.ranks)))
}

// Starved frees the chunks that ranks have left behind, after a request has waited for room until its patience was over.
func (r *Prefetcher) Starved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.ranks {
		for len(c.chunks) > 0 && c.chunks[0].at.before(c.asked) {
			r.pass(c, 0)
		}
	}
	r.nudge()
}

// Look reports whether a sample that a rank asks for at a step is in flight, or will be (queued).
func (r *Prefetcher) Look(rank int, at Step, index sample.Index) (reading, queued bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pf := r.prefetches[index]; pf != nil && pf.state != prefetchReady {
		return pf.state == prefetchReading, pf.state == prefetchQueued
	}
	c := r.ranks[rank]
	return false, c != nil && !c.blocked && !at.before(c.next) && at.Epoch == c.next.Epoch && at.Batch-c.next.Batch <= leap && !c.done[at]
}

// Ready returns how many chunks beyond the one last asked for are ready for a rank.
func (r *Prefetcher) Ready(rank int) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.ranks[rank]; c != nil {
		for _, k := range c.chunks {
			if k.left == 0 && c.asked.before(k.at) {
				n++
			}
		}
	}
	return n
}
