// Package prefetch reads samples ahead of the requests of ranks whose order is known: from the log at their locations, many at once, or else from the source.
//
// In the static layout it loads every sample, and in the log layout those that the scan does not load. Its owner says which chunk comes at a position (Options.Chunk), and reports requests
// and deliveries (Prefetcher.Asked, Prefetcher.Delivered). Samples are published in staging, where requests find them. Single reads, deadlines and checksums are package fetch's.
package prefetch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lcache/chunker"
	"lcache/internal/host"
	"lcache/internal/serve/fetch"
	"lcache/sample"
)

// Options configure a Prefetcher. The Prefetcher holds no lock of its own while it calls Chunk, Later or Idle.
type Options struct {
	// Chunk returns the chunk at a position. ok is false past the job's end, while the order is not known, and where nothing is left to
	// the Prefetcher from there on: it calls Chunk again after Changed or Refresh, and where the rank has jumped.
	Chunk func(at chunker.Position) (c Coming, ok bool)
	// Later is Chunk for chunks that are noted for copies, and may never be listed. Nil: Chunk.
	Later func(at chunker.Position) (c Coming, ok bool)
	// Count returns the Counts of single reads for a job. Nil is allowed.
	Count func(job int) *fetch.Counts
	// Side lets chunks lie in side memory, too, as far as no request waits for it. A request that does gets it back.
	Side bool
	// Leased is how many bytes clients may hold at once. Reading ahead leaves that part of the memory free.
	Leased int64
	// Ranks is how many ranks are expected. Each rank has its share from the start, so that no chunk is taken back when the others come.
	Ranks int
	// Idle is called with true when the memory is full, and with false when it has room again. Nil is allowed.
	Idle func(bool)
}

// A Prefetcher reads the coming chunks of each rank ahead of their need, as far as there is memory: samples that the log holds by place, many at
// once, neighbours in one read; the others on the next path that has them, last from the source. Its unit is a chunk's CM. Each path has a goroutine and limits
// of its own, so that one that hangs does not hold up the other. Ranks share memory evenly and don't wait for each other. What is in flight is shared evenly
// between jobs, then between a job's ranks.
//
// In the static layout it brings every sample. In the reordered one it brings what the pass leaves: samples that the log does not keep, and all samples of a rank
// that the window does not serve.
type Prefetcher struct {
	f     *fetch.Fetcher
	cache fetch.Options // what the Fetcher works with
	o     Options

	ctx     context.Context
	cancel  context.CancelFunc
	loops   sync.WaitGroup                    // the goroutines that list, and that begin reads
	workers sync.WaitGroup                    // those that verify
	singles sync.WaitGroup                    // reads of one sample
	paths   []path                            // in the order in which a sample is looked for
	slots   [sample.Origins]chan struct{}     // of each path: tokens for reads of one sample
	wakes   [sample.Origins + 1]chan struct{} // of each path, and of the goroutine that lists
	side    atomic.Bool                       // chunks lie in side memory, too
	idle    atomic.Bool                       // what Options.Idle was told last
	inSlots atomic.Int64                      // prefetches that are, or become, prefetchInSlot

	mu            sync.Mutex // guards the fields that follow; taken before staging's lock
	ranks         map[chunker.JobRank]*rankCursor
	prefetches    map[sample.Index]*prefetch
	later         laterSamples
	inFlight      int // reads by place, of several samples, not yet verified
	inFlightBytes int
	depth         int                         // at most this many in flight
	patient       int                         // job whose bytes in flight count patience-fold; -1: none
	landed        []*placeRead                // brought, to be verified
	landing       *sync.Cond                  // there is something, or the end
	inHand        [sample.Origins][]*prefetch // the last burst that was taken
	gaveWay       [sample.Origins]bool        // the next burst is of what ranks ask for now, if there is something to be begun of that
	work          map[int]*meters             // by job, and AllJobs
	stopping      bool                        // no read is begun
	stopped       bool                        // and none is published
}

// listing is the number in wakes of the goroutine that lists.
const listing = int(sample.Origins)

// mostInFlight and mostInFlightBytes bound the reads by place in flight, so that a read does not wait for its turn until it counts as late. The others are for
// SetDepth: on a device that is limited in operations each read in flight keeps the pass's large ones waiting. BesideThePass lets the pass get on.
const (
	mostInFlight      = 256
	mostInFlightBytes = 16 << 20
	BesideThePass     = 32
)

// lagging is how many chunks behind its newest request a rank's chunks are kept: several workers of one rank don't ask in order. leap is how many
// chunks ahead of the listed ones a request may be without being a jump. mostListed bounds the chunks listed for a rank, however small they are.
const (
	lagging    = 32
	leap       = 64
	mostListed = 4096
)

// New makes a Prefetcher and starts its goroutines. It reads nothing before the first Asked. A Fetcher has at most one.
func New(f *fetch.Fetcher, o Options) *Prefetcher {
	return newPrefetcher(f, o, (*Prefetcher).usual)
}

func newPrefetcher(f *fetch.Fetcher, o Options, paths func(*Prefetcher) []path) *Prefetcher {
	if o.Later == nil {
		o.Later = o.Chunk
	}
	r := &Prefetcher{f: f, cache: f.Options(), o: o, depth: mostInFlight, patient: -1, work: map[int]*meters{AllJobs: {}}, ranks: map[chunker.JobRank]*rankCursor{}, prefetches: map[sample.Index]*prefetch{},
		later: laterSamples{samples: map[sample.Index]*laterSample{}}}
	for i := range r.wakes {
		r.wakes[i] = make(chan struct{}, 1)
	}
	r.landing = sync.NewCond(&r.mu)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	for _, p := range paths(r) {
		r.paths, r.slots[p.from] = append(r.paths, p), make(chan struct{}, p.jobs)
	}
	r.loops.Go(r.list)
	for _, p := range r.paths {
		r.loops.Go(p.begin)
	}
	for range max(2, min(4, host.Cores)) {
		r.workers.Go(r.verify)
	}
	if o.Side {
		r.UseSide()
	}
	return r
}

// UseSide lets chunks lie in side memory from now on, as Options.Side does from the start. The caller may have made the ring smaller: what ranks have beyond
// their share then is freed.
func (r *Prefetcher) UseSide() {
	r.side.Store(true)
	r.f.SetYielder(r)
	r.mu.Lock()
	r.makeRoom()
	r.mu.Unlock()
	r.nudge()
}

// Stop ends all reading and frees what was read and not delivered. Reads that the disk still owns end in the background; Fetcher.Close waits
// for them.
func (r *Prefetcher) Stop() {
	r.mu.Lock()
	r.stopping = true
	r.mu.Unlock()
	r.cancel()
	r.loops.Wait()
	r.singles.Wait()
	r.mu.Lock()
	r.stopped = true
	for _, c := range r.ranks {
		r.passAll(c)
		r.dropAllLater(c)
	}
	r.landing.Broadcast()
	r.mu.Unlock()
	r.workers.Wait()
}

// SetDepth bounds the reads by place in flight; 0: as many as the device wants.
func (r *Prefetcher) SetDepth(reads int) {
	if reads <= 0 || reads > mostInFlight {
		reads = mostInFlight
	}
	r.mu.Lock()
	r.depth = reads
	r.mu.Unlock()
	r.nudge()
}

// patience is how many times more than the patient job others have in flight.
const patience = 3

// SetPatient says which job leaves others more than an even part of what is in flight; -1: none does.
func (r *Prefetcher) SetPatient(job int) {
	r.mu.Lock()
	r.patient = job
	r.mu.Unlock()
}

// nudge wakes all goroutines that begin something.
func (r *Prefetcher) nudge() {
	for _, wake := range r.wakes {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// Asked notes which chunk a rank asks for. Reading begins there with the rank's first request, and starts over where the rank jumps to.
func (r *Prefetcher) Asked(at chunker.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.nudge()
	c := r.ranks[at.JobRank()]
	if c == nil {
		c = &rankCursor{rank: at.JobRank(), next: at, done: map[chunker.Position]bool{}, work: r.meters(at.Job)}
		r.ranks[c.rank] = c
		if len(r.ranks) > r.o.Ranks {
			r.makeRoom()
		}
	}
	before := c.asked
	c.asked = at
	i, listed := c.find(at)
	switch {
	case listed:
		c.strays, c.chunks[i].asked = 0, true
		c.chunks[i].bringForward()
		for ; i > lagging; i-- {
			r.pass(c, 0)
		}
	case c.done[at]: // an answer was lost, or the rank has gone back
		if c.strays++; c.strays > 1 {
			r.jump(c, at)
		}
	case at.Before(c.next) && isFarBehind(at, before), !at.Before(c.next) && !isNear(c.next, at):
		r.jump(c, at)
	default: // to be listed soon; or it was, and nothing of it was left to the Prefetcher
		c.strays = 0
	}
}

func (r *Prefetcher) jump(c *rankCursor, at chunker.Position) {
	r.passAll(c)
	r.dropAllLater(c)
	clear(c.done)
	c.next, c.strays, c.blocked = at, 0, false
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
	for p := range c.begun {
		if i < c.begun[p] {
			c.begun[p]--
		}
	}
	c.bytes -= k.bytes
	for _, pf := range k.prefetches {
		r.unwant(pf, k)
	}
}

// unwant ends a chunk's interest in a sample. A sample that another chunk wants, too, and that is not begun, is put on that chunk's list.
// r.mu is held.
func (r *Prefetcher) unwant(pf *prefetch, k *chunk) {
	if i := slices.Index(pf.chunks, k); i >= 0 {
		pf.chunks = slices.Delete(pf.chunks, i, i+1)
	}
	if pf.x != nil {
		r.cache.Staging.KeepAtMost(pf.x, len(pf.chunks))
	}
	if pf.on == k {
		pf.leaveList()
		if len(pf.chunks) > 0 {
			pf.enlist()
		}
	}
	if len(pf.chunks) == 0 {
		if pf.state == prefetchInSlot {
			r.inSlots.Add(-1)
		}
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
func (r *Prefetcher) Delivered(at chunker.Position) { r.over(at, true) }

// Skip notes that a chunk is brought by index: its samples that are not in flight are no longer read for it.
func (r *Prefetcher) Skip(at chunker.Position) { r.over(at, false) }

func (r *Prefetcher) over(at chunker.Position, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.ranks[at.JobRank()]
	if c == nil {
		return
	}
	i, listed := c.find(at)
	switch {
	case listed && whole:
		c.pace.take(c.chunks[i].bytes, time.Now())
		r.pass(c, i)
		r.nudge()
	case listed:
		r.leaveOut(c.chunks[i], func(sample.Index) bool { return true })
	}
	if whole || !listed {
		c.isDone(at)
	}
}

// leaveOut takes samples off a chunk whose reads are not begun. r.mu is held.
func (r *Prefetcher) leaveOut(k *chunk, which func(sample.Index) bool) {
	k.prefetches = slices.DeleteFunc(k.prefetches, func(pf *prefetch) bool {
		if pf.state != prefetchQueued && pf.state != prefetchTaken || !which(pf.index) {
			return false
		}
		r.unwant(pf, k)
		k.left--
		k.of.bytes -= int64(fetch.SideBytes(pf.size))
		k.bytes -= int64(fetch.SideBytes(pf.size))
		return true
	})
}

// Changed notes that a rank's order from an epoch on was replaced, or has become known.
func (r *Prefetcher) Changed(rank chunker.JobRank, epoch int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.ranks[rank]
	if c == nil {
		return
	}
	c.blocked = false
	r.dropAllLater(c)
	for n := len(c.chunks); n > 0 && c.chunks[n-1].at.Epoch >= epoch; n-- {
		r.unlist(c)
	}
	maps.DeleteFunc(c.done, func(s chunker.Position, _ bool) bool { return s.Epoch >= epoch })
	from := rank.At(epoch, 0)
	if from.Before(c.asked) {
		from = c.asked
	}
	if from.Before(c.next) { // chunks of which nothing was left were listed without a trace
		c.next = from
	}
	r.nudge()
}

// Refresh notes that something else brings a rank's samples from now on, or no longer does: its chunks are listed again from a position on. What is read
// for them stays.
func (r *Prefetcher) Refresh(from chunker.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.ranks[from.JobRank()]
	if c == nil {
		return
	}
	c.next, c.blocked = from, false
	for _, k := range c.chunks {
		k.stale = !k.at.Before(from)
	}
	r.nudge()
}

// Forget lets go of a rank and of all that was read for it: it sleeps, or its job is over. When the rank asks again, reading begins again.
func (r *Prefetcher) Forget(rank chunker.JobRank) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.ranks[rank]
	if c == nil {
		return
	}
	r.passAll(c)
	r.dropAllLater(c)
	delete(r.ranks, rank)
	if !r.hasRanks(rank.Job) {
		delete(r.work, rank.Job)
	}
	r.nudge()
}

// Look reports whether a sample that a rank asks for at a position is in flight, or will be (queued). What is queued for other chunks alone does not count: it may wait for
// memory until those are needed.
func (r *Prefetcher) Look(at chunker.Position, index sample.Index) (reading, queued bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if pf := r.prefetches[index]; pf != nil {
		if pf.state == prefetchInSlot {
			r.leftSlot(pf)
		}
		if pf.state == prefetchReady && pf.x != nil && r.cache.Staging.Restore(pf.x) {
			return true, false // the caller looks into staging once more
		}
		if pf.state == prefetchReady && len(pf.chunks) > 0 && !r.cache.Staging.Kept(pf.x) && !r.cache.Staging.Present(index) { // another request took it, for a chunk that was not listed yet
			pf.x = nil
			r.readOnceMore(pf)
			r.wakeUp(int(pf.path))
		}
		switch {
		case pf.state == prefetchReading:
			return true, false
		case pf.state != prefetchReady && pf.isFor(at):
			return false, true
		}
	}
	c := r.ranks[at.JobRank()]
	return false, c != nil && !c.blocked && !at.Before(c.next) && at.Epoch == c.next.Epoch && at.Batch-c.next.Batch <= leap && !c.done[at]
}
