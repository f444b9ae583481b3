package hitratio

import (
	"math"
	"math/rand/v2"
	"slices"

	"lcache/sample"
)

// wandering are losses of samples that are not there; see AR1.
type wandering struct {
	r           *rand.Rand
	base, a, sd []float64
}

func newWandering(n int, seed uint64) *wandering {
	g := &wandering{r: rand.New(rand.NewPCG(seed, 7)), base: make([]float64, n), a: make([]float64, n), sd: make([]float64, n)}
	for i := range n {
		g.base[i], g.sd[i] = math.Exp(0.8*g.r.NormFloat64()), 0.15
		if g.r.Float64() < 0.2 {
			g.sd[i] = 1.2
		}
	}
	return g
}

// epoch are the losses of all samples in the next epoch.
func (g *wandering) epoch(e int) []float32 {
	out := make([]float32, len(g.base))
	for i := range out {
		g.a[i] = 0.3*g.a[i] + g.sd[i]*g.r.NormFloat64()
		out[i] = float32(g.base[i] * (0.3 + 0.7*math.Exp(-float64(e)/10)) * math.Exp(g.a[i]))
	}
	return out
}

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

// embeddings are those of a batch in an epoch.
func (g *clusters) embeddings(batch []sample.Index, epoch int) (rows [][]float64) {
	spread := clusterNoise * (0.4 + 0.8*math.Exp(-float64(epoch)/4))
	for _, i := range batch {
		rows = append(rows, g.point(g.centre[i], spread))
	}
	return rows
}
