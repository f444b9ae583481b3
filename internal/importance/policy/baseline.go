package policy

import (
	"math"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// LRU evicts the least recently used sample. It ignores importance; it is for comparison.
type LRU struct {
	store // keyed by the time of the last use
	clock float64
}

// NewLRU returns a cache for n samples with a capacity in bytes.
func NewLRU(n int, capacity int64) (*LRU, error) {
	s, err := newStore(n, capacity)
	return &LRU{store: s}, err
}

// Clone returns an independent copy.
func (p *LRU) Clone() (Policy, error) {
	s, err := p.store.clone()
	if err != nil {
		return nil, err
	}
	return &LRU{store: s, clock: p.clock}, nil
}

// Begin does nothing.
func (p *LRU) Begin(int, []float64, []sample.Index) {}

// Observe does nothing.
func (p *LRU) Observe(sample.Index, float64) {}

// Get serves a kept sample, and makes it the most recent.
func (p *LRU) Get(id sample.Index, _ May) (sample.Index, Kind) {
	if !p.has(id) {
		return id, Miss
	}
	p.clock++
	p.update(id, p.clock)
	return id, Hit
}

// Offer keeps every sample that fits the capacity.
func (p *LRU) Offer(id sample.Index, bytes int64) (bool, []sample.Index) {
	if p.has(id) {
		return true, nil
	}
	if !p.fits(id, bytes) {
		return false, nil
	}
	drop, ok := p.room(bytes, func(sample.Index, float64) bool { return true })
	p.clock++
	return ok && p.insert(id, p.clock, bytes), drop
}

// MinIO keeps the first samples and evicts none (Mohan et al.: Analyzing and Mitigating Data Stalls in DNN Training,
// VLDB 2021, §4.1). Warm-ups use it too.
type MinIO struct {
	kept           *sample.Set
	size           []uint32
	capacity, used int64
}

// NewMinIO returns a cache for n samples with a capacity in bytes.
func NewMinIO(n int, capacity int64) (*MinIO, error) {
	kept, err := sample.NewSet(n)
	if err != nil {
		return nil, err
	}
	size, err := offheap.Make[uint32](n)
	if err != nil {
		kept.Close()
		return nil, err
	}
	return &MinIO{kept: kept, size: size, capacity: capacity}, nil
}

// Close frees the memory.
func (p *MinIO) Close() {
	p.kept.Close()
	offheap.Free(p.size)
	p.size = nil
}

// Clone returns an independent copy.
func (p *MinIO) Clone() (Policy, error) {
	c, err := NewMinIO(len(p.size), p.capacity)
	if err != nil {
		return nil, err
	}
	for i := range p.kept.All {
		c.kept.Add(i)
	}
	copy(c.size, p.size)
	c.used = p.used
	return c, nil
}

// Begin does nothing.
func (p *MinIO) Begin(int, []float64, []sample.Index) {}

// Observe does nothing.
func (p *MinIO) Observe(sample.Index, float64) {}

// Has reports whether a sample is kept.
func (p *MinIO) Has(id sample.Index) bool { return p.kept.Has(id) }

// Get serves a kept sample.
func (p *MinIO) Get(id sample.Index, _ May) (sample.Index, Kind) {
	if p.kept.Has(id) {
		return id, Hit
	}
	return id, Miss
}

// Offer keeps a sample if there is room.
func (p *MinIO) Offer(id sample.Index, bytes int64) (bool, []sample.Index) {
	if p.kept.Has(id) {
		return true, nil
	}
	if !storable(bytes, p.capacity-p.used) || !p.kept.Add(id) {
		return false, nil
	}
	p.size[id] = uint32(bytes)
	p.used += bytes
	return true, nil
}

// Resize changes the capacity. If the samples no longer fit, it drops those with the greatest indices.
func (p *MinIO) Resize(capacity int64) (drop []sample.Index) {
	p.capacity = capacity
	for i := len(p.size) - 1; i >= 0 && p.used > p.capacity; i-- {
		if p.kept.Remove(sample.Index(i)) {
			p.used -= int64(p.size[i])
			drop = append(drop, sample.Index(i))
		}
	}
	return drop
}

// storable reports whether a sample of the given size fits into room. No sample has 4 GiB or more.
func storable(bytes, room int64) bool { return bytes >= 0 && bytes <= room && bytes <= math.MaxUint32 }
