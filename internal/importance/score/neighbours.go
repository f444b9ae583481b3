package score

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
	rows          [][]float64      // nil: not seen
	heads         [][heads]float64 // how each row begins; infinity: not seen
	lambda, alpha float64
	far           float64 // a square of distances at which there is no edge, whatever is rounded
	k             int
}

// heads is how many numbers of each row lie side by side: most samples are so far away that these show it.
const heads = 4

// NewBank returns the empty bank of samples with these labels. Two samples have an edge if exp(−lambda × distance) > alpha (SpiderCache
// Eq. 1–2); of those the nearest k count.
func NewBank(labels []int32, lambda, alpha float64, k int) *Bank {
	reach := -math.Log(alpha) / lambda * (1 + 1e-9)
	b := &Bank{labels: labels, rows: make([][]float64, len(labels)), heads: make([][heads]float64, len(labels)), lambda: lambda, alpha: alpha, far: reach * reach, k: k}
	for i := range b.heads {
		b.heads[i][0] = math.Inf(1)
	}
	return b
}

// Batch takes the embeddings of a batch, and returns what the trainer would send of it: the counts of all of it, and of the sample with most
// edges to its own class (the first of several) the neighbours of that class, nearest first. All rows are in the bank before any is looked at.
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

// near returns the neighbours of sample i that are of its class, nearest first and among equal distances by index, and the number of
// neighbours of any class.
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
