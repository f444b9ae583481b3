package simulate

import (
	"fmt"
	"math"
)

// Placement returns the hits of a frequency cache (NoPFS §3): a worker holds the share a of the dataset, those samples
// that it reads most often. localHit is the share of its own reads that this serves; covered is the share of samples that
// any of the workers holds.
func Placement(epochs, workers, share float64) (localHit, covered float64, err error) {
	if err := checkAccess(epochs, workers, mostConvolved); err != nil {
		return 0, 0, err
	}
	if !(share >= 0 && share <= 1) {
		return 0, 0, fmt.Errorf("the cached share is %g, and must lie between 0 and 1", share)
	}
	r := reads{epochs, workers}
	k, theta := r.threshold(share)
	_, mass := r.above(k)
	localHit = min(1, (mass+theta*k*r.pmf(k))/r.mean())
	return localHit, 1 - r.uncovered(k, theta), nil
}

// threshold returns k* and θ. All samples that are read more than k* times are held, and the share θ of the samples that are
// read k* times.
func (r reads) threshold(share float64) (k, theta float64) {
	held := 0.0
	for k = r.epochs; k >= 1; k-- {
		p := r.pmf(k)
		if p > 0 && held+p > share {
			return k, (share - held) / p
		}
		held += p
	}
	return 1, 1 // everything that is ever read
}

// uncovered is E!/N^E · [z^E] ( Σ_{j<k} z^j/j! + (1−θ)·z^k/k! )^N: the probability that no worker holds a sample. Each
// term of the sum is multiplied by μ^j·e^−μ, so that all of them are probabilities and none overflows.
func (r reads) uncovered(k, theta float64) float64 {
	mu, e := r.mean(), int(r.epochs)
	p := make([]float64, min(int(k), e)+1)
	for j := range p {
		fact, _ := math.Lgamma(float64(j) + 1)
		p[j] = math.Exp(float64(j)*math.Log(mu) - mu - fact)
	}
	p[len(p)-1] *= 1 - theta
	q := power(p, int64(r.workers), e+1)
	if len(q) <= e || q[e] == 0 {
		return 0
	}
	fact, _ := math.Lgamma(r.epochs + 1)
	return min(1, q[e]*math.Exp(fact+r.epochs-r.epochs*math.Log(r.epochs)))
}

// power is a polynomial to the n-th power, cut to the first terms.
func power(p []float64, n int64, terms int) []float64 {
	result := []float64{1}
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result = product(result, p, terms)
		}
		if n > 1 {
			p = product(p, p, terms)
		}
	}
	return result
}

func product(a, b []float64, terms int) []float64 {
	c := make([]float64, min(len(a)+len(b)-1, terms))
	for i, x := range a {
		if x == 0 || i >= len(c) {
			continue
		}
		for j, y := range b[:min(len(b), len(c)-i)] {
			c[i+j] += x * y
		}
	}
	return c
}
