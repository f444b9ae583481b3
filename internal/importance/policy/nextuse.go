package policy

import (
	"math"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/numeric"
	"lcache/sample"
)

// never is the position of a use that is not in this epoch.
const never = math.MaxUint32

// NextUse evicts the sample whose next use is last, like Belady's MIN. Within an epoch the order is known once it is drawn; beyond it the targets say
// how soon a use is expected. It needs 8 bytes per sample and 4 per position of the order, in addition to its heap.
type NextUse struct {
	store             // keyed by −(position of the next use)
	use     []uint32  // of each sample: its next position in this epoch
	then    []uint32  // of each position: the next position of the same sample
	gap     []float32 // of each sample: expected distance of its next use from the end of the epoch; nil between two epochs
	length  float64   // of the epoch
	left    int       // uses still to come in this epoch
	n       int       // samples
	fetched uint32    // result of Ahead, so that the compiler keeps the reads
}

// NewNextUse returns a policy for n samples with a capacity in bytes.
func NewNextUse(n int, capacity int64) (*NextUse, error) {
	s, err := newStore(n, capacity)
	if err != nil {
		return nil, err
	}
	p := &NextUse{store: s, n: n}
	if p.gap, err = offheap.MakeDense[float32](n); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close frees the memory.
func (p *NextUse) Close() {
	p.store.Close()
	p.forget()
	offheap.Free(p.gap)
	p.gap = nil
}

// Clone returns an independent copy. It admits nothing until an epoch begins.
func (p *NextUse) Clone() (Policy, error) {
	s, err := p.store.clone()
	if err != nil {
		return nil, err
	}
	return &NextUse{store: s, n: p.n}, nil
}

// EndEpoch frees memory that is only needed inside an epoch, for the boundary. Kept samples stay. No sample is
// admitted until the next epoch begins.
func (p *NextUse) EndEpoch() {
	p.forget()
	offheap.Free(p.gap)
	p.gap = nil
}

// forget frees the epoch's order.
func (p *NextUse) forget() {
	offheap.Free(p.use)
	offheap.Free(p.then)
	p.use, p.then, p.left = nil, nil, 0
}

// Begin begins an epoch. targets are the expected uses of each sample in an epoch of this length; nil: equal.
func (p *NextUse) Begin(_ int, targets []float64, order []sample.Index) {
	p.length = float64(len(order))
	if p.gap == nil {
		var err error
		if p.gap, err = offheap.MakeDense[float32](p.n); err != nil {
			return
		}
	}
	m := numeric.Total(targets)
	for i := range p.gap {
		p.gap[i] = 1
		if i < len(targets) {
			p.gap[i] = float32(m / targets[i]) // a target of 0 gives infinity: no expected use
		}
	}
	p.follow(order)
}

// BeginGaps begins an epoch with given gaps, in positions.
func (p *NextUse) BeginGaps(gaps []float64, order []sample.Index) {
	p.length = float64(len(order))
	for i, g := range gaps {
		p.gap[i] = float32(g)
	}
	p.follow(order)
}

// follow finds the next use after each use, from the end of the order, and sets the keys of all kept samples. If
// memory for that is missing, the order counts as unknown.
func (p *NextUse) follow(order []sample.Index) {
	p.forget()
	if len(order) > 0 && p.remember(len(order)) {
		for k := len(order) - 1; k >= 0; k-- {
			if i := order[k]; int(i) < len(p.use) {
				p.then[k] = p.use[i]
				p.use[i] = uint32(k)
				p.left++
			}
		}
	}
	p.rekey(p.urgency)
}

// remember allocates memory for the uses of an epoch, all unknown.
func (p *NextUse) remember(length int) bool {
	var err error
	if p.use, err = offheap.MakeDense[uint32](len(p.gap)); err == nil {
		p.then, err = offheap.MakeDense[uint32](length)
	}
	if err != nil {
		p.forget()
		return false
	}
	for i := range p.use {
		p.use[i] = never
	}
	return true
}

// next returns the position of sample i's next use in this epoch, or never.
func (p *NextUse) next(i sample.Index) uint32 {
	if p.use == nil {
		return never
	}
	return p.use[i]
}

// urgency returns the key of sample i: the later its next use, the smaller the key.
func (p *NextUse) urgency(i sample.Index) float64 {
	if k := p.next(i); k != never {
		return -float64(k)
	}
	return -(p.length + float64(p.gap[i]))
}

// Ahead prefetches the data that Get and Offer read; see [Foreseer].
func (p *NextUse) Ahead(asked []sample.Index) {
	sum := uint32(0)
	for _, i := range asked {
		if int(i) < len(p.use) {
			sum += p.use[i] + p.at[i] + uint32(p.gap[i])
		}
	}
	for _, i := range asked {
		if p.has(i) {
			sum += uint32(p.words[2*(int(p.at[i])-1+heapPad)])
		}
	}
	p.fetched += sum
}

// Get counts a use of a sample and moves on to its next use. After the last use of the epoch it frees the order, to
// leave memory for the boundary.
func (p *NextUse) Get(id sample.Index, _ May) (sample.Index, Kind) {
	if int(id) >= p.n {
		return id, Miss
	}
	if p.gap == nil && p.has(id) {
		return id, Hit
	}
	if k := p.next(id); k != never {
		p.use[id] = p.then[k]
		if p.left--; p.left == 0 {
			p.forget()
		}
	}
	if !p.has(id) {
		return id, Miss
	}
	p.update(id, p.urgency(id))
	return id, Hit
}

// Offer keeps a sample unless its next use is later than the next use of every kept sample. Of equal uses, the sample
// with the smaller index is evicted.
func (p *NextUse) Offer(id sample.Index, bytes int64) (bool, []sample.Index) {
	if p.has(id) {
		return true, nil
	}
	if p.gap == nil || !p.fits(id, bytes) {
		return false, nil
	}
	key := p.urgency(id)
	drop, ok := p.room(bytes, func(top sample.Index, worst float64) bool {
		return worst < key || worst == key && top < id
	})
	return ok && p.insert(id, key, bytes), drop
}

// Observe does nothing: the targets of the next epoch already contain the values.
func (p *NextUse) Observe(sample.Index, float64) {}
