package importance

import "lcache/sample"

// BeginPolicy begins an epoch of a policy with what it decides by: targets for [NextUse], values for all others. Neither is kept.
func BeginPolicy(p Policy, epoch int, values, targets []float64, order []sample.Index) {
	switch p := p.(type) {
	case *Homophily:
		p.nodes.Begin()
		BeginPolicy(p.policy, epoch, values, targets, order)
	case *NextUse:
		p.Begin(epoch, targets, order)
	case *HCache:
		p.Begin(epoch, values, order)
		p.Build(-1)
	default:
		p.Begin(epoch, values, order)
	}
}

// Rehearsal is the [Keeper] by which substitutes of the same class are planned for a whole epoch: a copy of memory, as it is at the boundary, goes through the epoch
// before anybody asks. So the law knows which samples will lie in memory when they are asked for. Nodes are those of the boundary.
type Rehearsal struct {
	pair Policy
	size func(sample.Index) int64
}

// NewRehearsal copies the caches as they are.
func NewRehearsal(p *Homophily, size func(sample.Index) int64) (*Rehearsal, error) {
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
	BeginPolicy(r.pair, epoch, values, targets, order)
}

// ahead fetches what the copy knows of samples.
func (r *Rehearsal) ahead(asked []sample.Index) {
	if f, ok := r.pair.(foreseer); ok {
		f.ahead(asked)
	}
}

// Get serves a sample as memory will, and keeps what memory will keep of it.
func (r *Rehearsal) Get(id sample.Index, may May) (sample.Index, Kind) {
	served, kind := r.pair.Get(id, may)
	if kind == Miss {
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
