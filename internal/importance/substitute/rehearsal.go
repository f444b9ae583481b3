package substitute

import (
	"lcache/internal/importance/policy"
	"lcache/sample"
)

// Rehearsal is the [Keeper] that plans substitutes of the same class for a whole epoch before any request comes. It
// copies memory at the boundary and simulates the epoch on the copy. So the rules know which samples will be in memory
// when they are requested. The nodes are those at the boundary.
type Rehearsal struct {
	pair policy.Policy
	size func(sample.Index) int64
}

// NewRehearsal copies the caches in their current state.
func NewRehearsal(p *policy.Homophily, size func(sample.Index) int64) (*Rehearsal, error) {
	pair, err := p.Clone()
	return &Rehearsal{pair: pair, size: size}, err
}

// Close frees the memory.
func (r *Rehearsal) Close() {
	if r.pair != nil {
		r.pair.Close()
	}
}

// Begin starts an epoch with a drawn order.
func (r *Rehearsal) Begin(epoch int, values, targets []float64, order []sample.Index) {
	policy.Begin(r.pair, epoch, values, targets, order)
}

// Ahead prefetches the copy's entries for samples.
func (r *Rehearsal) Ahead(asked []sample.Index) {
	if f, ok := r.pair.(policy.Foreseer); ok {
		f.Ahead(asked)
	}
}

// Get serves a sample as memory will, and keeps it if memory will keep it.
func (r *Rehearsal) Get(id sample.Index, may policy.May) (sample.Index, policy.Kind) {
	served, kind := r.pair.Get(id, may)
	if kind == policy.Miss {
		r.pair.Offer(id, r.size(id))
	}
	return served, kind
}

// Play simulates an epoch whose served order is known, such as an epoch between the boundary and the planned one.
func (r *Rehearsal) Play(epoch int, values, targets []float64, served []sample.Index) {
	r.Begin(epoch, values, targets, served)
	for _, id := range served {
		r.Get(id, nil)
	}
}
