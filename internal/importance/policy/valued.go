package policy

import (
	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// Valued keeps the samples of greatest value by the newest observations (SpiderCache §IV-B). It evicts the sample of least value first, and only for a
// sample of greater value. It needs 8 bytes per sample in addition to its heap.
type Valued struct {
	store
	values []float64
}

// NewValued returns a cache for n samples with a capacity in bytes.
func NewValued(n int, capacity int64) (*Valued, error) {
	s, err := newStore(n, capacity)
	if err != nil {
		return nil, err
	}
	p := &Valued{store: s}
	if p.values, err = offheap.MakeDense[float64](n); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close frees the memory.
func (p *Valued) Close() {
	offheap.Free(p.values)
	p.values = nil
	p.store.Close()
}

// Begin replaces the values of all samples; with nil, they do not change.
func (p *Valued) Begin(_ int, values []float64, _ []sample.Index) {
	if values != nil {
		copy(p.values, values)
		p.rekey(func(i sample.Index) float64 { return p.values[i] })
	}
}

// Observe replaces the value of one sample.
func (p *Valued) Observe(id sample.Index, value float64) {
	if int(id) >= len(p.values) {
		return
	}
	p.values[id] = value
	if p.has(id) {
		p.update(id, value)
	}
}

// Offer keeps a sample if there is room, or if evicting samples of smaller value makes room.
func (p *Valued) Offer(id sample.Index, bytes int64) (bool, []sample.Index) {
	if int(id) >= len(p.values) {
		return false, nil
	}
	value := p.values[id]
	return p.offer(id, bytes, value, func(_ sample.Index, key float64) bool { return key < value })
}

// Clone returns an independent copy.
func (p *Valued) Clone() (Policy, error) {
	c := &Valued{}
	var err error
	if c.store, err = p.store.clone(); err != nil {
		return nil, err
	}
	if c.values, err = copied(p.values); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}
