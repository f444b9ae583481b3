// Package memory holds copies of samples that importance keeps in memory, outside the shared memory. A High holds the
// samples that a policy chooses (ImPACT §III, SHADE §4, SpiderCache §IV), and the nodes that may replace other
// samples of their class. An Opportunistic holds samples from opportunistic reads. Both keep the bytes in a Bytes, which
// readers ask before the log.
//
// The package makes no decisions about orders, and does no I/O itself: its owner passes functions. Methods may be
// called concurrently, with these exceptions: Begin, EndEpoch, SetRatio, ForgetNodes and Rehearsal of a High, and
// Begin of an Opportunistic. Only the session's worker may call those.
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

// Options are the inputs of a High.
type Options struct {
	Dataset
	// Slice returns bytes of the shared memory.
	Slice func(offset uint64, n int) []byte
	// Read calls use with the bytes of a sample, if there is memory to read it now. It is for nodes. It gives up when
	// ctx ends.
	Read func(ctx context.Context, index sample.Index, use func(data []byte)) error
}

// A Delivery is a delivered part of an epoch.
type Delivery struct {
	Epoch     int
	Indices   []sample.Index
	Addresses []staging.Address // of the samples; nil if the memory may have been reused
	Kinds     []policy.Kind     // how the epoch's plan serves each sample; nil: as drawn
}

// A High holds the samples that a job's memory policy keeps, in addition to the shared memory. A delivered sample may enter it; a hit costs one copy.
//
// At a boundary only the session's worker uses the policy (see alone), because a policy may scan all samples then.
// Requests do not wait for that: their deliveries are queued, and reach the policy afterwards.
type High struct {
	o     Options
	total int64 // bytes of the cache
	held  *Bytes
	nodes *nodeReader                      // with pair
	shown atomic.Pointer[importance.Stats] // a copy of stats; a published copy never changes

	mu     sync.Mutex // guards the fields that follow
	busy   bool       // only the worker uses policy and pair now
	idle   *sync.Cond // signals the end of busy
	noted  []delivered
	policy policy.Policy
	pair   *policy.Homophily // the policy if substitutes of a class are allowed; otherwise nil
	stats  importance.Stats
	stood  map[int]map[sample.Index]int // with pair, by epoch: how often a sample was substituted for others
	seen   *sample.Set                  // delivered samples
}

// delivered is one sample of a delivery.
type delivered struct {
	epoch   int
	index   sample.Index
	planned policy.Kind // how the epoch's plan serves it
	from    sample.Origin
}

// mostNoted bounds the deliveries that are queued while the worker uses the policy. Further deliveries do not reach
// the policy.
const mostNoted = 1 << 18

// NewHigh allocates the memory of a job.
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

// Close frees the memory. The session's worker must have ended.
func (h *High) Close() {
	h.nodes.stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.policy.Close()
	h.held.close()
	h.seen.Close()
}

// Held returns the held bytes.
func (h *High) Held() *Bytes { return h.held }

// Undelivered returns how many of the given samples were never delivered. Indices beyond the dataset do not count.
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

// alone calls f while only the worker uses the policy. No lock is held. Called by the worker, and by session.New before the worker runs.
func (h *High) alone(f func()) {
	h.mu.Lock()
	h.busy = true
	h.mu.Unlock()
	f()
	for h.takeNoted() {
	}
}

// takeNoted gives the policy some of the queued deliveries. If there are none left, it ends busy and returns false.
func (h *High) takeNoted() bool {
	const atOnce = 256 // a request may have to wait while these are handled
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

// Begin begins an epoch. targets are the expected uses of all samples, values their importance.
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

// EndEpoch frees memory for the boundary.
func (h *High) EndEpoch() {
	h.alone(func() {
		if p, ok := h.inner().(*policy.NextUse); ok {
			p.EndEpoch()
		}
	})
}

// inner returns the policy for the important samples.
func (h *High) inner() policy.Policy {
	if h.pair != nil {
		return h.pair.Policy()
	}
	return h.policy
}

// Observe passes new values to the policy.
func (h *High) Observe(indices []sample.Index, value func(sample.Index) (float64, bool)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range indices {
		if v, seen := value(i); seen {
			h.policy.Observe(i, v)
		}
	}
}

// Served counts a delivery, and keeps the samples that the policy wants. If the client has disconnected, the bytes
// may have been overwritten, so they are not kept.
func (h *High) Served(d Delivery) {
	for _, w := range h.take(d) {
		h.held.fill(w)
	}
}

// take counts a delivery, and returns room for the samples to keep.
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

// show publishes the counters for Counts. h.mu is held.
func (h *High) show() {
	now := h.stats
	h.shown.Store(&now)
}

// deliver counts a delivered sample, passes its use to the policy, and reports whether it is held or reserved. h.mu is held.
func (h *High) deliver(d delivered) (held bool) {
	_, kind := h.policy.Get(d.index, nil)
	held = kind == policy.Hit && h.held.hasOrWrites(d.index)
	h.count(d, held, held && h.pair != nil && h.pair.Nodes().Has(d.index))
	return held
}

// offer offers a sample to the policy, and reserves room if the policy keeps it. If earlier bytes of the sample were
// wrong, the policy has the sample already. h.mu is held.
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

// count adds a delivered sample to one of the counters in Stats.Requested. h.mu is held.
func (h *High) count(d delivered, held, isNode bool) {
	switch {
	case d.planned == policy.Substitute:
		h.stats.Substituted++
		most := 1 // an L-sample is a substitute at most once in an epoch; a table would have millions of entries
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
	case held:
		h.stats.HighHits++
	case d.from == sample.FromSource:
		h.stats.SourceMisses++
	case d.planned == policy.Hit && h.pair == nil:
		h.stats.LowHits++
	default:
		h.stats.LogHits++
	}
}

// Counts has the counters, and the bytes held.
type Counts struct {
	importance.Stats
	Taken int64
}

// Counts returns the counters, without queued deliveries. It takes no lock, because the status document is made under
// locks that requests need.
func (h *High) Counts() Counts {
	return Counts{*h.shown.Load(), h.held.Taken()}
}
