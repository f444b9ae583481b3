package importance

import (
	"lcache/offheap"
	"lcache/sample"
)

// Homophily is SpiderCache's pair of caches (SpiderCache §IV-B): one by importance, and one of well connected samples, nodes, that may stand in for
// their neighbours. Nodes leave in the order in which they came. The importance cache has the share ratio of the memory. It takes 12 bytes a sample beside
// its heap.
type Homophily struct {
	store    // the importance cache
	total    int64
	ratio    float64
	values   []float64
	labels   []int32
	owner    []uint32 // of each sample: the ticket of the newest node that lists it; a ticket below first is of a node that is gone
	nodes    []node   // in the order in which they came
	first    uint32   // ticket of nodes[0]; tickets begin at 1
	ticket   map[sample.Index]uint32
	nodeUsed int64
	maxUses  int
}

type node struct {
	id    sample.Index
	bytes uint32
	uses  int // as a substitute, in this epoch
}

// NewHomophily returns the caches of samples with these labels, which the caller may change. A node stands in at most maxUses times
// an epoch; 0: without limit. Where substitutes are never allowed a ratio of 1 gives all memory to importance.
func NewHomophily(labels []int32, capacity int64, ratio float64, maxUses int) (*Homophily, error) {
	n := len(labels)
	s, err := newStore(n, part(capacity, ratio))
	if err != nil {
		return nil, err
	}
	p := &Homophily{store: s, total: capacity, ratio: ratio, labels: labels, first: 1, ticket: map[sample.Index]uint32{}, maxUses: maxUses}
	if p.values, err = offheap.MakeDense[float64](n); err == nil {
		p.owner, err = offheap.MakeDense[uint32](n)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// part is the importance cache's share of the memory: ⌊capacity × ratio⌋.
func part(capacity int64, ratio float64) int64 {
	return int64(float64(capacity) * max(0, min(ratio, 1)))
}

// Close gives the memory back.
func (p *Homophily) Close() {
	offheap.Free(p.values)
	offheap.Free(p.owner)
	p.values, p.owner = nil, nil
	p.store.Close()
}

// Begin begins an epoch: no node has stood in for others yet. values are those of all samples; nil: they stay.
func (p *Homophily) Begin(_ int, values []float64, _ []sample.Index) {
	for k := range p.nodes {
		p.nodes[k].uses = 0
	}
	if values != nil {
		copy(p.values, values)
		p.rekey(func(i sample.Index) float64 { return p.values[i] })
	}
}

// Observe notes a value.
func (p *Homophily) Observe(id sample.Index, value float64) {
	if int(id) >= len(p.values) {
		return
	}
	p.values[id] = value
	if p.has(id) {
		p.update(id, value)
	}
}

// Has reports whether a sample is kept, in either cache.
func (p *Homophily) Has(id sample.Index) bool { return p.has(id) || p.ticket[id] != 0 }

// Get serves a sample that is kept; else the newest node that lists it, if it is of the same class now, was not used up, and may stand in.
func (p *Homophily) Get(id sample.Index, may May) (sample.Index, Kind) {
	if p.Has(id) {
		return id, Hit
	}
	if may == nil || int(id) >= len(p.owner) || p.owner[id] < p.first {
		return id, Miss
	}
	n := &p.nodes[p.owner[id]-p.first]
	if p.labels[n.id] != p.labels[id] || p.maxUses > 0 && n.uses >= p.maxUses || !may(n.id) {
		return id, Miss
	}
	n.uses++
	return n.id, Substitute
}

// Offer keeps a sample among the important ones if there is room, or if samples of smaller value make room.
func (p *Homophily) Offer(id sample.Index, bytes int64) (bool, []sample.Index) {
	if p.Has(id) {
		return true, nil
	}
	if !p.fits(id, bytes) {
		return false, nil
	}
	drop, ok := p.room(bytes, func(_ sample.Index, key float64) bool { return key < p.values[id] })
	return ok && p.insert(id, p.values[id], bytes), drop
}

// Put takes a node with the samples that it may stand in for, those of its class. It is refused if it is in either cache already, if none is of
// its class, or if it is too large. The oldest nodes make room.
func (p *Homophily) Put(id sample.Index, neighbours []sample.Index, bytes int64) (keep bool, drop []sample.Index) {
	if int(id) >= len(p.owner) || p.Has(id) || !storable(bytes, p.total-p.capacity) || len(neighbours) == 0 {
		return false, nil
	}
	ticket := p.first + uint32(len(p.nodes))
	if ticket == never { // after four thousand million nodes
		drop = p.shrink(0)
		clear(p.owner)
		p.first, ticket = 1, 1
	}
	listed := false
	for _, i := range neighbours {
		if int(i) < len(p.owner) && i != id && p.labels[i] == p.labels[id] {
			p.owner[i], listed = ticket, true
		}
	}
	if !listed {
		return false, drop
	}
	drop = append(drop, p.shrink(p.total-p.capacity-bytes)...)
	p.nodes = append(p.nodes, node{id: id, bytes: uint32(bytes)})
	p.ticket[id] = ticket
	p.nodeUsed += bytes
	return true, drop
}

// shrink drops the oldest nodes until those that are left take at most so many bytes. What they listed falls to no older node.
func (p *Homophily) shrink(bytes int64) (drop []sample.Index) {
	for len(p.nodes) > 0 && p.nodeUsed > bytes {
		n := p.nodes[0]
		drop = append(drop, n.id)
		delete(p.ticket, n.id)
		p.nodeUsed -= int64(n.bytes)
		p.nodes = p.nodes[1:]
		p.first++
	}
	return drop
}

// SetRatio moves the border between the caches. On the side that shrinks least value or the oldest nodes go.
func (p *Homophily) SetRatio(ratio float64) []sample.Index {
	p.ratio = ratio
	return p.Resize(p.total)
}

// Resize changes the memory of both.
func (p *Homophily) Resize(capacity int64) []sample.Index {
	p.total = capacity
	drop := p.store.Resize(part(capacity, p.ratio))
	return append(drop, p.shrink(p.total-p.capacity)...)
}

// Nodes are the well connected samples that are kept, oldest first.
func (p *Homophily) Nodes() (out []sample.Index) {
	for _, n := range p.nodes {
		out = append(out, n.id)
	}
	return out
}
