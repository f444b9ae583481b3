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

// ReaderOptions are what a Reader asks of its owner. No lock of the Reader is held meanwhile.
type ReaderOptions struct {
	// Chunk is what a rank asks for at a step, and the step after it. ok is false while nobody knows: past the job's end, or before
	// the order is pushed.
	Chunk func(rank int, at Step) (indices []sample.Index, next Step, ok bool)
	// Leased is how many bytes clients may hold at once of what was read for them: so much of the ring is not read ahead into.
	Leased int64
	// Ranks is how many are expected: each has its share from the start, so that nothing is taken back when the others come.
	Ranks int
	// Idle is told when the ring has no room for more, and when it has again. Nil is allowed.
	Idle func(bool)
}

// A Reader reads the coming chunks of each rank ahead of their need, as far as the ring has room: samples that the log holds by place,
// many at once, neighbours in one read; the others from the source. It is to samples that stay where they are what the pass is to
// those that are reordered. Ranks share the ring evenly and don't wait for each other.
type Reader struct {
	f *Fetcher
	o ReaderOptions

	ctx     context.Context
	cancel  context.CancelFunc
	listing sync.WaitGroup // the goroutine that lists
	workers sync.WaitGroup // those that verify
	sources sync.WaitGroup // reads from the source, and second tries
	slots   chan struct{}  // a token for each of them
	wake    chan struct{}  // something may be begun

	mu          sync.Mutex // guards the fields that follow; taken before staging's lock
	ranks       map[int]*course
	flights     map[sample.Index]*flight
	flying      int // reads by place not yet verified
	flyingBytes int
	landed      []*placeRead // brought, to be verified
	landing     *sync.Cond   // there is something, or the end
	stopping    bool         // nothing is begun any more
	stopped     bool         // nor published
}

// course is how far one rank has come, and what is listed for it.
type course struct {
	rank    int
	next    Step          // to be listed
	blocked bool          // nobody knows what that is
	chunks  []*chunk      // listed and not passed, in order
	done    map[Step]bool // not listed and not to be: brought by index meanwhile; near to next
	strays  int           // requests in a row for what is passed
	asked   Step
	bytes   int64 // of chunks
}

// chunk is a batch that will be asked for.
type chunk struct {
	of      *course
	at      Step
	flights []*flight
	left    int // of flights, not ready
	bytes   int64
	asked   bool
}

// holds reports whether something was read for it already.
func (k *chunk) holds() bool {
	return slices.ContainsFunc(k.flights, func(fl *flight) bool { return fl.x != nil })
}

type flightState uint8

const (
	flightQueued  flightState = iota
	flightReading             // on its way
	flightReady               // published
)

// flight is a sample that is read for one or more chunks.
type flight struct {
	index  sample.Index
	state  flightState
	chunks []*chunk        // that want it
	x      *staging.Extent // once published
}

// most of what is on its way at once, so that a read does not wait long for its turn and counts as late.
const (
	mostFlying      = 256
	mostFlyingBytes = 16 << 20
)

// lagging is how many chunks a rank may leave behind and still be given: several workers of one rank don't ask in order. leap is how
// far they may be ahead of what is listed.
const (
	lagging = 32
	leap    = 64
)

// NewReader makes a Reader and starts its goroutines. It reads nothing until somebody asks.
func NewReader(f *Fetcher, o ReaderOptions) *Reader {
	r := &Reader{f: f, o: o, slots: make(chan struct{}, f.Jobs), wake: make(chan struct{}, 1), ranks: map[int]*course{}, flights: map[sample.Index]*flight{}}
	r.landing = sync.NewCond(&r.mu)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.listing.Go(r.list)
	for range max(2, min(4, cores.N)) {
		r.workers.Go(r.verify)
	}
	return r
}

// Stop ends all reading and gives back what nobody took. Reads that the disk still owns end in the background; Fetcher.Close waits
// for them.
func (r *Reader) Stop() {
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

func (r *Reader) nudge() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Asked says what a rank asks for now. Reading begins there with the first request, and again where the rank has jumped to.
func (r *Reader) Asked(rank int, at Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.nudge()
	c := r.ranks[rank]
	if c == nil {
		c = &course{rank: rank, next: at, done: map[Step]bool{}}
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
		// One that was delivered is asked for again; or the rank has gone back.
		if c.strays++; c.strays > 1 || len(c.chunks) == 0 {
			r.jump(c, at)
		}
	default:
		r.jump(c, at)
	}
}

func (r *Reader) jump(c *course, at Step) {
	r.passAll(c)
	clear(c.done)
	c.next, c.strays = at, 0
}

func (r *Reader) passAll(c *course) {
	for len(c.chunks) > 0 {
		r.pass(c, 0)
	}
}

// pass gives back what was read for a chunk and not taken. r.mu is held.
func (r *Reader) pass(c *course, i int) {
	k := c.chunks[i]
	c.chunks = slices.Delete(c.chunks, i, i+1)
	c.bytes -= k.bytes
	for _, fl := range k.flights {
		r.unwant(fl, k)
	}
}

func (r *Reader) unwant(fl *flight, k *chunk) {
	if i := slices.Index(fl.chunks, k); i >= 0 {
		fl.chunks = slices.Delete(fl.chunks, i, i+1)
	}
	if fl.x != nil {
		r.f.Staging.KeepAtMost(fl.x, len(fl.chunks))
	}
	if len(fl.chunks) == 0 {
		r.forget(fl)
	}
}

// forget ends a flight for those who look; a later one of the same sample may have its place already.
func (r *Reader) forget(fl *flight) {
	if r.flights[fl.index] == fl {
		delete(r.flights, fl.index)
	}
}

// Delivered says that a rank has got a chunk.
func (r *Reader) Delivered(rank int, at Step) { r.over(rank, at, true) }

// Skip says that a chunk is brought by index: what is not on its way is not read for it any more.
func (r *Reader) Skip(rank int, at Step) { r.over(rank, at, false) }

func (r *Reader) over(rank int, at Step, whole bool) {
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
		k.flights = slices.DeleteFunc(k.flights, func(fl *flight) bool {
			queued := fl.state == flightQueued
			if queued {
				r.unwant(fl, k)
			}
			return queued
		})
	case !at.before(c.next) && c.next.near(at): // else nobody comes to it before a jump
		c.done[at] = true
	}
}

// Changed says that a rank's order from an epoch on is not the one that was listed, or has become known.
func (r *Reader) Changed(rank, epoch int) {
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

// unlist takes back the last chunk that was listed for a rank; it is listed again when it is its turn.
func (r *Reader) unlist(c *course) {
	last := len(c.chunks) - 1
	c.next = c.chunks[last].at
	r.pass(c, last)
}

// makeRoom takes back from the other ranks what is more than their share, now that there is one rank more than was expected.
func (r *Reader) makeRoom() {
	share := r.share()
	for _, c := range r.ranks {
		for len(c.chunks) > 1 && c.bytes > share {
			r.unlist(c)
		}
	}
}

// squeeze takes back a chunk for one that is asked for now and has no room: one that is needed later (a read of several samples may take more
// memory than is counted for each), or one of an epoch that its rank has left. r.mu is held.
func (r *Reader) squeeze(needy []*flight) bool {
	urgent := slices.ContainsFunc(needy, func(fl *flight) bool {
		return slices.ContainsFunc(fl.chunks, func(k *chunk) bool { return !k.of.asked.before(k.at) })
	})
	if !urgent {
		return false
	}
	var most *course
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

// letGo takes back the first chunk of an epoch that a rank has left without asking for it. r.mu is held.
func (r *Reader) letGo(c *course) bool {
	i := slices.IndexFunc(c.chunks, func(k *chunk) bool { return !k.asked && k.at.Epoch < c.asked.Epoch })
	if i >= 0 {
		r.pass(c, i)
	}
	return i >= 0
}

// share is how many bytes of the ring are read ahead into for each rank.
func (r *Reader) share() int64 {
	ring := r.f.Staging.MissBytes()
	return max(ring-r.o.Leased, ring/4) / int64(max(1, r.o.Ranks, len(r.ranks)))
}

// Starved gives up what ranks have left behind: a request has waited in vain for the room that it takes.
func (r *Reader) Starved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.ranks {
		for len(c.chunks) > 0 && c.chunks[0].at.before(c.asked) {
			r.pass(c, 0)
		}
	}
	r.nudge()
}

// Look says whether a sample that a rank asks for at a step is on its way, or will be (queued).
func (r *Reader) Look(rank int, at Step, index sample.Index) (reading, queued bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fl := r.flights[index]; fl != nil && fl.state != flightReady {
		return fl.state == flightReading, fl.state == flightQueued
	}
	c := r.ranks[rank]
	return false, c != nil && !c.blocked && !at.before(c.next) && at.Epoch == c.next.Epoch && at.Batch-c.next.Batch <= leap && !c.done[at]
}

// Ready is how many chunks beyond the one last asked for lie ready for a rank.
func (r *Reader) Ready(rank int) (n int) {
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
