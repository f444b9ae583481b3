// Package memory holds copies of the samples that importance wants in memory, outside the shared memory: High by a policy (ImPACT §III, SHADE §4, SpiderCache §IV), with the nodes
// that stand in for others of their class, and Along samples that were read opportunistically. Both keep bytes in a Bytes, which readers ask before the log. The package decides
// nothing about orders, and reads nothing by itself: its owner passes functions. Methods may be called concurrently, except Begin, EndEpoch, SetRatio, ForgetNodes and Rehearsal
// of a High and Begin of an Along: these are for one goroutine, the worker of the session.
package memory

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"lcache/internal/importance"
	"lcache/internal/importance/policy"
	"lcache/internal/importance/state"
	"lcache/internal/importance/substitute"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// Options say what a High works with.
type Options struct {
	Dataset
	// Slice returns bytes of the shared memory.
	Slice func(offset uint64, n int) []byte
	// Read calls use with the bytes of a sample, if there is memory to read it now. It is used for nodes, at most until ctx ends.
	Read func(ctx context.Context, index sample.Index, use func(data []byte)) error
}

// A Delivery is a part of an epoch that was handed out.
type Delivery struct {
	Epoch     int
	Indices   []sample.Index
	Addresses []staging.Address // of the samples; nil where the memory may have another use by now
	Kinds     []policy.Kind     // how the epoch's plan serves each sample; nil: as drawn
}

// A High holds the samples that a job's memory policy keeps, in addition to the shared memory. Samples enter when they are delivered; a hit is one copy.
//
// At a boundary the session's worker has the policy for itself (alone), because a policy may scan all samples then. Requests do not wait for that: their deliveries are
// noted, and the policy gets them afterwards.
type High struct {
	o     Options
	total int64 // bytes of the cache
	held  *Bytes
	nodes *nodeReader                      // with pair
	shown atomic.Pointer[importance.Stats] // a copy of stats, which is never changed

	mu     sync.Mutex // guards the fields that follow
	busy   bool       // the worker has policy and pair for itself
	idle   *sync.Cond // busy has ended
	noted  []delivered
	policy policy.Policy
	pair   *policy.Homophily // the policy, where others of a class may stand in; else nil
	stats  importance.Stats
	stood  map[int]map[sample.Index]int // by epoch: how often a sample was delivered in place of others, with pair
	seen   *sample.Set                  // what was delivered
}

// delivered is a sample of a delivery.
type delivered struct {
	epoch   int
	index   sample.Index
	planned policy.Kind // by the epoch's plan
	from    sample.Origin
}

// mostNoted bounds what is noted while the worker has the policy. The policy does not get what is delivered beyond that.
const mostNoted = 1 << 18

// NewHigh makes the memory of a job.
func NewHigh(c state.Config, o Options) (*High, error) {
	m, err := importance.Lookup(c.Method)
	if err != nil {
		return nil, err
	}
	h := &High{o: o, total: c.Cache, stood: map[int]map[sample.Index]int{}}
	h.idle = sync.NewCond(&h.mu)
	h.show()
	if c.Substitute == substitute.Class {
		if h.pair, err = m.WithNodes(c.Policy, o.Manifest.Labels(), c.Cache, c.Params); err == nil {
			h.policy = h.pair
		}
	} else {
		h.policy, err = m.NewPolicy(c.Policy, o.Manifest.Len(), c.Cache, c.Params)
	}
	if err != nil {
		return nil, err
	}
	if h.held, err = newBytes(o.Dataset); err == nil {
		h.seen, err = sample.NewSet(o.Manifest.Len())
	}
	if err != nil {
		h.Close()
		return nil, err
	}
	if h.pair != nil {
		h.nodes = newNodeReader(h)
	}
	return h, nil
}

// Close frees the memory. The session's worker has ended.
func (h *High) Close() {
	h.nodes.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.policy.Close()
	h.held.close()
	h.seen.Close()
}

// Held is the bytes that are here.
func (h *High) Held() *Bytes { return h.held }

// Undelivered counts indices of the dataset that were not delivered.
func (h *High) Undelivered(indices []sample.Index) (n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range indices {
		if h.held.knows(i) && !h.seen.Has(i) {
			n++
		}
	}
	return n
}

// alone calls f while the worker has the policy for itself. No lock is held. Called by the worker of the session, and by session.New before it runs.
func (h *High) alone(f func()) {
	h.mu.Lock()
	h.busy = true
	h.mu.Unlock()
	f()
	for h.takeNoted() {
	}
}

// takeNoted gives the policy some of what was noted. It ends busy and returns false if there is nothing more.
func (h *High) takeNoted() bool {
	const atOnce = 256 // a request may wait for them
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.noted[:min(atOnce, len(h.noted))] {
		h.deliver(d)
	}
	h.show()
	if len(h.noted) > atOnce {
		h.noted = h.noted[atOnce:]
		return true
	}
	h.noted, h.busy = nil, false
	h.idle.Broadcast()
	return false
}

// Begin begins an epoch: targets are the expected uses of all samples, values their importance.
func (h *High) Begin(epoch int, values, targets []float64, order []sample.Index, c state.Config) {
	h.mu.Lock()
	maps.DeleteFunc(h.stood, func(e int, _ map[sample.Index]int) bool { return e < epoch-1 })
	h.mu.Unlock()
	h.alone(func() {
		if _, is := h.policy.(*policy.HCache); is {
			if high, err := policy.Top(values, c.Cache, h.held.Size); err == nil {
				for i := range values {
					if !high.Has(sample.Index(i)) {
						values[i] = 0
					}
				}
				high.Close()
			}
		}
		policy.Begin(h.policy, epoch, values, targets, order)
	})
}

// EndEpoch leaves memory for the boundary.
func (h *High) EndEpoch() {
	h.alone(func() {
		if p, ok := h.inner().(*policy.NextUse); ok {
			p.EndEpoch()
		}
	})
}

// inner is the policy of the important samples.
func (h *High) inner() policy.Policy {
	if h.pair != nil {
		return h.pair.Policy()
	}
	return h.policy
}

// Observe gives the policy new values.
func (h *High) Observe(indices []sample.Index, value func(sample.Index) (float64, bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range indices {
		if v, seen := value(i); seen {
			h.policy.Observe(i, v)
		}
	}
}

// Served counts a delivery, and keeps the samples of it that the policy wants. Bytes that may have been overwritten meanwhile, because the client is gone, are not kept.
func (h *High) Served(d Delivery) {
	for _, w := range h.take(d) {
		h.held.fill(w)
	}
}

// take counts a delivery, and returns the samples to keep.
func (h *High) take(of Delivery) (keep []writing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held.isClosed() {
		return nil
	}
	for k, index := range of.Indices {
		h.seen.Add(index)
		s := delivered{epoch: of.Epoch, index: index, planned: policy.Miss}
		if k < len(of.Addresses) {
			s.from = of.Addresses[k].From
		}
		if of.Kinds != nil {
			s.planned = of.Kinds[k]
		}
		switch {
		case h.busy && len(h.noted) < mostNoted:
			h.noted = append(h.noted, s)
		case h.busy:
			h.count(s, h.held.Has(index), false)
		case !h.deliver(s) && of.Addresses != nil:
			if w, ok := h.offer(index, h.o.Slice(of.Addresses[k].Offset, int(h.o.Manifest.Size(index)))); ok {
				keep = append(keep, w)
			}
		}
	}
	h.show()
	return keep
}

// show makes the counters visible to Counts. h.mu is held.
func (h *High) show() {
	now := h.stats
	h.shown.Store(&now)
}

// deliver counts a sample that was delivered, and reports whether its bytes are here or about to be. The policy gets it as a use. h.mu is held.
func (h *High) deliver(d delivered) (here bool) {
	_, kind := h.policy.Get(d.index, nil)
	here = kind == policy.Hit && h.held.hasOrWrites(d.index)
	h.count(d, here, here && h.pair != nil && h.pair.Nodes().Has(d.index))
	return here
}

// offer offers the policy a sample, and returns room for it if the policy keeps it. The policy keeps a sample already if its bytes were not right before. h.mu is held.
func (h *High) offer(index sample.Index, data []byte) (w writing, ok bool) {
	keep, drop := h.policy.Offer(index, h.held.Size(index))
	for _, gone := range drop {
		h.held.free(gone)
	}
	if !keep {
		return w, false
	}
	return h.held.begin(index, data)
}

// count counts a sample that was delivered: as one of Stats.Requested. h.mu is held.
func (h *High) count(d delivered, here, isNode bool) {
	switch {
	case d.planned == policy.Substitute:
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
	case d.from == sample.FromSource:
		h.stats.SourceMisses++
	case d.planned == policy.Hit && h.pair == nil:
		h.stats.LowHits++
	default:
		h.stats.LogHits++
	}
}

// Counts are what was counted, and the bytes that are here.
type Counts struct {
	importance.Stats
	Taken int64
}

// Counts returns the counters. Deliveries that are noted follow later. It takes no lock: the status document is made under locks that requests take.
func (h *High) Counts() Counts {
	return Counts{*h.shown.Load(), h.held.Taken()}
}
