package policy

import (
	"math"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/numeric"
	"lcache/sample"
)

// HCache is ImPACT's cache of H-samples (ImPACT §III-C). It evicts the sample of least value first, and only for a sample of greater value.
//
// A new H-list changes all values, and sorting by them at once would take long. So a shadow heap is built in small
// steps, while the main heap still decides evictions by its old keys. When the shadow heap has all samples, it
// becomes the main heap in one step. Hits change neither heap.
type HCache struct {
	main, shadow   *heap // shadow: nil while none is being built
	values         []float64
	cursor         sample.Index // all kept samples below it are in the shadow heap
	capacity, used int64
	// Late counts builds that were finished at once because the next H-list arrived.
	Late int
}

// NewHCache returns a cache for n samples with a capacity in bytes.
func NewHCache(n int, capacity int64) (*HCache, error) {
	p := &HCache{capacity: capacity}
	var err error
	if p.main, err = newHeap(n); err == nil {
		p.values, err = offheap.MakeDense[float64](n)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close frees the memory.
func (p *HCache) Close() {
	for _, h := range []*heap{p.main, p.shadow} {
		if h != nil {
			h.close()
		}
	}
	offheap.Free(p.values)
	p.main, p.shadow, p.values = nil, nil, nil
}

// Clone returns an independent copy, in which a running build is finished.
func (p *HCache) Clone() (Policy, error) {
	p.Build(-1)
	c := &HCache{capacity: p.capacity, used: p.used}
	var err error
	if c.main, err = p.main.clone(); err == nil {
		c.values, err = copied(p.values)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Begin sets a new H-list: the values of all samples, 0 for samples that are not on it. It finishes a build that is
// still running. After it, [HCache.Build] sorts the kept samples by the new values.
func (p *HCache) Begin(_ int, values []float64, _ []sample.Index) {
	if p.shadow != nil {
		p.Late++
		p.Build(-1)
	}
	clear(p.values)
	copy(p.values, values)
	shadow, err := newHeap(len(p.values))
	if err != nil { // no memory for a second heap: sort at once
		p.main.rekey(func(i sample.Index) float64 { return p.values[i] })
		return
	}
	p.shadow, p.cursor = shadow, 0
}

// Build copies n samples into the shadow heap, or all if n is negative. It reports whether none is left; then the
// shadow heap is the main heap. Call it outside the path of requests.
func (p *HCache) Build(n int) (done bool) {
	if p.shadow == nil {
		return true
	}
	for ; int(p.cursor) < len(p.values); p.cursor++ {
		i := p.cursor
		if !p.main.has(i) || p.shadow.has(i) {
			continue
		}
		if n == 0 {
			return false
		}
		_, _, bytes := p.main.get(int(p.main.at[i]) - 1)
		if !p.shadow.push(i, p.values[i], bytes) {
			return false
		}
		n--
	}
	p.main.close()
	p.main, p.shadow = p.shadow, nil
	return true
}

// Has reports whether a sample is kept.
func (p *HCache) Has(id sample.Index) bool {
	return p.main.has(id) || p.shadow != nil && p.shadow.has(id)
}

// Get serves a kept sample.
func (p *HCache) Get(id sample.Index, _ May) (sample.Index, Kind) {
	if p.Has(id) {
		return id, Hit
	}
	return id, Miss
}

// top returns the heap with the sample to evict first: the main heap, unless it is empty.
func (p *HCache) top() (h *heap) {
	if p.main.len() > 0 || p.shadow == nil {
		return p.main
	}
	return p.shadow
}

// evicted describes a sample so that its eviction can be undone.
type evicted struct {
	from            *heap
	id              sample.Index
	key, shadowKey  float64
	bytes           int64
	alsoInTheShadow bool
}

func (p *HCache) evict() evicted {
	h := p.top()
	e := evicted{from: h}
	e.id, e.key, e.bytes = h.top()
	h.remove(e.id)
	if p.shadow != nil && h == p.main && p.shadow.has(e.id) {
		_, e.shadowKey, _ = p.shadow.get(int(p.shadow.at[e.id]) - 1)
		e.alsoInTheShadow = true
		p.shadow.remove(e.id)
	}
	p.used -= e.bytes
	return e
}

// restore undoes evict. The heaps still have the room.
func (p *HCache) restore(e evicted) {
	e.from.push(e.id, e.key, e.bytes)
	if e.alsoInTheShadow {
		p.shadow.push(e.id, e.shadowKey, e.bytes)
	}
	p.used += e.bytes
}

// Offer keeps a sample if there is room, or if evicting samples of smaller value makes room. If that does not make
// enough room, none is evicted.
func (p *HCache) Offer(id sample.Index, bytes int64) (bool, []sample.Index) {
	if p.Has(id) {
		return true, nil
	}
	if int(id) >= len(p.values) || !storable(bytes, p.capacity) {
		return false, nil
	}
	v := p.values[id]
	var gone []evicted
	for p.used+bytes > p.capacity {
		h := p.top()
		if h.len() == 0 {
			break
		}
		if _, key, _ := h.top(); key >= v {
			break
		}
		gone = append(gone, p.evict())
	}
	into := p.main
	if p.shadow != nil {
		into = p.shadow
	}
	if p.used+bytes > p.capacity || !into.push(id, v, bytes) {
		for k := len(gone) - 1; k >= 0; k-- {
			p.restore(gone[k])
		}
		return false, nil
	}
	p.used += bytes
	return true, ids(gone)
}

func ids(gone []evicted) (out []sample.Index) {
	for _, e := range gone {
		out = append(out, e.id)
	}
	return out
}

// Resize changes the capacity, and drops the samples of least value.
func (p *HCache) Resize(capacity int64) []sample.Index {
	p.capacity = capacity
	var gone []evicted
	for p.used > p.capacity && p.top().len() > 0 {
		gone = append(gone, p.evict())
	}
	return ids(gone)
}

// Observe does nothing: values change with the next H-list.
func (p *HCache) Observe(sample.Index, float64) {}

// HBytes returns the H-cache's share of the memory. It equals the share of H-samples in the last epoch's accesses (ImPACT §III-C), or nine tenths before
// there were any. The L-cache has the rest, at least one package.
func HBytes(total, highAccesses, lowAccesses, packageBytes int64) int64 {
	for highAccesses > math.MaxInt64/2 || lowAccesses > math.MaxInt64/2 { // otherwise their sum could overflow
		highAccesses, lowAccesses = highAccesses/2, lowAccesses/2
	}
	if highAccesses+lowAccesses <= 0 {
		highAccesses, lowAccesses = 9, 1
	}
	h := numeric.MulDiv(total, highAccesses, highAccesses+lowAccesses)
	return max(0, min(h, total-packageBytes))
}
