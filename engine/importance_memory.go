package engine

import (
	"maps"
	"sync"

	"lcache/deliver"
	"lcache/drawn"
	"lcache/importance"
	"lcache/sample"
)

// A highMemory holds the samples that a job's memory policy keeps, in addition to the shared memory. Samples enter when they were delivered and had not been here; a hit is one copy.
//
// The worker has the policy for itself at a boundary (alone), because a policy may go over all samples then. Requests do not wait for that: what they deliver meanwhile is noted, and the policy gets it afterwards.
type highMemory struct {
	e     *Engine
	total int64 // bytes of the cache
	held  *sampleBytes
	nodes *nodeReader // with pair

	mu     sync.Mutex // guards the fields that follow
	busy   bool       // the worker has policy and pair for itself
	idle   *sync.Cond // busy has ended
	noted  []delivered
	policy importance.Policy
	pair   *importance.Homophily // the policy, where others of a class may stand in; else nil
	stats  importance.Stats
	stood  map[int]map[sample.Index]int // by epoch: how often a sample was delivered in place of others, with pair
	seen   *sample.Set                  // what was delivered
}

// delivered is a sample of a delivery.
type delivered struct {
	epoch      int
	index      sample.Index
	planned    importance.Kind // by the epoch's plan
	fromSource bool
}

// mostNoted bounds what is noted while the worker has the policy. The policy does not get what is delivered beyond that.
const mostNoted = 1 << 18

// newHighMemory makes the memory of a job; nil without room for any sample.
func (e *Engine) newHighMemory(c drawn.Config) (*highMemory, error) {
	m, err := importance.Lookup(c.Method)
	if err != nil {
		return nil, err
	}
	h := &highMemory{e: e, total: c.Cache, stood: map[int]map[sample.Index]int{}}
	h.idle = sync.NewCond(&h.mu)
	if c.Substitute == importance.Class {
		if h.pair, err = m.WithNodes(c.Policy, e.cache.Manifest.Labels(), c.Cache, c.Params); err == nil {
			h.policy = h.pair
		}
	} else {
		h.policy, err = m.NewPolicy(c.Policy, e.cache.Manifest.Len(), c.Cache, c.Params)
	}
	if err != nil {
		return nil, err
	}
	if h.held, err = newSampleBytes(e.cache); err == nil {
		h.seen, err = sample.NewSet(e.cache.Manifest.Len())
	}
	if err != nil {
		h.close()
		return nil, err
	}
	if h.pair != nil {
		h.nodes = newNodeReader(h)
	}
	return h, nil
}

// close frees the memory. The worker has ended.
func (h *highMemory) close() {
	h.nodes.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.policy.Close()
	h.held.close()
	h.seen.Close()
}

// strange counts indices of the dataset that were not delivered.
func (h *highMemory) strange(indices []sample.Index) (n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range indices {
		if h.held.knows(i) && !h.seen.Has(i) {
			n++
		}
	}
	return n
}

// alone calls f while the worker has the policy for itself. No lock is held. Called by the worker, and by newImportant before it runs.
func (h *highMemory) alone(f func()) {
	h.mu.Lock()
	h.busy = true
	h.mu.Unlock()
	f()
	for h.takeNoted() {
	}
}

// takeNoted gives the policy some of what was noted. It ends busy and returns false if there is nothing more.
func (h *highMemory) takeNoted() bool {
	const atOnce = 256 // a request may wait for them
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.noted[:min(atOnce, len(h.noted))] {
		h.deliver(d)
	}
	if len(h.noted) > atOnce {
		h.noted = h.noted[atOnce:]
		return true
	}
	h.noted, h.busy = nil, false
	h.idle.Broadcast()
	return false
}

// begin begins an epoch: targets are the expected uses of all samples, values their importance.
func (h *highMemory) begin(epoch int, values, targets []float64, order []sample.Index, c drawn.Config) {
	h.mu.Lock()
	maps.DeleteFunc(h.stood, func(e int, _ map[sample.Index]int) bool { return e < epoch-1 })
	h.mu.Unlock()
	h.alone(func() {
		if _, is := h.policy.(*importance.HCache); is {
			if high, err := importance.Top(values, c.Cache, h.held.size); err == nil {
				for i := range values {
					if !high.Has(sample.Index(i)) {
						values[i] = 0
					}
				}
				high.Close()
			}
		}
		importance.BeginPolicy(h.policy, epoch, values, targets, order)
	})
}

// endEpoch leaves memory for the boundary.
func (h *highMemory) endEpoch() {
	h.alone(func() {
		if p, ok := h.inner().(*importance.NextUse); ok {
			p.EndEpoch()
		}
	})
}

// inner is the policy of the important samples.
func (h *highMemory) inner() importance.Policy {
	if h.pair != nil {
		return h.pair.Policy()
	}
	return h.policy
}

// observe tells the policy of new values.
func (h *highMemory) observe(indices []sample.Index, value func(sample.Index) (float64, bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range indices {
		if v, seen := value(i); seen {
			h.policy.Observe(i, v)
		}
	}
}

// served counts a delivery, and keeps what the policy wants of it. kinds say how the epoch's plan serves each sample; nil: as what was drawn. Bytes that may have been
// overwritten meanwhile, because the client is gone, are not kept.
func (h *highMemory) served(epoch int, d deliver.Delivery, kinds []importance.Kind) {
	for _, w := range h.take(epoch, d, kinds) {
		h.held.fill(w)
	}
}

// take counts a delivery, and returns the samples to keep.
func (h *highMemory) take(epoch int, d deliver.Delivery, kinds []importance.Kind) (keep []writing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held.isClosed() {
		return nil
	}
	for k, index := range d.Indices {
		h.seen.Add(index)
		s := delivered{epoch: epoch, index: index, planned: importance.Miss, fromSource: k < len(d.Addresses) && d.Addresses[k].FromSource}
		if kinds != nil {
			s.planned = kinds[k]
		}
		switch {
		case h.busy && len(h.noted) < mostNoted:
			h.noted = append(h.noted, s)
		case h.busy:
			h.count(s, h.held.Has(index), false)
		case !h.deliver(s) && d.Addresses != nil:
			if w, ok := h.offer(index, h.e.staging.Slice(d.Addresses[k].Offset, int(h.e.cache.Manifest.Size(index)))); ok {
				keep = append(keep, w)
			}
		}
	}
	return keep
}

// deliver counts a sample that was delivered, and reports whether its bytes are here or about to be. The policy gets it as a use. h.mu is held.
func (h *highMemory) deliver(d delivered) (here bool) {
	_, kind := h.policy.Get(d.index, nil)
	here = kind == importance.Hit && h.held.hasOrWrites(d.index)
	h.count(d, here, here && h.pair != nil && h.pair.Nodes().Has(d.index))
	return here
}

// offer offers the policy a sample, and returns room for it if the policy keeps it. The policy keeps a sample already if its bytes were not right before. h.mu is held.
func (h *highMemory) offer(index sample.Index, data []byte) (w writing, ok bool) {
	keep, drop := h.policy.Offer(index, h.held.size(index))
	for _, gone := range drop {
		h.held.free(gone)
	}
	if !keep {
		return w, false
	}
	return h.held.begin(index, data)
}

// count counts a sample that was delivered: as one of Stats.Requested. h.mu is held.
func (h *highMemory) count(d delivered, here, isNode bool) {
	switch {
	case d.planned == importance.Substitute:
		h.stats.Substituted++
		most := 1 // an L-sample stands in once in an epoch: these are not counted one by one, as there may be millions
		if h.pair != nil {
			if h.stood[d.epoch] == nil {
				h.stood[d.epoch] = map[sample.Index]int{}
			}
			h.stood[d.epoch][d.index]++
			most = h.stood[d.epoch][d.index]
		}
		h.stats.MaxSubstitute = max(h.stats.MaxSubstitute, most)
	case isNode:
		h.stats.NodeHits++
	case here:
		h.stats.HighHits++
	case d.fromSource:
		h.stats.SourceMisses++
	case d.planned == importance.Hit && h.pair == nil:
		h.stats.LowHits++
	default:
		h.stats.LogHits++
	}
}

// highCounts are what was counted, and the bytes that are here.
type highCounts struct {
	importance.Stats
	taken int64
}

// counted is what was counted. Deliveries that are noted follow later.
func (h *highMemory) counted() highCounts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return highCounts{h.stats, h.held.bytes()}
}
