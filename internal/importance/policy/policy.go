package policy

import "lcache/sample"

// Policy decides which samples stay in memory. It holds no bytes: its owner keeps the samples that Offer accepts, and
// drops the samples that Offer returns.
type Policy interface {
	// Begin begins an epoch. order is the order of requests; nil: unknown. values are the importance of all samples; [NextUse] takes targets instead. The
	// policy keeps neither slice.
	Begin(epoch int, values []float64, order []sample.Index)
	// Get returns the sample that serves a request for id: itself, a substitute, or none. It returns a substitute only if may allows it; nil allows none.
	Get(id sample.Index, may May) (served sample.Index, k Kind)
	// Offer decides after a miss whether to keep a sample of the given size. It returns the samples to drop for it.
	Offer(id sample.Index, bytes int64) (keep bool, drop []sample.Index)
	// Observe sets a sample's value.
	Observe(id sample.Index, value float64)
	// Resize changes the capacity and returns the samples to drop.
	Resize(capacity int64) (drop []sample.Index)
	// Has reports whether a sample is kept.
	Has(id sample.Index) bool
	// Clone returns an independent copy, in the state between two epochs, without the epoch's order.
	Clone() (Policy, error)
	// Close frees the policy's own memory.
	Close()
}

// Begin begins an epoch of a policy with its input: targets for [NextUse], values for all others. The policy keeps neither.
func Begin(p Policy, epoch int, values, targets []float64, order []sample.Index) {
	switch p := p.(type) {
	case *Homophily:
		p.Nodes().Begin()
		Begin(p.Policy(), epoch, values, targets, order)
	case *NextUse:
		p.Begin(epoch, targets, order)
	case *HCache:
		p.Begin(epoch, values, order)
		p.Build(-1)
	default:
		p.Begin(epoch, values, order)
	}
}

// May reports whether a substitute is allowed. The caller has the rules, because it knows the batch and the served
// samples. May is called for one candidate at a time, and the first allowed one is served.
type May func(substitute sample.Index) bool

// Always allows every substitute.
func Always(sample.Index) bool { return true }

// Kind is how a request is served.
type Kind uint8

// Kinds. A substitute is neither a hit nor a miss.
const (
	Miss Kind = iota
	Hit
	Substitute
)

func (k Kind) String() string { return [...]string{"miss", "hit", "substitute"}[k] }

// store has the sizes of a policy's samples, in a heap in the order of eviction.
type store struct {
	*heap
	capacity, used int64
}

func newStore(samples int, capacity int64) (store, error) {
	h, err := newHeap(samples)
	return store{heap: h, capacity: capacity}, err
}

// Close frees the memory.
func (s *store) Close() { s.close() }

// clone returns an independent copy.
func (s *store) clone() (store, error) {
	h, err := s.heap.clone()
	return store{heap: h, capacity: s.capacity, used: s.used}, err
}

// Has reports whether a sample is kept.
func (s *store) Has(id sample.Index) bool { return s.has(id) }

// Get serves a kept sample.
func (s *store) Get(id sample.Index, _ May) (sample.Index, Kind) {
	if s.has(id) {
		return id, Hit
	}
	return id, Miss
}

// offer keeps a sample with a key if there is room, or if evicting samples for which worse returns true makes room.
func (s *store) offer(id sample.Index, bytes int64, key float64, worse func(top sample.Index, key float64) bool) (bool, []sample.Index) {
	if s.has(id) {
		return true, nil
	}
	if !s.fits(id, bytes) {
		return false, nil
	}
	drop, ok := s.room(bytes, worse)
	return ok && s.insert(id, key, bytes), drop
}

// fits reports whether a sample could be kept: its index is in the dataset, and its size is at most the capacity.
func (s *store) fits(id sample.Index, bytes int64) bool {
	return int(id) < len(s.at) && storable(bytes, s.capacity)
}

func (s *store) insert(id sample.Index, key float64, bytes int64) bool {
	if !s.push(id, key, bytes) {
		return false
	}
	s.used += bytes
	return true
}

func (s *store) evict(id sample.Index) { s.used -= s.remove(id) }

// room evicts samples from the top until bytes fit. worse must allow each eviction. If that does not make enough
// room, room evicts none.
func (s *store) room(bytes int64, worse func(top sample.Index, key float64) bool) (drop []sample.Index, ok bool) {
	type gone struct {
		key   float64
		bytes int64
	}
	var kept []gone
	for s.used+bytes > s.capacity {
		if s.n == 0 {
			break
		}
		top, key, size := s.top()
		if !worse(top, key) {
			break
		}
		s.evict(top)
		drop, kept = append(drop, top), append(kept, gone{key, size})
	}
	if s.used+bytes <= s.capacity {
		return drop, true
	}
	for k, id := range drop {
		s.insert(id, kept[k].key, kept[k].bytes)
	}
	return nil, false
}

// Resize changes the capacity, and evicts from the top.
func (s *store) Resize(capacity int64) (drop []sample.Index) {
	s.capacity = capacity
	for s.used > s.capacity && s.n > 0 {
		top, _, _ := s.top()
		s.evict(top)
		drop = append(drop, top)
	}
	return drop
}
