package policy

import (
	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// APP is SHADE's cache (SHADE §4.2.2, Algorithm 1). It evicts the lowest score first; of equal scores, the sample
// with the fewest uses. A ghost remembers the last score of every sample, so that an evicted sample can return. APP
// needs 10 bytes per sample in addition to its heap.
type APP struct {
	store
	score  []float64 // the ghosts' scores
	strict bool
}

// NewAPP returns a cache for n samples with a capacity in bytes. In the paper a sample may enter if its score equals the lowest one in the cache; strict
// requires a greater score.
func NewAPP(n int, capacity int64, strict bool) (*APP, error) {
	s, err := newStore(n, capacity)
	if err != nil {
		return nil, err
	}
	p := &APP{store: s, strict: strict}
	if p.score, err = offheap.MakeDense[float64](n); err == nil {
		p.uses, err = offheap.MakeDense[uint16](n)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close frees the memory.
func (p *APP) Close() {
	offheap.Free(p.score)
	offheap.Free(p.uses)
	p.score = nil
	p.store.Close()
}

// Clone returns an independent copy.
func (p *APP) Clone() (Policy, error) {
	s, err := p.store.clone()
	if err != nil {
		return nil, err
	}
	c := &APP{store: s, strict: p.strict}
	if c.score, err = copied(p.score); err == nil {
		c.uses, err = copied(p.uses)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Begin does nothing: scores come through Observe.
func (p *APP) Begin(int, []float64, []sample.Index) {}

// Observe records a score, even of a sample that is not kept, and counts a use.
func (p *APP) Observe(id sample.Index, value float64) {
	if int(id) >= len(p.score) {
		return
	}
	p.score[id] = value
	if p.uses[id] < 1<<16-1 {
		p.uses[id]++
	}
	if p.has(id) {
		p.update(id, value)
	}
}

// Offer keeps a sample if there is room, or if its ghost score is not less than the scores of the samples to evict.
func (p *APP) Offer(id sample.Index, bytes int64) (bool, []sample.Index) {
	if int(id) >= len(p.score) {
		return false, nil
	}
	score, known := p.score[id], p.uses[id] > 0
	return p.offer(id, bytes, score, func(_ sample.Index, key float64) bool {
		return known && (key < score || !p.strict && key == score)
	})
}

// Prefetch replaces the contents by the beginning of a list, as far as it fits. It returns the samples to load and
// the samples to drop. It skips samples of the list that are too large. Only simulations use it: a server would read
// many times more than Prefetch saves (docs/importance.md).
func (p *APP) Prefetch(list []sample.Index, size func(sample.Index) int64) (enter, drop []sample.Index) {
	wanted := map[sample.Index]bool{}
	room := p.capacity
	for _, id := range list {
		bytes := size(id)
		if wanted[id] || !p.fits(id, bytes) {
			continue
		}
		if room -= bytes; room < 0 {
			break
		}
		wanted[id] = true
	}
	for k := range p.len() {
		if id, _, _ := p.get(k); !wanted[id] {
			drop = append(drop, id)
		}
	}
	for _, id := range drop {
		p.evict(id)
	}
	for _, id := range list {
		if wanted[id] && !p.has(id) && p.insert(id, p.score[id], size(id)) {
			enter = append(enter, id)
		}
	}
	return enter, drop
}
