package simulate

import (
	"runtime"
	"sync"
)

// Threads is an interpretation of NoPFS's model: what its prefetch threads share.
type Threads string

const (
	// Shared is the default: the threads of a device share its rate, and devices work in parallel.
	Shared Threads = "shared"
	// Paper takes the formula of §4 as printed: each of p_0 threads draws a full share of the source, so that a worker
	// gets up to p_0 times its share. It is kept for comparison.
	Paper Threads = "paper"
)

// place is where a sample comes from, in the order of speed.
type place int

const (
	localRAM place = iota
	localSSD
	remoteRAM
	remoteSSD
	fromPFS
	onDemand // from the source too, but only when it is asked for
	places
)

// batch is one mini-batch of one worker: MB by place.
type batch [places]float64

func (b *batch) sum() (mb float64) {
	for _, x := range b {
		mb += x
	}
	return mb
}

// clock runs the mini-batches of all workers: prefetching overlaps computing up to the size of the staging buffer, and a
// mini-batch begins for all workers when the last one has done the one before.
type clock struct {
	r       rates
	threads Threads
	perfect bool    // nothing is waited for
	lanes   float64 // p: how many threads prefetch, in the paper's reading
	disk    float64 // transfers of each held sample by its SSD; 0: not limited
	window  int     // how many mini-batches the staging buffer holds

	h      int       // mini-batches done
	ends   []float64 // of the last window mini-batches, as a ring
	end    float64   // of the last one
	loaded []float64 // time at which each worker has prefetched its samples
	stall  float64   // of all workers together
	bound  float64   // the lower bound: computing alone, with the barrier
	mb     batch
	fetch  batch // seconds of fetching, by place, of all workers together
}

func newClock(r rates, threads Threads, window int, init float64) *clock {
	c := &clock{r: r, threads: threads, lanes: r.p[0], window: window, end: init, ends: make([]float64, window), loaded: make([]float64, r.all())}
	for i := range c.loaded {
		c.loaded[i] = init
	}
	for i := range c.ends {
		c.ends[i] = init
	}
	return c
}

// step runs one mini-batch of every worker.
func (c *clock) step(work []batch) {
	readers := 0
	for i := range work {
		if work[i][fromPFS] > 0 || work[i][onDemand] > 0 {
			readers++
		}
	}
	pfs := c.r.pfs[readers]
	room := &c.ends[c.h%c.window]
	end, slowest := c.end, 0.0
	for i := range work {
		b := &work[i]
		all := b.sum()
		computing := all * c.r.compute
		slowest = max(slowest, computing)
		if c.perfect {
			end = max(end, c.end+computing)
			continue
		}
		c.loaded[i] = max(c.loaded[i], *room) + c.load(b, all, pfs)
		demand := b[onDemand] * (pfs + c.r.write())
		start := max(c.loaded[i], c.end)
		c.stall += start - c.end + demand
		end = max(end, start+demand+computing)
		c.count(b, pfs)
	}
	c.bound += slowest
	c.end, *room = end, end
	c.h++
}

// count adds up what came from where, and how long the fetches took.
func (c *clock) count(b *batch, pfs float64) {
	seconds := [places]float64{c.r.thread[1], c.r.thread[2], c.r.remote[1], c.r.remote[2], pfs, pfs}
	for p, mb := range b {
		c.mb[p] += mb
		c.fetch[p] += mb * seconds[p]
	}
}

// load is how long a worker prefetches what of a mini-batch can be prefetched.
func (c *clock) load(b *batch, all, pfs float64) float64 {
	ahead := all - b[onDemand]
	if c.threads == Paper {
		fetching := b[localRAM]*c.r.thread[1] + b[localSSD]*c.r.thread[2] + b[remoteRAM]*c.r.remote[1] + b[remoteSSD]*c.r.remote[2] + b[fromPFS]*pfs
		return max((fetching+ahead*c.r.write())/c.lanes, c.diskLoad(b))
	}
	return max(b[fromPFS]*pfs, b[localRAM]*c.r.class[1], b[localSSD]*c.r.class[2], (b[remoteRAM]+b[remoteSSD])*c.r.network,
		ahead*c.r.prepare, ahead*c.r.stage, c.diskLoad(b))
}

// diskLoad is how long the SSD is busy, for policies that say so: it serves other workers as much as they serve this one.
func (c *clock) diskLoad(b *batch) float64 {
	return c.disk * (b[localSSD] + b[remoteSSD]) * c.r.class[2]
}

// mostAtOnce bounds the mini-batches whose sums are kept at once.
const mostAtOnce = 1 << 19

// room allocates the sums of an epoch's mini-batches: all of them, or as many whole steps as most allows.
func room(steps, workers, most int) []batch {
	return make([]batch, min(max(1, most/workers), steps)*workers)
}

// runEpoch runs a clock over the steps of an epoch, as many at once as there is room for. deal sums up the mini-batches of
// the steps that begin at from. work[j·workers+i] is the mini-batch of worker i in the j-th of these steps.
func runEpoch(c *clock, steps, workers int, room []batch, deal func(from int, work []batch)) {
	atOnce := len(room) / workers
	for from := 0; from < steps; from += atOnce {
		n := min(atOnce, steps-from)
		deal(from, room[:n*workers])
		for h := range n {
			c.step(room[h*workers : (h+1)*workers])
		}
	}
}

// byStep deals steps on all cores, independently.
func byStep(workers int, deal func(h int, work []batch)) func(from int, work []batch) {
	return func(from int, work []batch) {
		split(runtime.GOMAXPROCS(0), len(work)/workers, func(_, lo, hi int) {
			for h := lo; h < hi; h++ {
				deal(from+h, work[h*workers:(h+1)*workers])
			}
		})
	}
}

// split cuts 0 … n-1 into a part for every core, and does them side by side.
func split(cores, n int, part func(core, from, to int)) {
	cores = min(cores, n)
	var done sync.WaitGroup
	for c := range cores {
		done.Go(func() { part(c, n*c/cores, n*(c+1)/cores) })
	}
	done.Wait()
}
