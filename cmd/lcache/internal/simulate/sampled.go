package simulate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
)

// mostSampled bounds the mini-batches that are drawn.
const mostSampled = 1e9

// sampled draws each mini-batch from the shares of the access model: the number of samples by place, and the bytes of
// that number of samples. Epochs in the middle are alike, so one of them represents all.
type sampled struct {
	s             *Simulation
	first, steady shares
	pick          [Classes][Classes]place
	sizes         moments
}

// moments are mean and deviation of a sample's size, in MB.
type moments struct{ mean, sigma float64 }

func (s *Simulation) sampled(ctx context.Context) (Outcome, error) {
	steps, n, epochs := s.steps(), s.Machine.Workers, int(s.Workload.Epochs)
	if draws := float64(steps) * float64(n) * float64(min(epochs, 4)); draws > mostSampled {
		return Outcome{}, fmt.Errorf("%g mini-batches are more than can be drawn: use the method analytic, or scale down", draws)
	}
	r := s.Machine.rates()
	d := &sampled{s: s, sizes: s.moments(), pick: newHolding(r, s.Policy).pick}
	var err error
	if d.first, d.steady, err = s.sharesOf(r); err != nil {
		return Outcome{}, err
	}
	init := s.init(r)
	c := s.start(init)
	ends := make([]float64, 0, epochs)
	work := room(steps, n, mostAtOnce)
	for epoch := 0; epoch < epochs; epoch++ {
		if err := ctx.Err(); err != nil {
			return Outcome{}, err
		}
		before := *c
		s.beginEpoch(c, epoch)
		runEpoch(c, steps, n, work, byStep(n, d.dealer(epoch)))
		if skip := epochs - 4; epoch == 2 && skip > 0 {
			c.repeat(before, skip)
			epoch += skip
		}
		ends = append(ends, c.end)
		s.Progress(float64(epoch+1) / float64(epochs))
	}
	o := s.outcome(c, Sampled, init, s.seen(), ends)
	if epochs > 1 {
		o.SteadyEpochS = (c.end - ends[0]) / float64(epochs-1)
	}
	return o, nil
}

// repeat runs the epoch since before again a number of times, as it was.
func (c *clock) repeat(before clock, times int) {
	k := float64(times)
	shift := k * (c.end - before.end)
	c.end += shift
	c.stall += k * (c.stall - before.stall)
	c.bound += k * (c.bound - before.bound)
	for p := range c.mb {
		c.mb[p] += k * (c.mb[p] - before.mb[p])
		c.fetch[p] += k * (c.fetch[p] - before.fetch[p])
	}
	for i := range c.ends {
		c.ends[i] += shift
	}
	for i := range c.loaded {
		c.loaded[i] += shift
	}
}

// dealer draws the mini-batches of an epoch.
func (d *sampled) dealer(epoch int) func(h int, work []batch) {
	p := d.steady
	if epoch == 0 {
		p = d.first
	}
	b := int(min(d.s.Workload.Batch, math.MaxInt32))
	return func(h int, work []batch) {
		r := rand.New(rand.NewPCG(d.s.Seed^uint64(epoch)<<32, uint64(h)))
		if d.s.Policy == LocalityAware {
			d.drawLocality(r, b, work)
			return
		}
		for i := range work {
			work[i] = d.bytes(r, draw(r, b, p))
		}
	}
}

// draw deals n samples to places: multinomial, as one binomial a place.
func draw(r *rand.Rand, n int, p shares) (counts [places]int) {
	left, rest := n, 1.0
	for at, q := range p {
		if q <= 0 || left == 0 {
			continue
		}
		counts[at] = left
		if q < rest*(1-1e-12) {
			counts[at] = binomial(r, left, q/rest)
		}
		left -= counts[at]
		rest -= q
	}
	return counts
}

// binomial draws how many of n succeed with probability p.
func binomial(r *rand.Rand, n int, p float64) int {
	if p > 0.5 {
		return n - binomial(r, n, 1-p)
	}
	if p <= 0 {
		return 0
	}
	if mean := float64(n) * p; mean > 30 {
		return int(min(max(math.Round(mean+math.Sqrt(mean*(1-p))*r.NormFloat64()), 0), float64(n)))
	}
	odds := p / (1 - p)
	term, u := math.Exp(float64(n)*math.Log1p(-p)), r.Float64()
	for k := 0; ; k++ {
		if u < term || k == n {
			return k
		}
		u -= term
		term *= odds * float64(n-k) / float64(k+1)
	}
}

// bytes draws the bytes of the given numbers of samples by place, from the normal distribution of the central limit. That is
// close enough for a few samples, too, if no result is far below 0.
func (d *sampled) bytes(r *rand.Rand, counts [places]int) (b batch) {
	for at, n := range counts {
		if n == 0 {
			continue
		}
		mb := float64(n) * d.sizes.mean
		if d.sizes.sigma > 0 {
			mb += math.Sqrt(float64(n)) * d.sizes.sigma * r.NormFloat64()
		}
		b[at] = max(mb, 0.01*float64(n)*d.sizes.mean)
	}
	return b
}

// drawLocality draws a global batch of LocalityAware: each worker takes the samples that it holds, and the others are dealt.
func (d *sampled) drawLocality(r *rand.Rand, b int, work []batch) {
	n := len(work)
	share := min(1, float64(n)*d.s.Machine.Capacity[2]/d.s.totalMB())
	left, rest := n*b, 1.0
	surplus, local := 0, make([]int, n)
	for i := range local {
		q := share / float64(n)
		has := binomial(r, left, min(1, q/rest))
		left, rest = left-has, rest-q
		local[i] = min(has, b)
		surplus += has - local[i]
	}
	unheld := left
	for i := range work {
		need, remote := b-local[i], 0
		if surplus > 0 {
			remote = binomial(r, need, float64(surplus)/float64(surplus+unheld))
			remote = min(max(remote, need-unheld), surplus)
		}
		surplus, unheld = surplus-remote, unheld-(need-remote)
		var counts [places]int
		counts[d.pick[2][2]] += local[i]
		counts[d.pick[0][2]] += remote
		counts[d.pick[0][0]] += need - remote
		work[i] = d.bytes(r, counts)
	}
}

// moments are the moments of the sizes: of the given ones, or of normal ones, where negative sizes are drawn again and all are
// scaled to the mean.
func (s *Simulation) moments() moments {
	if s.Sizes != nil {
		return momentsOf(s.Sizes)
	}
	mu, sigma := s.Workload.MeanMB, s.Workload.SigmaMB
	if sigma == 0 {
		return moments{mu, 0}
	}
	alpha := -mu / sigma
	lambda := math.Exp(-alpha*alpha/2) / math.Sqrt(2*math.Pi) / normalAbove(alpha)
	mean := mu + sigma*lambda
	return moments{mu, mu / mean * sigma * math.Sqrt(max(0, 1+alpha*lambda-lambda*lambda))}
}

func momentsOf(sizes []uint32) moments {
	sum, squares := 0.0, 0.0
	for _, b := range sizes {
		mb := float64(b) / 1e6
		sum += mb
		squares += mb * mb
	}
	n := float64(len(sizes))
	return moments{sum / n, math.Sqrt(max(0, squares/n-sum/n*sum/n))}
}

// normalAbove is the probability that a standard normal is above x.
func normalAbove(x float64) float64 { return math.Erfc(x/math.Sqrt2) / 2 }
