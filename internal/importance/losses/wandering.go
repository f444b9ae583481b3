// Package losses generates losses of a simulated training, for simulations and tests. The loss of a sample is
// log-normal, falls during training, and varies as an autoregressive process of order 1. The losses of a fifth of the
// samples vary strongly. The same seed gives the same losses.
package losses

import (
	"math"
	"math/rand/v2"
)

// Losses generates the losses of some samples, epoch by epoch.
type Losses struct {
	r              *rand.Rand
	base, at, step []float64
}

// farStep is the step of a strongly varying loss in an epoch, in powers of e; nearStep is the step of the others.
const (
	nearStep = 0.15
	farStep  = 1.2
)

// New returns a generator for n samples.
func New(n int, seed uint64) *Losses {
	l := &Losses{r: rand.New(rand.NewPCG(seed, 7)), base: make([]float64, n), at: make([]float64, n), step: make([]float64, n)}
	for i := range n {
		l.base[i], l.step[i] = math.Exp(0.8*l.r.NormFloat64()), nearStep
		if l.r.Float64() < 0.2 {
			l.step[i] = farStep
		}
	}
	return l
}

// Epoch returns the losses of all samples in the next epoch, which must be number e.
func (l *Losses) Epoch(e int) []float32 {
	out := make([]float32, len(l.base))
	for i := range out {
		l.at[i] = 0.3*l.at[i] + l.step[i]*l.r.NormFloat64()
		out[i] = float32(l.base[i] * (0.3 + 0.7*math.Exp(-float64(e)/10)) * math.Exp(l.at[i]))
	}
	return out
}

// Far reports whether the loss of sample i varies strongly.
func (l *Losses) Far(i int) bool { return l.step[i] == farStep }
