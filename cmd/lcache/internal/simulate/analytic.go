package simulate

import "math"

// analytic gives a simulation's outcome in closed form: shares of the access model instead of samples, means instead of
// mini-batches, and the cost of the barrier, at which the slowest of N workers counts.
func (s *Simulation) analytic() (Outcome, error) {
	r := s.Machine.rates()
	first, steady, err := s.sharesOf(r)
	if err != nil {
		return Outcome{}, err
	}
	if s.Policy == LocalityAware {
		steady = s.localityShares(r)
		first = steady
	}
	a := &closed{s: s, c: s.start(0), sizes: s.moments(), barrier: expectedMax(s.Machine.Workers), steps: float64(s.steps())}
	init, epochs := s.init(r), s.Workload.Epochs
	one, other := a.epoch(first, 0), a.epoch(steady, 1)
	o := Outcome{Policy: s.Policy, Method: Analytic, InitS: init, DatasetSeen: s.seen(), FirstEpochS: one.seconds, SteadyEpochS: other.seconds}
	if epochs == 1 {
		o.SteadyEpochS = one.seconds
	}
	o.LowerBoundS = epochs * a.bound()
	o.Seconds = init + one.seconds + (epochs-1)*other.seconds
	o.Ratio = o.Seconds / o.LowerBoundS
	o.StallS = one.stall + (epochs-1)*other.stall
	if s.Policy == Perfect {
		return o, nil
	}
	for _, part := range []struct {
		p     shares
		times float64
	}{{first, 1}, {steady, epochs - 1}} {
		a.count(&o, part.p, part.times)
	}
	return o, nil
}

// closed holds the inputs of the closed forms.
type closed struct {
	s       *Simulation
	c       *clock
	sizes   moments
	barrier float64 // the mean of the largest of N standard normals
	steps   float64 // T
}

type closedEpoch struct{ seconds, stall float64 }

// step returns how long the slowest worker takes on average for a mini-batch whose samples cost perMB seconds, and extra
// ones with a probability.
func (a *closed) step(perMB, extra, probability float64) float64 {
	b, size := a.s.Workload.Batch, a.sizes
	square := size.mean*size.mean + size.sigma*size.sigma
	mean := size.mean * (perMB + probability*extra)
	variance := square*(perMB*perMB+2*perMB*extra*probability+extra*extra*probability) - mean*mean
	slowest := b*mean + a.barrier*math.Sqrt(b*max(0, variance))
	if extra > 0 { // few samples are far from normal: no worker takes longer than with the extra on all of them
		slowest = min(slowest, a.step(perMB+extra, 0, 0))
	}
	return slowest
}

// bound is an epoch of computing alone, with the barrier.
func (a *closed) bound() float64 { return a.steps * a.step(a.c.r.compute, 0, 0) }

func (a *closed) epoch(p shares, number int) closedEpoch {
	if a.s.Policy == Perfect {
		return closedEpoch{seconds: a.bound()}
	}
	a.s.beginEpoch(a.c, number)
	pfs := a.meanPFS(p)
	computing := a.step(a.c.r.compute, pfs+a.c.r.write(), p[onDemand])
	load := a.load(p, pfs)
	w := float64(a.c.window)
	alone := a.step(a.c.r.compute, 0, 0)
	seconds := max(computing, load, (load+computing)/w)
	if load == 0 {
		seconds = computing
	}
	demand := a.s.Workload.Batch * a.sizes.mean * p[onDemand] * (pfs + a.c.r.write())
	stall := demand + max(0, seconds-max(computing, alone))
	return closedEpoch{a.steps * seconds, a.steps * stall}
}

// load returns the mean time in which a worker prefetches a mini-batch, plus the delay of the slowest worker if the staging
// buffer is too small to absorb it.
func (a *closed) load(p shares, pfs float64) float64 {
	var b batch
	for at, q := range p {
		b[at] = q * a.s.Workload.Batch * a.sizes.mean
	}
	mean := a.c.load(&b, b.sum(), pfs)
	square := 1 + a.sizes.sigma*a.sizes.sigma/(a.sizes.mean*a.sizes.mean)
	cv := math.Sqrt(max(0, square-1) / a.s.Workload.Batch)
	return mean * (1 + a.barrier*cv/math.Sqrt(float64(a.c.window)*max(1, a.steps/4)))
}

// meanPFS returns the mean time that a worker needs for a MB from the source. It shares the source with the other workers that
// read from it for the same mini-batch.
func (a *closed) meanPFS(p shares) float64 {
	q := p.sources()
	if q <= 0 {
		return 0
	}
	reading := -math.Expm1(a.s.Workload.Batch * math.Log1p(-min(q, 1-1e-15)))
	others := reads{float64(a.s.Machine.Workers - 1), 1 / reading}
	if a.s.Machine.Workers == 1 || reading > 1-1e-9 {
		return a.c.r.pfs[a.c.r.all()]
	}
	mean := 0.0
	for g := range a.s.Machine.Workers {
		mean += others.pmf(float64(g)) * a.c.r.pfs[g+1]
	}
	return mean
}

// count adds the traffic of n epochs.
func (a *closed) count(o *Outcome, p shares, epochs float64) {
	if epochs <= 0 {
		return
	}
	n, r := float64(a.s.Machine.Workers), a.c.r
	mb := epochs * a.steps * a.s.Workload.Batch * a.sizes.mean // of one worker
	o.MB.PFS += n * mb * p.sources()
	o.MB.Local += n * mb * (p[localRAM] + p[localSSD])
	o.MB.Remote += n * mb * (p[remoteRAM] + p[remoteSSD])
	o.FetchS.RAM += mb * p[localRAM] * r.thread[1]
	o.FetchS.SSD += mb * p[localSSD] * r.thread[2]
	o.FetchS.Remote += mb * (p[remoteRAM]*r.remote[1] + p[remoteSSD]*r.remote[2])
	o.FetchS.PFS += mb * p.sources() * a.meanPFS(p)
}

// localityShares returns the shares of LocalityAware: a worker holds a binomial number of samples of a global batch, and keeps
// at most b of them.
func (s *Simulation) localityShares(r rates) (p shares) {
	n, b := float64(s.Machine.Workers), s.Workload.Batch
	share := min(1, n*s.Machine.Capacity[2]/s.totalMB())
	mean := share * b
	sigma := math.Sqrt(max(0, mean*(1-share/n)))
	local := mean
	if sigma > 0 { // E[min(X, b)] of a normal X
		z := (b - mean) / sigma
		local = mean*(1-normalAbove(z)) - sigma*math.Exp(-z*z/2)/math.Sqrt(2*math.Pi) + b*normalAbove(z)
	}
	h := newHolding(r, LocalityAware)
	p[h.pick[2][2]] += local / b
	p[h.pick[0][2]] += share - local/b
	p[h.pick[0][0]] += 1 - share
	return p
}

// expectedMax is the mean of the largest of n standard normals, by Simpson's rule.
func expectedMax(n int) float64 {
	if n < 2 {
		return 0
	}
	const lo, hi, parts = -9.0, 9.0, 4000
	below := func(x float64) float64 { return math.Pow(1-normalAbove(x), float64(n)) }
	sum := 0.0
	for i := range parts + 1 {
		x := lo + (hi-lo)*float64(i)/parts
		y := -below(x)
		if x > 0 {
			y = 1 - below(x)
		} else if x == 0 {
			y = 0.5 - below(x)
		}
		weight := 2.0
		switch {
		case i == 0 || i == parts:
			weight = 1
		case i%2 == 1:
			weight = 4
		}
		sum += weight * y
	}
	return sum * (hi - lo) / parts / 3
}
