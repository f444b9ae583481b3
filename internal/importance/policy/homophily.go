package policy

import "lcache/sample"

// Homophily is SpiderCache's pair of caches (SpiderCache §IV-B): one by importance, which any [Policy] may be, and [Nodes], which may stand in for their neighbours.
// A sample is in one of them at most. The importance cache has the share ratio of the memory.
type Homophily struct {
	policy Policy
	nodes  *Nodes
	total  int64
	ratio  float64
}

// NewHomophily joins a policy and nodes, which it closes, and shares the memory between them. Where substitutes are never allowed a ratio of 1 gives all of it to
// importance.
func NewHomophily(policy Policy, nodes *Nodes, capacity int64, ratio float64) *Homophily {
	p := &Homophily{policy: policy, nodes: nodes, ratio: ratio}
	p.Resize(capacity)
	return p
}

// part is the importance cache's share of the memory: ⌊capacity × ratio⌋.
func part(capacity int64, ratio float64) int64 {
	return int64(float64(capacity) * max(0, min(ratio, 1)))
}

// Close gives the memory back.
func (p *Homophily) Close() {
	p.policy.Close()
	p.nodes.Close()
}

// Policy is the importance cache.
func (p *Homophily) Policy() Policy { return p.policy }

// Nodes are the samples that may stand in for others.
func (p *Homophily) Nodes() *Nodes { return p.nodes }

// Begin begins an epoch of both caches.
func (p *Homophily) Begin(epoch int, values []float64, order []sample.Index) {
	p.nodes.Begin()
	p.policy.Begin(epoch, values, order)
}

// Observe notes a value.
func (p *Homophily) Observe(id sample.Index, value float64) { p.policy.Observe(id, value) }

// Has reports whether a sample is kept, in either cache.
func (p *Homophily) Has(id sample.Index) bool { return p.policy.Has(id) || p.nodes.Has(id) }

// Ahead fetches what both caches know of samples.
func (p *Homophily) Ahead(asked []sample.Index) {
	if f, ok := p.policy.(Foreseer); ok {
		f.Ahead(asked)
	}
	p.nodes.Ahead(asked)
}

// Get serves a sample that is kept; else a node that may stand in for it.
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

// Put takes a node with the samples that it may stand in for. It is refused if it is in either cache already; see [Nodes.Put].
func (p *Homophily) Put(id sample.Index, neighbours []sample.Index, bytes int64) (keep bool, drop []sample.Index) {
	if p.policy.Has(id) {
		return false, nil
	}
	return p.nodes.Put(id, neighbours, bytes)
}

// SetRatio moves the border between the caches. On the side that shrinks the policy's first or the oldest nodes go.
func (p *Homophily) SetRatio(ratio float64) []sample.Index {
	p.ratio = ratio
	return p.Resize(p.total)
}

// Ratio is the importance cache's share.
func (p *Homophily) Ratio() float64 { return p.ratio }

// Resize changes the memory of both.
func (p *Homophily) Resize(capacity int64) []sample.Index {
	p.total = capacity
	high := part(capacity, p.ratio)
	return append(p.policy.Resize(high), p.nodes.Resize(capacity-high)...)
}

// Clone returns a copy that is used apart. The policy's epoch is not copied: it is for a time between two epochs.
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

// Foreseer looks at what it knows of samples before it is asked for them one by one. Nothing follows from it: of millions of samples what is known of one is far from what is known of the
// next, and to fetch many places from memory at once takes a fraction of the time.
type Foreseer interface{ Ahead(asked []sample.Index) }
