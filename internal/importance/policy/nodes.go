package policy

import (
	"maps"
	"slices"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// Nodes is a FIFO of well connected samples that may replace their neighbours of the same class (SpiderCache §IV-B).
// It needs 4 bytes and a bit per sample of the dataset.
type Nodes struct {
	capacity, used int64
	labels         []int32
	owner          []uint32 // by sample: the ticket of the newest node that lists it; if it is below first, that node was evicted
	nodes          []node   // in order of arrival
	first          uint32   // ticket of nodes[0]; tickets start at 1
	are            *sample.Set
	maxUses        int
	spent          map[sample.Index]int // uses in this epoch of evicted nodes, which may return
	fetched        uint32               // result of Ahead, so that the compiler keeps the reads
}

type node struct {
	id    sample.Index
	bytes uint32
	uses  int // uses as a substitute in this epoch
}

// NewNodes returns an empty FIFO with a capacity in bytes, for samples with these labels. The caller may change the
// labels later. A node replaces at most maxUses samples in an epoch; 0: no limit.
func NewNodes(labels []int32, capacity int64, maxUses int) (*Nodes, error) {
	p := &Nodes{capacity: capacity, labels: labels, first: 1, maxUses: maxUses, spent: map[sample.Index]int{}}
	var err error
	if p.owner, err = offheap.MakeDense[uint32](len(labels)); err == nil {
		p.are, err = sample.NewSet(len(labels))
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close frees the memory.
func (p *Nodes) Close() {
	offheap.Free(p.owner)
	p.are.Close()
	p.owner, p.are = nil, nil
}

// Begin begins an epoch: the uses of all nodes are 0.
func (p *Nodes) Begin() {
	for k := range p.nodes {
		p.nodes[k].uses = 0
	}
	clear(p.spent)
}

// Has reports whether a sample is a node.
func (p *Nodes) Has(id sample.Index) bool { return p.are.Has(id) }

// StandIn returns the newest node that lists a sample, and counts a use. The node must have the sample's current
// class and uses left, and may must allow it.
func (p *Nodes) StandIn(id sample.Index, may May) (sample.Index, bool) {
	if may == nil || int(id) >= len(p.owner) || p.owner[id] < p.first {
		return id, false
	}
	n := &p.nodes[p.owner[id]-p.first]
	if p.labels[n.id] != p.labels[id] || p.maxUses > 0 && n.uses >= p.maxUses || !may(n.id) {
		return id, false
	}
	n.uses++
	return n.id, true
}

// Ahead prefetches the data that StandIn reads; see [Foreseer].
func (p *Nodes) Ahead(asked []sample.Index) {
	for _, i := range asked {
		if int(i) < len(p.owner) && p.owner[i] >= p.first {
			p.fetched += uint32(p.labels[i])
		}
	}
}

// Put adds a node with the samples that it may replace, as far as they are of its class. It refuses a sample that is
// already a node, has no neighbour of its class, or is too large. It evicts the oldest nodes to make room.
func (p *Nodes) Put(id sample.Index, neighbours []sample.Index, bytes int64) (keep bool, drop []sample.Index) {
	if int(id) >= len(p.owner) || p.Has(id) || !storable(bytes, p.capacity) || len(neighbours) == 0 {
		return false, nil
	}
	ticket := p.first + uint32(len(p.nodes))
	if ticket == never { // after 4 × 10⁹ nodes
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
	drop = append(drop, p.shrink(p.capacity-bytes)...)
	p.nodes = append(p.nodes, node{id: id, bytes: uint32(bytes), uses: p.spent[id]})
	p.are.Add(id)
	p.used += bytes
	return true, drop
}

// shrink drops the oldest nodes until the others need at most the given bytes. Samples of a dropped node are not
// assigned to older nodes.
func (p *Nodes) shrink(bytes int64) (drop []sample.Index) {
	for len(p.nodes) > 0 && p.used > bytes {
		n := p.nodes[0]
		drop = append(drop, n.id)
		p.are.Remove(n.id)
		p.used -= int64(n.bytes)
		if n.uses > 0 {
			p.spent[n.id] = n.uses
		}
		p.nodes = p.nodes[1:]
		p.first++
	}
	return drop
}

// Resize changes the capacity, and drops the oldest nodes that no longer fit.
func (p *Nodes) Resize(capacity int64) []sample.Index {
	p.capacity = capacity
	return p.shrink(capacity)
}

// Clear drops all nodes.
func (p *Nodes) Clear() []sample.Index { return p.shrink(-1) }

// List returns the nodes, oldest first.
func (p *Nodes) List() (out []sample.Index) {
	for _, n := range p.nodes {
		out = append(out, n.id)
	}
	return out
}

// Clone returns an independent copy.
func (p *Nodes) Clone() (*Nodes, error) {
	c := *p
	var err error
	if c.owner, err = copied(p.owner); err != nil {
		return nil, err
	}
	if c.are, err = p.are.Clone(); err != nil {
		offheap.Free(c.owner)
		return nil, err
	}
	c.nodes, c.spent = slices.Clone(p.nodes), maps.Clone(p.spent)
	return &c, nil
}

// copied returns a copy of an array outside Go's heap.
func copied[T offheap.Number](a []T) ([]T, error) {
	to, err := offheap.MakeDense[T](len(a))
	copy(to, a)
	return to, err
}
