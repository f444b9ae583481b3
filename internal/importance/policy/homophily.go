package policy

import "lcache/sample"

// Homophily is SpiderCache's pair of caches (SpiderCache §IV-B): one by importance, with any [Policy], and [Nodes],
// which may replace their neighbours. A sample is in at most one of them. The importance cache has the share ratio of
// the memory.
type Homophily struct {
	policy Policy
	nodes  *Nodes
	total  int64
	ratio  float64
}

// NewHomophily combines a policy and nodes, which it then owns, and divides the memory between them. If substitutes
// are never allowed, pass a ratio of 1, which gives all memory to the policy.
func NewHomophily(policy Policy, nodes *Nodes, capacity int64, ratio float64) *Homophily {
	p := &Homophily{policy: policy, nodes: nodes, ratio: ratio}
	p.Resize(capacity)
	return p
}

// part returns the importance cache's memory: ⌊capacity × ratio⌋.
func part(capacity int64, ratio float64) int64 {
	return int64(float64(capacity) * max(0, min(ratio, 1)))
}

// Close frees the memory.
func (p *Homophily) Close() {
	p.policy.Close()
	p.nodes.Close()
}

// Policy returns the importance cache.
func (p *Homophily) Policy() Policy { return p.policy }

// Nodes returns the nodes.
func (p *Homophily) Nodes() *Nodes { return p.nodes }

// Begin begins an epoch of both caches.
func (p *Homophily) Begin(epoch int, values []float64, order []sample.Index) {
	p.nodes.Begin()
	p.policy.Begin(epoch, values, order)
}

// Observe passes a value to the policy.
func (p *Homophily) Observe(id sample.Index, value float64) { p.policy.Observe(id, value) }

// Has reports whether a sample is kept, in either cache.
func (p *Homophily) Has(id sample.Index) bool { return p.policy.Has(id) || p.nodes.Has(id) }

// Ahead prefetches the entries of samples in both caches.
func (p *Homophily) Ahead(asked []sample.Index) {
	if f, ok := p.policy.(Foreseer); ok {
		f.Ahead(asked)
	}
	p.nodes.Ahead(asked)
}

// Get serves a kept sample, or a node that may replace it.
func (p *Homophily) Get(id sample.Index, may May) (sample.Index, Kind) {
	if _, kind := p.policy.Get(id, nil); kind == Hit || p.nodes.Has(id) {
		return id, Hit
	}
	if other, ok := p.nodes.StandIn(id, may); ok {
		return other, Substitute
	}
	return id, Miss
}

// Offer offers a sample to the importance cache.
func (p *Homophily) Offer(id sample.Index, bytes int64) (bool, []sample.Index) {
	if p.nodes.Has(id) {
		return true, nil
	}
	return p.policy.Offer(id, bytes)
}

// Put adds a node with the samples that it may replace. It refuses a sample that is in either cache; see [Nodes.Put].
func (p *Homophily) Put(id sample.Index, neighbours []sample.Index, bytes int64) (keep bool, drop []sample.Index) {
	if p.policy.Has(id) {
		return false, nil
	}
	return p.nodes.Put(id, neighbours, bytes)
}

// SetRatio changes the importance cache's share. The cache that shrinks drops samples: the policy its first to evict,
// the nodes the oldest.
func (p *Homophily) SetRatio(ratio float64) []sample.Index {
	p.ratio = ratio
	return p.Resize(p.total)
}

// Ratio returns the importance cache's share.
func (p *Homophily) Ratio() float64 { return p.ratio }

// Resize changes the capacity of both caches.
func (p *Homophily) Resize(capacity int64) []sample.Index {
	p.total = capacity
	high := part(capacity, p.ratio)
	return append(p.policy.Resize(high), p.nodes.Resize(capacity-high)...)
}

// Clone returns an independent copy. It does not copy the policy's epoch, because it is made between two epochs.
func (p *Homophily) Clone() (Policy, error) {
	policy, err := p.policy.Clone()
	if err != nil {
		return nil, err
	}
	nodes, err := p.nodes.Clone()
	if err != nil {
		policy.Close()
		return nil, err
	}
	return &Homophily{policy: policy, nodes: nodes, total: p.total, ratio: p.ratio}, nil
}

// A Foreseer can look up many samples before they are requested one by one. This changes no result. Data of different
// samples are far apart in memory, and fetching many at once takes a fraction of the time.
type Foreseer interface{ Ahead(asked []sample.Index) }
