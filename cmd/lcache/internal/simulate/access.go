package simulate

import (
	"fmt"
	"math"
)

// mostEpochs and mostConvolved bound the computations of the access model. Its sums have a term for each epoch, and its powers
// of polynomials take time with the square of the epochs.
const (
	mostEpochs    = 10_000_000
	mostConvolved = 4_000
)

// largest is the largest number that makes sense anywhere: beyond it sums lose their meaning.
const largest = 1e24

func checkAccess(epochs, workers, most float64) error {
	switch {
	case !(epochs >= 1 && epochs <= most) || epochs != math.Floor(epochs):
		return fmt.Errorf("epochs is %g, and must be a whole number between 1 and %g", epochs, most)
	case !(workers >= 1 && workers <= 1e12) || workers != math.Floor(workers):
		return fmt.Errorf("workers is %g, and must be a whole number between 1 and 1e+12", workers)
	}
	return nil
}

// reads is the distribution of how often a given worker reads a given sample: Binomial(E, 1/N) (NoPFS §3.1).
type reads struct{ epochs, workers float64 }

func (r reads) mean() float64 { return r.epochs / r.workers }

func (r reads) pmf(k float64) float64 {
	if r.workers == 1 {
		if k == r.epochs {
			return 1
		}
		return 0
	}
	return math.Exp(logChoose(r.epochs, k) - k*math.Log(r.workers) + (r.epochs-k)*math.Log1p(-1/r.workers))
}

func logChoose(n, k float64) float64 {
	a, _ := math.Lgamma(n + 1)
	b, _ := math.Lgamma(k + 1)
	c, _ := math.Lgamma(n - k + 1)
	return a - b - c
}

// above returns P(X > k) and Σ j·pmf(j) over j > k.
func (r reads) above(k float64) (probability, mass float64) {
	for j := r.epochs; j > k; j-- {
		p := r.pmf(j)
		probability += p
		mass += j * p
	}
	return probability, mass
}

// Frequency returns how many of F samples a given worker of N reads more than k times in E epochs: the mean and the
// standard deviation (NoPFS §3.1). The deviation is smaller than that of independent samples, because a worker reads
// exactly F/N samples an epoch.
func Frequency(samples, epochs, workers, k float64) (expected, stddev float64, err error) {
	if err := checkAccess(epochs, workers, mostEpochs); err != nil {
		return 0, 0, err
	}
	if !(samples >= 1 && samples <= largest) || math.IsNaN(k) || k < 0 {
		return 0, 0, fmt.Errorf("%g samples read more than %g times: both must be numbers, and at least 1 and 0", samples, k)
	}
	r := reads{epochs, workers}
	q, mass := r.above(math.Floor(k))
	variance := q * (1 - q)
	if of := r.mean() * (1 - 1/workers); of > 0 {
		cov := mass - q*r.mean()
		variance -= cov * cov / of
	}
	return samples * q, math.Sqrt(samples * max(0, variance)), nil
}

// Extremes are what NoPFS's Lemma 1 says of samples that one worker reads more or less often than the mean by a share δ.
type Extremes struct {
	Many         float64 `json:"many"`           // ⌈(1+δ)·E/N⌉ reads by one worker …
	OtherAtMost  float64 `json:"other_at_most"`  // … leave some other worker with at most this many
	SharpAtMost  float64 `json:"sharp_at_most"`  // the least bound that holds
	Few          float64 `json:"few"`            // ⌊(1−δ)·E/N⌋ reads by one worker …
	OtherAtLeast float64 `json:"other_at_least"` // … leave some other worker with at least this many
	SharpAtLeast float64 `json:"sharp_at_least"`
}

// Lemma1 returns the bounds for E epochs, N ≥ 2 workers and 0 ≤ δ ≤ N−1; for fewer reads than the mean, δ is at most 1.
func Lemma1(epochs, workers, delta float64) (Extremes, error) {
	if err := checkAccess(epochs, workers, 1e15); err != nil {
		return Extremes{}, err
	}
	if workers < 2 || !(delta >= 0 && delta <= workers-1) {
		return Extremes{}, fmt.Errorf("lemma 1 needs two workers or more and a delta from 0 to workers-1, not %g and %g", workers, delta)
	}
	mean, rest, less := epochs/workers, workers-1, min(delta, 1)
	x := Extremes{
		Many: ceil((1 + delta) * mean), OtherAtMost: ceil((rest - delta) / rest * mean),
		Few: floor((1 - less) * mean), OtherAtLeast: floor((rest + less) / rest * mean),
	}
	x.Many = min(x.Many, epochs)
	x.SharpAtMost = math.Floor((epochs - x.Many) / rest)
	x.SharpAtLeast = math.Ceil((epochs - x.Few) / rest)
	return x, nil
}

// ceil and floor forgive the rounding of a product that should be whole.
func ceil(x float64) float64  { return math.Ceil(x - 1e-9*max(1, math.Abs(x))) }
func floor(x float64) float64 { return math.Floor(x + 1e-9*max(1, math.Abs(x))) }
