package score

import (
	"math"
	"slices"

	"lcache/sample"
)

// Graph is SpiderCache's scorer: a sample's value depends on the numbers of nearby samples in embedding space, of its
// own class and of other classes (SpiderCache Eq. 1–4). The trainer finds the neighbours and sends the numbers,
// without embeddings. Graph also changes the ratio of the two caches with an [Elastic].
type Graph struct {
	values
	k       int
	elastic *Elastic
	onBest  func(node sample.Index, neighbours []sample.Index)
}

// NewGraph returns a scorer for n samples with at most k neighbours each. It calls onBest with the best connected
// sample of each batch, which may become a node, and its neighbours. onBest may be nil, and must not keep the slice.
func NewGraph(n, k int, e *Elastic, onBest func(sample.Index, []sample.Index)) (*Graph, error) {
	v, err := newValues(n)
	if err != nil {
		return nil, err
	}
	return &Graph{values: v, k: k, elastic: e, onBest: onBest}, nil
}

// GraphScore returns the value of a sample with the given numbers of edges: ln(1 + 1/(1+same) + other/k). It is SpiderCache Eq. 4 with 1 + same, because
// an isolated sample would divide by zero.
func GraphScore(same, other, k int) float64 {
	return math.Log(1 + 1/float64(1+same) + float64(other)/float64(k))
}

// Observe takes the counts of one batch. If a sample is in the batch twice, its last counts apply.
func (s *Graph) Observe(o Observation) (r Report) {
	switch {
	case o.Kind != Counts || o.misshapen():
		return Report{Shape: 1}
	case s.stale(o.Epoch):
		return Report{Stale: len(o.Index)}
	}
	s.begin(&o)
	for k, i := range o.Index {
		if int(i) >= len(s.v) {
			r.Unknown++
			continue
		}
		s.set(i, GraphScore(int(o.Same[k]), int(o.Other[k]), s.k))
		r.Observed++
	}
	if o.Node == sample.None || s.onBest == nil {
		return r
	}
	if int(o.Node) >= len(s.v) {
		r.Unknown++
		return r
	}
	near := o.Neighbours
	if slices.ContainsFunc(near, func(i sample.Index) bool { return int(i) >= len(s.v) }) {
		near = slices.DeleteFunc(slices.Clone(near), func(i sample.Index) bool { return int(i) >= len(s.v) })
		r.Unknown += len(o.Neighbours) - len(near)
	}
	s.onBest(o.Node, near)
	return r
}

// EndEpoch ends the epoch, and passes the spread of the values to the elastic ratio.
func (s *Graph) EndEpoch(p Progress) {
	s.end(p)
	if s.elastic != nil {
		s.fill()
		s.elastic.EndEpoch(deviation(s.v), p.Accuracy, p.Epochs)
	}
}

// Ratio returns the importance cache's share of the memory; 1 without an elastic ratio.
func (s *Graph) Ratio() float64 {
	if s.elastic == nil {
		return 1
	}
	return s.elastic.Ratio()
}

// deviation returns the standard deviation of all values.
func deviation(v []float64) float64 {
	mean := 0.0
	for _, x := range v {
		mean += x
	}
	mean /= float64(len(v))
	sum := 0.0
	for _, x := range v {
		sum += float64((x - mean) * (x - mean))
	}
	return math.Sqrt(sum / float64(len(v)))
}
