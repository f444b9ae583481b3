package simulate

import (
	"context"
	"math/rand/v2"
)

// dealer sums up the mini-batches of one epoch: each worker's bytes by place.
type dealer struct {
	x         *exact
	held      *holding
	cold      bool     // no worker holds any sample yet
	positions []uint32 // by sample, in this epoch
	epoch     int
}

// run runs an epoch by the order of its policy.
func (d *dealer) run(ctx context.Context, c *clock, work []batch) error {
	x := d.x
	switch x.s.Policy {
	case DeepIOOpportunistic, ParallelStaging:
		if err := ctx.Err(); err != nil {
			return err
		}
		runEpoch(c, x.steps, x.workers, work, byStep(x.workers, d.draw))
		return nil
	}
	return x.orders.use(ctx, d.epoch, func(positions []uint32) {
		d.positions = positions
		if x.s.Policy == LocalityAware {
			x.turn(positions)
			runEpoch(c, x.steps, x.workers, work, byStep(x.workers, d.dealByLocality))
			return
		}
		runEpoch(c, x.steps, x.workers, work, d.dealBySample)
	})
}

// turn makes an order of positions.
func (x *exact) turn(positions []uint32) {
	if x.forward == nil {
		x.forward = make([]uint32, x.orders.used)
	}
	for k, at := range positions {
		if int(at) < x.orders.used {
			x.forward[at] = uint32(k)
		}
	}
}

// dealBySample walks the samples by number, and adds each to the mini-batch of its position. So it reads the tables of samples
// in order, and the sums of mini-batches are few enough to stay in the processor's caches.
func (d *dealer) dealBySample(from int, work []batch) {
	x := d.x
	first := uint32(from * x.workers * x.batch)
	split(x.cores, len(d.positions), func(core, lo, hi int) {
		if len(x.sums[core]) < len(work) {
			x.sums[core] = make([]sums, len(work))
		}
		d.addUp(x.sums[core][:len(work)], first, lo, hi)
	})
	cores := min(x.cores, len(d.positions))
	split(x.cores, len(work), func(_, lo, hi int) {
		for i := lo; i < hi; i++ {
			for p := range places {
				bytes := uint64(0)
				for core := range cores {
					bytes += x.sums[core][i][p]
				}
				work[i][p] = float64(bytes) / 1e6
			}
		}
	})
}

// addUp adds samples to the sums of the mini-batches from a position on.
func (d *dealer) addUp(to []sums, first uint32, lo, hi int) {
	clear(to)
	x, batch, workers := d.x, uint32(d.x.batch), uint32(d.x.workers)
	end := uint32(len(to)) * batch
	for k := lo; k < hi; k++ {
		at := d.positions[k] - first
		if at >= end { // before first, too: then it is a large number
			continue
		}
		mini, from := at/batch, x.pick[0][0]
		switch {
		case x.fleet != nil:
			switch x.fleet.read(int(mini%workers), uint32(k)) {
			case fromLocal:
				from = x.pick[2][2]
			case fromPeer:
				from = x.pick[0][2]
			}
		case d.cold:
		case x.served != nil:
			from = x.served.place(d.epoch, k)
		default:
			from = d.held.of(int(mini%workers), uint32(k))
		}
		to[mini][from] += uint64(x.sizes[k])
	}
}

func (d *dealer) take(work []batch, worker int, k uint32) {
	work[worker][d.held.of(worker, k)] += float64(d.x.sizes[k]) / 1e6
}

// dealByLocality first gives every worker the samples that it holds, in the order of the global batch. Then it deals the other
// samples, from the end of the batch.
func (d *dealer) dealByLocality(h int, work []batch) {
	n, b := d.x.workers, d.x.batch
	clear(work)
	global := d.x.forward[h*n*b : (h+1)*n*b]
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

// draw ignores the order: a worker draws from the held samples, with replacement. DeepIO draws from its own part with
// probability 1/N, else from all held samples. With staged SSDs, a worker draws from its SSD alone: its own part, and as much
// of the others as there was room for.
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
