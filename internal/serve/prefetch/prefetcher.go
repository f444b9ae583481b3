// Package prefetch reads samples before ranks request them: from the log with random reads, many at once, from other machines, or else from the source.
//
// It needs the ranks' order. In the static layout it loads every sample, and in the log layout the samples that the scan does not load.
// The caller provides the chunk at each position (Options.Chunk), and reports requests and deliveries (Prefetcher.Asked,
// Prefetcher.Delivered). Samples are published in staging, where requests find them. Package fetch does single reads, deadlines and checksums.
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

// Options configure a Prefetcher. It holds no lock while it calls Chunk, Later or Idle.
type Options struct {
	// Chunk returns the chunk at a position. ok is false after the job's end, while the order is not known, and if the Prefetcher must load
	// nothing from there on. The Prefetcher calls Chunk again after Changed or Refresh, and when the rank jumps.
	Chunk func(at chunker.Position) (c Upcoming, ok bool)
	// Later replaces Chunk for a chunk whose samples are only noted for copies, and that may never be listed. Nil: Chunk.
	Later func(at chunker.Position) (c Upcoming, ok bool)
	// Count returns the Counts of single reads of a job. It may be nil.
	Count func(job int) *fetch.Counts
	// Side lets chunks use side memory too. Requests that wait for side memory get it back.
	Side bool
	// Leased is the number of bytes that clients may hold at once. Prefetching leaves that part of the memory free.
	Leased int64
	// Ranks is the number of expected ranks. Each rank has its share from the start, so no chunk is evicted when the other ranks connect.
	Ranks int
	// Idle is called with true when the memory is full, and with false when it has room again. It may be nil.
	Idle func(bool)
}

// A Prefetcher reads the coming chunks of each rank, as far as there is memory. It reads samples in the log with random reads, many at
// once, with neighbours in one read. Other samples come from the next path that has them, and finally from the source. Ranks share half
// of the memory evenly and the other half by pace, and do not wait for each other. Reads in flight are shared evenly between jobs, then
// between a job's ranks.
//
// In the static layout it reads every sample. In the log layout it reads the samples that the log does not keep, and all samples of
// ranks that the prefetch window does not serve.
type Prefetcher struct {
	f     *fetch.Fetcher
	cache fetch.Options // of the Fetcher
	o     Options

	ctx     context.Context
	cancel  context.CancelFunc
	loops   sync.WaitGroup                    // the goroutines that list and that begin reads
	workers sync.WaitGroup                    // the goroutines that verify
	singles sync.WaitGroup                    // reads of one sample
	wholes  chan whole                        // samples from peers, to be verified; closed when all singles have ended
	paths   []path                            // in the order in which they are asked for a sample
	slots   [sample.Origins]chan struct{}     // by path: tokens for reads of one sample
	wakes   [sample.Origins + 1]chan struct{} // by path, and of the goroutine that lists
	side    atomic.Bool                       // chunks may use side memory too
	idle    atomic.Bool                       // the last argument of Options.Idle
	inSlots atomic.Int64                      // prefetches that are, or become, prefetchInSlot

	mu            sync.Mutex // guards the fields that follow; taken before staging's lock
	ranks         map[chunker.JobRank]*rankCursor
	prefetches    map[sample.Index]*prefetch
	later         laterSamples
	inFlight      int // random reads of several samples, not yet verified
	inFlightBytes int
	requested     map[string]int         // bytes of requests to each peer that have not ended
	supplies      map[string]*peerSupply // by peer
	slow          slowPeers
	depth         int                         // limit of the random reads in flight
	patient       int                         // job whose bytes in flight count patience times; -1: none
	landed        []*randomRead               // complete, to be verified
	landing       *sync.Cond                  // signals landed and stopped
	taken         [sample.Origins][]*prefetch // by path: the last burst, and those of earlier bursts that wait for their peers
	yielded       [sample.Origins]bool        // the next burst has urgent prefetches only, if there are any
	work          map[int]*meters             // by job, and AllJobs
	stopping      bool                        // no read begins any longer
	stopped       bool                        // no sample is published any longer
}

// listing is the number in wakes of the goroutine that lists.
const listing = int(sample.Origins)

// mostInFlight and mostInFlightBytes bound the random reads in flight, so that no read waits in the device's queue until its deadline.
// Callers may set a lower limit with SetDepth: on a device that is limited in operations, random reads delay the large reads of a
// scan. MostDuringScan is the limit that lets a scan advance.
const (
	mostInFlight      = 256
	mostInFlightBytes = 16 << 20
	MostDuringScan    = 32
)

// A rank's chunk is kept until the newest request is lagging chunks further, because workers of one rank do not request in order. A
// request up to leap chunks after the listed ones is not a jump. mostListed bounds the listed chunks of a rank, however small they are.
const (
	lagging    = 32
	leap       = 64
	mostListed = 4096
)

// New makes a Prefetcher and starts its goroutines. It reads nothing before the first Asked. A Fetcher has at most one Prefetcher.
func New(f *fetch.Fetcher, o Options) *Prefetcher {
	return newPrefetcher(f, o, (*Prefetcher).usual)
}

func newPrefetcher(f *fetch.Fetcher, o Options, paths func(*Prefetcher) []path) *Prefetcher {
	if o.Later == nil {
		o.Later = o.Chunk
	}
	r := &Prefetcher{f: f, cache: f.Options(), o: o, depth: mostInFlight, patient: -1, work: map[int]*meters{AllJobs: {}}, ranks: map[chunker.JobRank]*rankCursor{}, prefetches: map[sample.Index]*prefetch{}, requested: map[string]int{}, supplies: map[string]*peerSupply{},
		later: laterSamples{samples: map[sample.Index]*laterSample{}}}
	for i := range r.wakes {
		r.wakes[i] = make(chan struct{}, 1)
	}
	r.landing, r.wholes = sync.NewCond(&r.mu), make(chan whole, mostWhole)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	for _, p := range paths(r) {
		r.paths, r.slots[p.from] = append(r.paths, p), make(chan struct{}, p.jobs)
	}
	r.loops.Go(r.list)
	for _, p := range r.paths {
		r.loops.Go(p.begin)
	}
	if r.cache.Peers != nil {
		r.loops.Go(r.watchPeers)
	}
	for range max(2, min(4, host.Cores)) {
		r.workers.Go(r.verify)
		if r.cache.Peers != nil {
			r.workers.Go(r.verifyWholes)
		}
	}
	if o.Side {
		r.UseSide()
	}
	return r
}

// UseSide lets chunks use side memory from now on; Options.Side does so from the start. The caller may have shrunk the miss ring, so
// UseSide frees chunks beyond their rank's new share.
func (r *Prefetcher) UseSide() {
	r.side.Store(true)
	r.f.SetYielder(r)
	r.mu.Lock()
	r.makeRoom()
	r.mu.Unlock()
	r.wakeAll()
}

// Stop ends all reading and frees undelivered samples. Reads that the kernel has not completed end in the background; Fetcher.Close
// waits for them.
func (r *Prefetcher) Stop() {
	r.mu.Lock()
	isFirst := !r.stopping
	r.stopping = true
	r.mu.Unlock()
	r.cancel()
	r.loops.Wait()
	r.singles.Wait()
	if isFirst {
		close(r.wholes)
	}
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

// SetDepth bounds the random reads in flight; 0 is the default limit.
func (r *Prefetcher) SetDepth(reads int) {
	if reads <= 0 || reads > mostInFlight {
		reads = mostInFlight
	}
	r.mu.Lock()
	r.depth = reads
	r.mu.Unlock()
	r.wakeAll()
}

// patience is the weight of the patient job's bytes in flight, so each other job gets patience times its share.
const patience = 3

// SetPatient sets the job that leaves other jobs more than an even share of the reads in flight; -1: none.
func (r *Prefetcher) SetPatient(job int) {
	r.mu.Lock()
	r.patient = job
	r.mu.Unlock()
}

// wakeAll wakes all goroutines that begin reads or list.
func (r *Prefetcher) wakeAll() {
	for _, wake := range r.wakes {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// Asked notes the chunk that a rank requests. With the rank's first request, reading begins there. If the rank jumps, reading restarts at
// its new position.
func (r *Prefetcher) Asked(at chunker.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.wakeAll()
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
	case c.done[at]: // the response was lost, or the rank went back
		if c.strays++; c.strays > 1 {
			r.jump(c, at)
		}
	case at.Before(c.next) && isFarBehind(at, before), !at.Before(c.next) && !isNear(c.next, at):
		r.jump(c, at)
	default: // the chunk will be listed soon, or it was listed and had nothing to read
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

// pass removes a chunk from a rank's list, and frees its undelivered samples. A sample that is being read is not published then, so requests that wait for
// it look again. r.mu is held.
func (r *Prefetcher) pass(c *rankCursor, i int) {
	k := c.chunks[i]
	c.chunks = slices.Delete(c.chunks, i, i+1)
	for p := range c.begun {
		if i < c.begun[p] {
			c.begun[p]--
		}
	}
	c.bytes -= k.bytes
	isAwaited := false
	for _, pf := range k.prefetches {
		r.unwant(pf, k)
		isAwaited = isAwaited || pf.state == prefetchReading && len(pf.chunks) == 0
	}
	if isAwaited {
		r.cache.Staging.Notify()
	}
}

// unwant removes a chunk from the chunks that want a sample. If the prefetch has not begun and another chunk wants the sample, the
// prefetch moves to that chunk's list. r.mu is held.
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

// Skip notes that a request reads a chunk by index. Samples that are not in flight are then not read for the chunk.
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
		r.wakeAll()
	case listed:
		r.leaveOut(c.chunks[i], func(sample.Index) bool { return true })
	}
	if whole || !listed {
		c.isDone(at)
	}
}

// leaveOut removes samples whose reads have not begun from a chunk. r.mu is held.
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

// Changed notes that a rank's order from an epoch on was replaced, or became known.
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
	if from.Before(c.next) { // chunks without samples to read were passed and not kept in the list
		c.next = from
	}
	r.wakeAll()
}

// Refresh notes that another producer starts or stops loading a rank's samples. The rank's chunks from a position on are
// listed again. Samples that have been read for them stay.
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
	r.wakeAll()
}

// Forget drops a rank and all samples that were read for it: it sleeps, or its job has ended. When the rank requests again, reading restarts.
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
	r.wakeAll()
}
