package importance

import (
	"math"
	"math/rand/v2"
)

// lossesOf makes losses up as package hitratio does: a sample's loss is log-normal, falls with training, and wanders; that of a fifth of the samples wanders far.
type lossesOf struct {
	r           *rand.Rand
	base, a, sd []float64
}

func newLosses(n int, seed uint64) *lossesOf {
	g := &lossesOf{r: rand.New(rand.NewPCG(seed, 7)), base: make([]float64, n), a: make([]float64, n), sd: make([]float64, n)}
	for i := range n {
		g.base[i], g.sd[i] = math.Exp(0.8*g.r.NormFloat64()), 0.15
		if g.r.Float64() < 0.2 {
			g.sd[i] = 1.2
		}
	}
	return g
}

// epoch are the losses of all samples in the next epoch.
func (g *lossesOf) epoch(e int) []float32 {
	out := make([]float32, len(g.base))
	for i := range out {
		g.a[i] = 0.3*g.a[i] + g.sd[i]*g.r.NormFloat64()
		out[i] = float32(g.base[i] * (0.3 + 0.7*math.Exp(-float64(e)/10)) * math.Exp(g.a[i]))
	}
	return out
}
