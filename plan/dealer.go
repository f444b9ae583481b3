package plan

import "math/rand/v2"

// dealer sums up the mini-batches of one epoch: who reads what from where.
type dealer struct {
	x     *exact
	held  *holding
	order []uint32
	epoch int
}

// deal returns what sums up the steps of this policy.
func (d *dealer) deal() func(from int, work []batch) {
	switch d.x.s.Policy {
	case LocalityAware:
		return byStep(d.x.workers, d.dealByLocality)
	case DeepIOOpportunistic, ParallelStaging:
		return byStep(d.x.workers, d.draw)
	}
	return d.dealByWorker
}

// dealByWorker goes through all steps of one worker before the next one's: what a worker holds fits into the processor's
// cache, and what all of them hold does not.
func (d *dealer) dealByWorker(from int, work []batch) {
	n, b := d.x.workers, d.x.batch
	clear(work)
	split(n, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			for h := range len(work) / n {
				at := ((from+h)*n + i) * b
				for _, k := range d.order[at : at+b] {
					d.take(work[h*n:(h+1)*n], i, k)
				}
			}
		}
	})
}

func (d *dealer) take(work []batch, worker int, k uint32) {
	work[worker][d.held.of(worker, k)] += float64(d.x.sizes[k]) / 1e6
}

// dealByLocality lets every worker first take what it holds, in the order of the global batch, and then deals the rest from
// its end.
func (d *dealer) dealByLocality(h int, work []batch) {
	n, b := d.x.workers, d.x.batch
	clear(work)
	global := d.order[h*n*b : (h+1)*n*b]
	got := make([]int, n)
	rest := make([]uint32, 0, len(global))
	for _, k := range global {
		if d.held.best[k] > 0 && got[d.held.home[k]] < b {
			i := int(d.held.home[k])
			got[i]++
			d.take(work, i, k)
			continue
		}
		rest = append(rest, k)
	}
	for i := range n {
		for ; got[i] < b; got[i]++ {
			last := len(rest) - 1
			d.take(work, i, rest[last])
			rest = rest[:last]
		}
	}
}

// draw ignores the order: a worker draws from what is held, with replacement. DeepIO draws from its own part with
// probability 1/N, else from everything that is held. Staged SSDs are drawn from alone: the own part, and as much of the
// others as there was room for.
func (d *dealer) draw(h int, work []batch) {
	x := d.x
	clear(work)
	r := rand.New(rand.NewPCG(x.s.Seed^uint64(d.epoch), uint64(h)))
	total := 0
	for _, sp := range d.held.spans {
		total += sp.count
	}
	for i := range work {
		own := 1 / float64(x.workers)
		if x.s.Policy == ParallelStaging {
			own = x.ownShare(d.held.spans[i].count)
		}
		for range x.batch {
			k := d.held.drawOne(r, i, own, total)
			if x.s.Policy == ParallelStaging {
				work[i][localSSD] += float64(x.sizes[k]) / 1e6
				continue
			}
			d.take(work, i, k)
		}
	}
}

// ownShare is how much of a staged SSD is the worker's own part of the dataset.
func (x *exact) ownShare(count int) float64 {
	room := x.s.Machine.Capacity[2] / (x.s.totalMB() / float64(len(x.sizes)))
	return min(1, float64(count)/max(1, min(room, float64(len(x.sizes)))))
}

// drawOne draws a sample of the worker's own with a probability, else any of the total that is held; where nothing is held,
// any sample.
func (h *holding) drawOne(r *rand.Rand, worker int, own float64, total int) uint32 {
	if total == 0 {
		return uint32(r.IntN(len(h.best)))
	}
	if sp := h.spans[worker]; sp.count > 0 && r.Float64() < own {
		return uint32(sp.first + r.IntN(sp.count))
	}
	at := r.IntN(total)
	for _, sp := range h.spans {
		if at < sp.count {
			return uint32(sp.first + at)
		}
		at -= sp.count
	}
	return 0
}
