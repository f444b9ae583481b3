package plan

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
)

// mostExact bounds the samples whose orders are replayed: an index is 32 bits.
const mostExact = math.MaxUint32

// exact replays the orders of all epochs.
type exact struct {
	s        *Simulation
	sizes    []uint32
	epochs   int
	steps    int // T
	batch    int // b
	workers  int
	rates    rates
	progress func(float64)

	ahead map[int]chan []uint32 // orders that are being made
}

func (s *Simulation) exact(ctx context.Context) (Outcome, error) {
	w := s.Workload
	need := w.Samples * (4 + 1 + 4 + 2*4) // sizes, best class, home, two orders
	if w.Samples > mostExact || need > s.MemoryBytes {
		return Outcome{}, fmt.Errorf("replaying the orders of %g samples needs %s of memory, and may take %s: use the method sampled, scale down, or allow more",
			w.Samples, gigabytes(need), gigabytes(s.MemoryBytes))
	}
	x := &exact{s: s, sizes: s.Sizes, epochs: int(w.Epochs), steps: s.steps(), batch: int(w.Batch), workers: s.Machine.Workers,
		rates: s.Machine.rates(), progress: s.Progress, ahead: map[int]chan []uint32{}}
	if x.sizes == nil {
		x.sizes = normalSizes(w, s.Seed)
	}
	if len(x.sizes) != int(w.Samples) {
		return Outcome{}, fmt.Errorf("there are %d sizes for %g samples", len(x.sizes), w.Samples)
	}
	defer x.join()
	held, init, err := x.place(ctx, need)
	if err != nil {
		return Outcome{}, err
	}
	return x.run(ctx, held, init)
}

// order returns the order of an epoch, and begins with the next one.
func (x *exact) order(ctx context.Context, epoch int) ([]uint32, error) {
	for e := epoch; e < min(epoch+2, x.epochs); e++ {
		if x.ahead[e] == nil {
			made := make(chan []uint32, 1)
			x.ahead[e] = made
			go func() { made <- x.make(e) }()
		}
	}
	made := x.ahead[epoch]
	delete(x.ahead, epoch)
	select {
	case order := <-made:
		if len(order) < x.steps*x.workers*x.batch {
			return nil, fmt.Errorf("the order of epoch %d has %d positions, and %d mini-batches need more", epoch, len(order), x.steps*x.workers)
		}
		for _, k := range order {
			if int(k) >= len(x.sizes) {
				return nil, fmt.Errorf("the order of epoch %d has index %d of %d samples", epoch, k, len(x.sizes))
			}
		}
		return order, nil
	case <-ctx.Done():
		x.ahead[epoch] = made
		return nil, ctx.Err()
	}
}

// join waits for the orders that are being made for nobody any more.
func (x *exact) join() {
	for _, made := range x.ahead {
		<-made
	}
}

func (x *exact) make(epoch int) []uint32 {
	if x.s.Orders != nil {
		return x.s.Orders(epoch)
	}
	order := make([]uint32, len(x.sizes))
	for k := range order {
		order[k] = uint32(k)
	}
	r := rand.NewPCG(x.s.Seed, uint64(epoch))
	for i := len(order) - 1; i > 0; i-- {
		j, _ := bits.Mul64(r.Uint64(), uint64(i+1)) // a number below i+1
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// place finds out who holds what, and how long staging in takes.
func (x *exact) place(ctx context.Context, used float64) (held *holding, init float64, err error) {
	m, p := x.s.Machine, x.s.Policy
	held = newHolding(x.rates, p)
	capacity := func(class int) uint64 { return wholeBytes(m.Capacity[class]) }
	switch p {
	case DeepIOOrdered, DeepIOOpportunistic:
		if x.s.totalMB() <= float64(x.workers)*m.Capacity[1] {
			held.holdShards(x.sizes, x.workers, 1, math.MaxUint64)
		} else {
			held.holdInTurn(x.sizes, x.workers, 1, capacity(1))
		}
	case LBANNPreload:
		held.holdShards(x.sizes, x.workers, 1, math.MaxUint64)
	case LocalityAware, ParallelStaging:
		held.holdShards(x.sizes, x.workers, 2, capacity(2))
	case LBANNDynamic:
		order, err := x.order(ctx, 0)
		if err != nil {
			return nil, 0, err
		}
		held.holdFirstTouch(order, x.steps, x.batch, x.workers, 1)
	case NoPFS:
		table, err := newFrequencyTable(len(x.sizes), x.workers, x.epochs, m.Capacity, x.s.MemoryBytes-used)
		if err != nil {
			return nil, 0, err
		}
		held, err = table.build(ctx, x)
		return held, 0, err
	case StaticAlone, StaticPeers, LogPeers:
		held.holdFixed(len(x.sizes), x.workers, x.s.fixedShare(x.rates), p == StaticAlone)
	}
	return held, x.stageIn(held), nil
}

// stageIn is how long the slowest worker takes to fetch what it holds before the training begins.
func (x *exact) stageIn(held *holding) float64 {
	class := x.s.Policy.shards()
	if class == 0 {
		return 0
	}
	mb := make([]float64, x.workers)
	for k, size := range x.sizes {
		if held.best[k] > 0 {
			mb[held.home[k]] += float64(size) / 1e6
		}
	}
	slowest := 0.0
	for i := range mb {
		others := 0.0
		if x.s.Policy == ParallelStaging {
			others = max(0, min(x.s.Machine.Capacity[2], x.s.totalMB()*held.seen())-mb[i])
		}
		slowest = max(slowest, x.rates.stageIn(class, mb[i], others))
	}
	return slowest
}

// stageIn is how long one worker takes to fetch MB from the source, and others from its peers, into a class.
func (r rates) stageIn(class int, own, others float64) float64 {
	return (own*(r.pfs[r.all()]+r.write()) + others*(r.remote[class]+r.write())) / r.p[class]
}

// run replays the epochs.
func (x *exact) run(ctx context.Context, held *holding, init float64) (Outcome, error) {
	c := x.s.start(init)
	nobody := newHolding(x.rates, x.s.Policy)
	seen := 1.0
	if x.s.Policy == DeepIOOpportunistic || x.s.Policy == ParallelStaging {
		if part := held.seen(); part > 0 { // who holds nothing draws from everything
			seen = part
		}
	}
	ends := make([]float64, x.epochs)
	done := 0.0
	if x.s.Policy == NoPFS {
		done = 0.4
	}
	for epoch := range x.epochs {
		order, err := x.order(ctx, epoch)
		if err != nil {
			return Outcome{}, err
		}
		x.s.beginEpoch(c, epoch)
		who := held
		if epoch == 0 && x.s.Policy.cold() {
			who = nobody
		}
		runEpoch(c, x.steps, x.workers, (&dealer{x: x, held: who, order: order, epoch: epoch}).deal())
		ends[epoch] = c.end
		x.progress(done + (1-done)*float64(epoch+1)/float64(x.epochs))
	}
	return x.s.outcome(c, Exact, init, seen, ends), nil
}

// normalSizes draws the sizes of all samples: normal, those below 0 drawn again, then scaled so that their mean is as asked.
func normalSizes(w Workload, seed uint64) []uint32 {
	r := rand.New(rand.NewPCG(seed, math.MaxUint64))
	raw := make([]float32, int(w.Samples))
	sum := 0.0
	for k := range raw {
		x := w.MeanMB + w.SigmaMB*r.NormFloat64()
		for x <= 0 {
			x = w.MeanMB + w.SigmaMB*r.NormFloat64()
		}
		raw[k] = float32(x)
		sum += x
	}
	scale := w.MeanMB / (sum / float64(len(raw)))
	sizes := make([]uint32, len(raw))
	for k, x := range raw {
		sizes[k] = uint32(min(max(1, math.Round(float64(x)*scale*1e6)), math.MaxUint32))
	}
	return sizes
}
