package engine

import (
	"maps"
	"sync/atomic"

	"lcache/deliver"
	"lcache/drawn"
	"lcache/importance"
	"lcache/sample"
)

// A highMemory holds the bytes of the samples that a job's memory policy keeps, outside Go's heap and beside the shared memory. Samples enter when they were delivered and
// had not been here; a hit is one copy. It is the first supplier of all reads by index and ahead of requests.
type highMemory struct {
	e      *Engine
	total  int64                      // bytes of the cache
	begins atomic.Pointer[highCounts] // while an epoch begins: what was counted until then
	nodes  *nodeReader                // with pair

	lockedBytes // its mu guards the fields that follow, too
	policy      importance.Policy
	pair        *importance.Homophily // the policy, where others of a class may stand in; else nil
	stats       importance.Stats
	stood       map[stoodIn]int // how often, with pair
	seen        *sample.Set     // what was delivered
}

// stoodIn is a sample that was delivered in place of others in an epoch.
type stoodIn struct {
	epoch int
	index sample.Index
}

// newHighMemory makes the memory of a job; nil without room for any sample.
func (e *Engine) newHighMemory(c drawn.Config) (*highMemory, error) {
	m, err := importance.Lookup(c.Method)
	if err != nil {
		return nil, err
	}
	h := &highMemory{e: e, total: c.Cache, stood: map[stoodIn]int{}}
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
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, i := range indices {
		if h.held.knows(i) && !h.seen.Has(i) {
			n++
		}
	}
	return n
}

// holds returns the samples that the policy keeps; nil when the memory is closed. The caller closes the set.
func (h *highMemory) holds() (*sample.Set, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.held.closed() {
		return nil, nil
	}
	set, err := sample.NewSet(len(h.held.first))
	for i := range h.held.first {
		if err == nil && h.policy.Has(sample.Index(i)) {
			set.Add(sample.Index(i))
		}
	}
	return set, err
}

// begin begins an epoch: targets are the expected uses of all samples, values their importance.
func (h *highMemory) begin(epoch int, values, targets []float64, order []sample.Index, c drawn.Config) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.stood, func(s stoodIn, _ int) bool { return s.epoch < epoch-1 })
	h.begins.Store(&highCounts{h.stats, h.held.taken})
	defer h.begins.Store(nil)
	if _, is := h.policy.(*importance.HCache); is {
		if high, err := importance.Top(values, c.Cache, h.size); err == nil {
			for i := range values {
				if !high.Has(sample.Index(i)) {
					values[i] = 0
				}
			}
			high.Close()
		}
	}
	importance.BeginPolicy(h.policy, epoch, values, targets, order)
}

// endEpoch leaves memory for the boundary.
func (h *highMemory) endEpoch() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p, ok := h.inner().(*importance.NextUse); ok {
		p.EndEpoch()
	}
}

// inner is the policy of the important samples.
func (h *highMemory) inner() importance.Policy {
	if h.pair != nil {
		return h.pair.Policy()
	}
	return h.policy
}

// size is how many bytes a sample takes here.
func (h *highMemory) size(index sample.Index) int64 { return h.held.size(index) }

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
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held.closed() {
		return
	}
	for k, index := range d.Indices {
		h.seen.Add(index)
		_, kind := h.policy.Get(index, nil)
		planned := importance.Miss
		if kinds != nil {
			planned = kinds[k]
		}
		h.count(stoodIn{epoch, index}, kind == importance.Hit, planned, k < len(d.Addresses) && d.Addresses[k].FromSource)
		if d.Addresses == nil || kind == importance.Hit {
			continue
		}
		data := h.e.staging.Slice(d.Addresses[k].Offset, int(h.e.cache.Manifest.Size(index)))
		keep, drop := h.policy.Offer(index, h.size(index))
		for _, gone := range drop {
			h.held.free(gone)
		}
		if keep {
			h.held.keep(index, data)
		}
	}
}

// count counts a sample that was delivered: as one of Stats.Requested. h.mu is held.
func (h *highMemory) count(s stoodIn, here bool, planned importance.Kind, fromSource bool) {
	switch {
	case planned == importance.Substitute:
		h.stats.Substituted++
		most := 1 // an L-sample stands in once in an epoch: millions of them need no books
		if h.pair != nil {
			h.stood[s]++
			most = h.stood[s]
		}
		h.stats.MaxSubstitute = max(h.stats.MaxSubstitute, most)
	case here && h.pair != nil && h.pair.Nodes().Has(s.index):
		h.stats.NodeHits++
	case here:
		h.stats.HighHits++
	case fromSource:
		h.stats.SourceMisses++
	case planned == importance.Hit && h.pair == nil:
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

// counted is what was counted. It does not wait while an epoch begins, which takes a while at millions of samples: nothing is counted meanwhile.
func (h *highMemory) counted() highCounts {
	if last := h.begins.Load(); last != nil {
		return *last
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	return highCounts{h.stats, h.held.taken}
}
