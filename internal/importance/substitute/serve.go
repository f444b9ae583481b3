package substitute

import (
	"lcache/internal/disk/offheap"
	"lcache/internal/importance/policy"
	"lcache/sample"
)

// A Plan has the served order of an epoch, and the kind of each position. The requested order was drawn; the served
// order is delivered.
type Plan struct {
	Indices []uint32 // the served order; outside Go's heap, like Kinds
	Kinds   Kinds
}

// Close frees the memory.
func (p *Plan) Close() {
	offheap.Free(p.Indices)
	offheap.Free(p.Kinds)
	p.Indices, p.Kinds = nil, nil
}

// Kinds has a [policy.Kind] for each position of an order, sixteen in a word.
type Kinds []uint32

// MakeKinds returns n positions, all of them Miss. The caller frees them with offheap.Free.
func MakeKinds(n int) (Kinds, error) { return offheap.Make[uint32]((n + 15) / 16) }

// At returns the kind at a position.
func (k Kinds) At(place int) policy.Kind { return policy.Kind(k[place/16] >> (place % 16 * 2) & 3) }

// Set sets the kind at a position.
func (k Kinds) Set(place int, kind policy.Kind) {
	shift := place % 16 * 2
	k[place/16] = k[place/16]&^(3<<shift) | uint32(kind)<<shift
}

// Cut says how the ranks of a job split an order: rank r reads the positions r, r+World, …, in batches of Batch.
type Cut struct{ World, Batch int }

// each calls f with the positions of each batch, in the order in which ranks of equal speed read the batches.
func (c Cut) each(n int, f func(places []int)) {
	places := make([]int, 0, c.Batch)
	for from := 0; from < n; from += c.World * c.Batch {
		for rank := range c.World {
			places = places[:0]
			for k := from + rank; k < n && len(places) < c.Batch; k += c.World {
				places = append(places, k)
			}
			f(places)
		}
	}
}

// Serve applies the rules to a whole order before any request comes. The result is that of [Rules.Batch] for each batch
// in turn, with exact reads reported to the Keeper. The same order, Keeper and cut give the same plan. The caller
// closes it.
func (l *Rules) Serve(order []sample.Index, cut Cut) (p Plan, err error) {
	if p.Indices, err = offheap.MakeDense[uint32](len(order)); err == nil {
		p.Kinds, err = MakeKinds(len(order))
	}
	if err != nil {
		p.Close()
		return p, err
	}
	exact, _ := l.keeper.(interface{ Served(id sample.Index) })
	l.Begin()
	asked := make([]sample.Index, 0, cut.Batch)
	cut.each(len(order), func(places []int) {
		asked = asked[:0]
		for _, k := range places {
			asked = append(asked, order[k])
		}
		s := l.Batch(asked, true)
		for i, k := range places {
			p.Indices[k] = s.Index[i]
			p.Kinds.Set(k, s.Kind[i])
			if exact != nil && s.Kind[i] == policy.Miss && !l.high(asked[i]) {
				exact.Served(asked[i])
			}
		}
	})
	return p, nil
}

// Recut repairs a plan that was made for other batches, for example before a restart with another number of ranks. It
// replaces a substitute by the requested sample if the batch requests the substitute, or contains it already. With
// the rule Low it also does so if an earlier position serves the same substitute, or if the position is planned or
// later; those positions pad the ranks' parts to equal lengths. Recut changes served.
func Recut(rule string, requested, served []sample.Index, planned int, cut Cut) {
	exact := map[sample.Index]bool{} // samples served as requested
	cut.each(len(requested), func(places []int) {
		here := make(map[sample.Index]bool, 2*len(places))
		for _, k := range places {
			here[requested[k]] = true
		}
		for _, k := range places {
			if served[k] != requested[k] {
				if here[served[k]] || rule == Low && exact[served[k]] {
					served[k] = requested[k]
					exact[served[k]] = true
				}
				here[served[k]] = true
			} else if k >= planned {
				exact[served[k]] = true
			}
		}
	})
}
