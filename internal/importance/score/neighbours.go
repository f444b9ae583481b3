package score

import (
	"cmp"
	"math"
	"slices"

	"lcache/sample"
)

// Bank finds exact neighbours in embedding space by comparing with all samples seen so far (SpiderCache §IV-A). It is
// for simulations and for tests of lcache.torch, which does this in a training. A batch costs (batch size × samples ×
// dimension) operations.
type Bank struct {
	labels        []int32
	rows          [][]float64      // nil: not seen yet
	heads         [][heads]float64 // the first numbers of each row; infinity: row not seen yet
	lambda, alpha float64
	far           float64 // rows at a larger squared distance have no edge, whatever the rounding error
	k             int
}

// heads is the number of values that are stored together from the start of each row. For most samples they already
// show that the sample is too far away.
const heads = 4

// NewBank returns an empty bank for samples with these labels. Two samples have an edge if exp(−lambda × distance) >
// alpha (SpiderCache Eq. 1–2). Only the nearest k edges count.
func NewBank(labels []int32, lambda, alpha float64, k int) *Bank {
	reach := -math.Log(alpha) / lambda * (1 + 1e-9)
	b := &Bank{labels: labels, rows: make([][]float64, len(labels)), heads: make([][heads]float64, len(labels)), lambda: lambda, alpha: alpha, far: reach * reach, k: k}
	for i := range b.heads {
		b.heads[i][0] = math.Inf(1)
	}
	return b
}

// Batch takes the embeddings of a batch, and returns the observation that a trainer would send: the counts of all
// samples, and a node with its neighbours. The node is the sample with most edges to its own class, the first one if
// several have as many. Its neighbours are of that class, nearest first. Batch adds all rows to the bank before it
// compares them.
func (b *Bank) Batch(index []sample.Index, embeddings [][]float64) Observation {
	for k, i := range index {
		b.rows[i], b.heads[i] = embeddings[k], [heads]float64{}
		copy(b.heads[i][:], embeddings[k])
	}
	o := Observation{Kind: Counts, Index: index, Node: sample.None, Same: make([]uint16, len(index)), Other: make([]uint16, len(index))}
	for k, i := range index {
		near, all := b.near(i)
		o.Same[k], o.Other[k] = uint16(len(near)), uint16(all-len(near))
		if len(near) > len(o.Neighbours) {
			o.Node, o.Neighbours = i, near
		}
	}
	return o
}

// near returns the neighbours of sample i in its class, and the number of its neighbours in any class. The neighbours
// are in order of distance, then of index.
func (b *Bank) near(i sample.Index) (own []sample.Index, all int) {
	type edge struct {
		d float64
		i sample.Index
	}
	var edges []edge
	mine := b.heads[i]
	rest := b.rows[i][min(heads, len(b.rows[i])):]
	for j := range b.heads {
		h := &b.heads[j]
		d0, d1, d2, d3 := h[0]-mine[0], h[1]-mine[1], h[2]-mine[2], h[3]-mine[3]
		sum := float64(d0*d0) + float64(d1*d1) + float64(d2*d2) + float64(d3*d3)
		if sum > b.far || j == int(i) || b.rows[j] == nil {
			continue
		}
		for x, mine := range rest {
			d := b.rows[j][heads+x] - mine
			if sum += float64(d * d); sum > b.far {
				break
			}
		}
		if sum > b.far {
			continue
		}
		if d := math.Sqrt(sum); math.Exp(-b.lambda*d) > b.alpha {
			edges = append(edges, edge{d, sample.Index(j)})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.d, b.d), cmp.Compare(a.i, b.i)) })
	edges = edges[:min(len(edges), b.k)]
	for _, e := range edges {
		if b.labels[e.i] == b.labels[i] {
			own = append(own, e.i)
		}
	}
	return own, len(edges)
}
