package simulate

import "math"

// holding says which worker holds which samples in which class of storage (1 memory, 2 SSD, 0 not at all).
type holding struct {
	pick  [Classes][Classes]place // where a sample comes from, by its class here and its best class anywhere
	best  []uint8                 // the best class of any worker, by sample; nil while no worker holds any
	home  []int32                 // the one worker that holds a sample
	equal bool                    // every worker holds the same
	spans []span                  // by worker: its held samples, if they are a run of the dataset
}

// span is a run of the dataset.
type span struct{ first, count int }

// newHolding fills the table of places: the fastest wins, and local among equals. The source is an alternative at the rate
// that it has when all workers read; lcache leaves it to the samples that it does not hold.
func newHolding(r rates, policy Contender) *holding {
	h, uncached := &holding{}, policy.uncached()
	instead := uncached == fromPFS && policy.diskPasses() == 0
	remote := [Classes]place{0, remoteRAM, remoteSSD}
	local := [Classes]place{0, localRAM, localSSD}
	for own := range h.pick {
		for best := range h.pick[own] {
			to, cost := uncached, math.Inf(1)
			if own > 0 {
				to, cost = local[own], r.thread[own]
			}
			if best > 0 && r.remote[best] < cost {
				to, cost = remote[best], r.remote[best]
			}
			if instead && r.pfs[r.all()] < cost {
				to = fromPFS
			}
			h.pick[own][best] = to
		}
	}
	return h
}

// of is where a worker gets a sample.
func (h *holding) of(worker int, k uint32) place {
	if h.best == nil {
		return h.pick[0][0]
	}
	best := h.best[k]
	switch {
	case h.equal || h.home[k] == int32(worker):
		return h.pick[best][best]
	}
	return h.pick[0][best]
}

// seen is the share of the samples that anybody holds.
func (h *holding) seen() float64 {
	held := 0
	for _, class := range h.best {
		if class > 0 {
			held++
		}
	}
	return float64(held) / float64(len(h.best))
}

// wholeBytes is a capacity of the machine.
func wholeBytes(mb float64) uint64 { return uint64(math.Round(min(mb*1e6, 1e18))) }

// hold gives a sample to one worker.
func (h *holding) hold(k, worker, class int) {
	h.best[k], h.home[k] = uint8(class), int32(worker)
}

// extend gives a worker the next sample of its span.
func (h *holding) extend(k, worker, class int) {
	h.hold(k, worker, class)
	if h.spans[worker].count == 0 {
		h.spans[worker].first = k
	}
	h.spans[worker].count++
}

func (h *holding) begin(samples int) {
	h.best, h.home = make([]uint8, samples), make([]int32, samples)
}

// shard is the worker whose part of the dataset has a sample.
func shard(k, samples, workers int) int {
	return min(k/max(1, samples/workers), workers-1)
}

// holdShards gives worker i the i-th part of the dataset. If that is more than capacity bytes, no worker holds
// the rest.
func (h *holding) holdShards(sizes []uint32, workers, class int, capacity uint64) {
	h.begin(len(sizes))
	h.spans = make([]span, workers)
	running := make([]uint64, workers)
	for k, size := range sizes {
		i := shard(k, len(sizes), workers)
		if running[i] += uint64(size); running[i] <= capacity {
			h.extend(k, i, class)
		}
	}
}

// holdInTurn fills one worker after the other, in the order of the dataset: what DeepIO does if not all of it fits.
func (h *holding) holdInTurn(sizes []uint32, workers, class int, capacity uint64) {
	h.begin(len(sizes))
	h.spans = make([]span, workers)
	running := uint64(0)
	for k, size := range sizes {
		running += uint64(size)
		if i := running / max(1, capacity); i < uint64(workers) {
			h.extend(k, int(i), class)
		}
	}
}

// holdFirstTouch gives each sample to the worker that reads it in the first epoch. No worker holds the tail
// that is in no mini-batch.
func (h *holding) holdFirstTouch(positions []uint32, used, batch, workers, class int) {
	h.begin(len(positions))
	for k, at := range positions {
		if int(at) < used {
			h.hold(k, int(at)/batch%workers, class)
		}
	}
}

// holdFixed gives a fixed set of samples to every worker. The set is spread evenly over the dataset, as one chosen by hashes is.
func (h *holding) holdFixed(samples int, share float64) {
	h.begin(samples)
	h.equal = true
	for k := range samples {
		if float64(spread(uint64(k))>>11)/(1<<53) < share {
			h.hold(k, 0, 2)
		}
	}
}

// spread is a hash of a number (the finalizer of SplitMix64).
func spread(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
