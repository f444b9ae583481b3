package substitute

import (
	"lcache/internal/importance/policy"
	"lcache/sample"
)

// Rehearsal is the [Keeper] by which substitutes of the same class are planned for a whole epoch: a copy of memory, as it is at the boundary, goes through the epoch
// before anybody asks. So the law knows which samples will lie in memory when they are asked for. Nodes are those of the boundary.
type Rehearsal struct {
	pair policy.Policy
	size func(sample.Index) int64
}

// NewRehearsal copies the caches as they are.
func NewRehearsal(p *policy.Homophily, size func(sample.Index) int64) (*Rehearsal, error) {
	pair, err := p.Clone()
	return &Rehearsal{pair: pair, size: size}, err
}

// Close gives the memory back.
func (r *Rehearsal) Close() {
	if r.pair != nil {
		r.pair.Close()
	}
}

// Begin begins an epoch, of which the order is drawn.
func (r *Rehearsal) Begin(epoch int, values, targets []float64, order []sample.Index) {
	policy.Begin(r.pair, epoch, values, targets, order)
}

// Ahead fetches what the copy knows of samples.
func (r *Rehearsal) Ahead(asked []sample.Index) {
	if f, ok := r.pair.(policy.Foreseer); ok {
		f.Ahead(asked)
	}
}

// Get serves a sample as memory will, and keeps what memory will keep of it.
func (r *Rehearsal) Get(id sample.Index, may policy.May) (sample.Index, policy.Kind) {
	served, kind := r.pair.Get(id, may)
	if kind == policy.Miss {
		r.pair.Offer(id, r.size(id))
	}
	return served, kind
}

// Play goes through an epoch whose served order is known, as one that lies between the boundary and the planned epoch.
func (r *Rehearsal) Play(epoch int, values, targets []float64, served []sample.Index) {
	r.Begin(epoch, values, targets, served)
	for _, id := range served {
		r.Get(id, nil)
	}
}
