package policy

import "lcache/sample"

// Policy says which samples stay in memory. It holds no bytes: whoever does keeps what Offer takes, and drops what it names.
type Policy interface {
	// Begin begins an epoch. order is what will be asked for, nil if it is not known. values are the importance of all samples; [NextUse] takes the
	// targets in their place. Neither is kept.
	Begin(epoch int, values []float64, order []sample.Index)
	// Get says which sample serves a request for id: itself, a substitute, or none. A substitute is taken only if may allows it; nil allows none.
	Get(id sample.Index, may May) (served sample.Index, k Kind)
	// Offer asks, after a miss, whether a sample of so many bytes is to be kept, and which ones are to be dropped for it.
	Offer(id sample.Index, bytes int64) (keep bool, drop []sample.Index)
	// Observe tells of a new value.
	Observe(id sample.Index, value float64)
	// Resize changes the memory and names what is to be dropped.
	Resize(capacity int64) (drop []sample.Index)
	// Has reports whether a sample is kept.
	Has(id sample.Index) bool
	// Clone returns a copy that is used apart, as it is between two epochs: of an epoch's order it knows nothing.
	Clone() (Policy, error)
	// Close gives the policy's own memory back.
	Close()
}

// Begin begins an epoch of a policy with what it decides by: targets for [NextUse], values for all others. Neither is kept.
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

// May allows a substitute or not: the law of substitution is with whoever knows the batch and what was served. It is asked about one
// candidate at a time, and the first one that it allows is served.
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

// store is the memory that a policy's samples take, with a heap that says what goes first.
type store struct {
	*heap
	capacity, used int64
}

func newStore(samples int, capacity int64) (store, error) {
	h, err := newHeap(samples)
	return store{heap: h, capacity: capacity}, err
}

// Close gives the memory back.
func (s *store) Close() { s.close() }

// clone is a copy that is used apart.
func (s *store) clone() (store, error) {
	h, err := s.heap.clone()
	return store{heap: h, capacity: s.capacity, used: s.used}, err
}

// Has reports whether a sample is kept.
func (s *store) Has(id sample.Index) bool { return s.has(id) }

// Get serves a sample that is kept.
func (s *store) Get(id sample.Index, _ May) (sample.Index, Kind) {
	if s.has(id) {
		return id, Hit
	}
	return id, Miss
}

// offer keeps a sample with a key if there is room, or if samples make room that worse says may go for it.
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

// fits reports whether a sample can ever be kept: it is one of the dataset, and not larger than the memory.
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

// room evicts from the top until bytes more fit, as long as worse says that the top may go for the new sample. If that is not enough nothing
// is evicted.
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

// Resize changes the memory; what goes first is dropped.
func (s *store) Resize(capacity int64) (drop []sample.Index) {
	s.capacity = capacity
	for s.used > s.capacity && s.n > 0 {
		top, _, _ := s.top()
		s.evict(top)
		drop = append(drop, top)
	}
	return drop
}
