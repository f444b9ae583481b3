package importance

import (
	"cmp"
	"math"
	"slices"

	"lcache/sample"
)

// Bank finds neighbours in embedding space exactly, by looking at all samples seen so far (SpiderCache §IV-A). In training this is the
// trainer's part, in lcache.torch; this one is for simulations, and for telling whether that one is right. A batch costs its
// size × samples × dimension operations.
type Bank struct {
	labels        []int32
	rows          [][]float64 // nil: not seen
	lambda, alpha float64
	far           float64 // a square of distances at which there is no edge, whatever is rounded
	k             int
}

// NewBank returns the empty bank of samples with these labels. Two samples have an edge if exp(−lambda × distance) > alpha (SpiderCache
// Eq. 1–2); of those the nearest k count.
func NewBank(labels []int32, lambda, alpha float64, k int) *Bank {
	reach := -math.Log(alpha) / lambda * (1 + 1e-9)
	return &Bank{labels: labels, rows: make([][]float64, len(labels)), lambda: lambda, alpha: alpha, far: reach * reach, k: k}
}

// Batch takes the embeddings of a batch, and returns what the trainer would send of it: the counts of all of it, and of the sample with most
// edges to its own class (the first of several) the neighbours of that class, nearest first. All rows are in the bank before any is looked at.
func (b *Bank) Batch(index []sample.Index, embeddings [][]float64) Observation {
	for k, i := range index {
		b.rows[i] = embeddings[k]
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

// near returns the neighbours of sample i that are of its class, nearest first and among equal distances by index, and the number of
// neighbours of any class.
func (b *Bank) near(i sample.Index) (own []sample.Index, all int) {
	type edge struct {
		d float64
		i sample.Index
	}
	var edges []edge
	for j, row := range b.rows {
		if row == nil || j == int(i) {
			continue
		}
		sum := 0.0
		for x := range row {
			d := row[x] - b.rows[i][x]
			sum += float64(d * d)
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
