package hitratio

import (
	"math"
	"math/rand/v2"
	"slices"

	"lcache/sample"
)

// clusters are embeddings of samples that are not there: ten classes of eight clusters each, which get narrower in training. Hard samples, a tenth of all, lie half-way to another
// class.
type clusters struct {
	r      *rand.Rand
	labels []int32
	centre [][]float64
	hard   []bool
}

const (
	clusterClasses = 10
	clustersEach   = 8
	clusterWidth   = 16
	clusterNoise   = 0.35
	clusterRadius  = 2.0 // within which samples are neighbours
)

func newClusters(n int, seed uint64) *clusters {
	g := &clusters{r: rand.New(rand.NewPCG(seed, 9)), labels: make([]int32, n), centre: make([][]float64, n), hard: make([]bool, n)}
	var class, part [][]float64
	for range clusterClasses {
		class = append(class, g.point(nil, 3))
	}
	for k := range clusterClasses * clustersEach {
		part = append(part, g.point(class[k/clustersEach], 1))
	}
	for i := range n {
		c := i % clusterClasses
		g.labels[i] = int32(c)
		g.centre[i] = slices.Clone(part[c*clustersEach+g.r.IntN(clustersEach)])
		if g.hard[i] = g.r.IntN(10) == 0; g.hard[i] {
			other := class[(c+1+g.r.IntN(clusterClasses-1))%clusterClasses]
			for d := range g.centre[i] {
				g.centre[i][d] = (g.centre[i][d] + other[d]) / 2
			}
		}
	}
	return g
}

// point is a random point around another one, or around 0.
func (g *clusters) point(around []float64, spread float64) []float64 {
	x := make([]float64, clusterWidth)
	copy(x, around)
	for d := range x {
		x[d] += spread * g.r.NormFloat64()
	}
	return x
}

// embeddings returns the embeddings of a batch's samples in an epoch.
func (g *clusters) embeddings(batch []sample.Index, epoch int) (rows [][]float64) {
	spread := clusterNoise * (0.4 + 0.8*math.Exp(-float64(epoch)/4))
	for _, i := range batch {
		rows = append(rows, g.point(g.centre[i], spread))
	}
	return rows
}
