package simulate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"

	"lcache/internal/cluster/homes"
	"lcache/internal/errcode"
)

// mostExact bounds the samples whose orders are replayed: an index is 32 bits.
const mostExact = math.MaxUint32

// mostCores bounds the cores that a replay uses: each keeps sums of its own.
const mostCores = 4

// exact replays the orders of all epochs.
type exact struct {
	s        *Simulation
	sizes    []uint32
	epochs   int
	steps    int // T
	batch    int // b
	workers  int
	cores    int
	rates    rates
	pick     [Classes][Classes]place
	orders   *orders
	served   *readers // NoPFS: from where each read is served
	fleet    *Fleet   // of the policies with peers: from where each read is served
	sums     [][]sums // by core: of the mini-batches that are dealt at once
	forward  []uint32 // LocalityAware: the order of an epoch, as indices
	progress func(float64)
}

// sums are the bytes of a mini-batch, by place. Whole numbers add up to the same in any order.
type sums [places]uint64

func (s *Simulation) exact(ctx context.Context) (Outcome, error) {
	w := s.Workload
	cores := min(runtime.GOMAXPROCS(0), mostCores)
	need := s.exactBytes(float64(cores))
	if w.Samples > mostExact || need > s.MemoryBytes {
		return Outcome{}, errcode.Errorf(errcode.Memory, "replaying the orders of %.0f samples needs %s of memory, and may take %s: use the method sampled, scale down, or allow more",
			w.Samples, gigabytes(need), gigabytes(s.MemoryBytes))
	}
	x, err := s.newExact(cores)
	if err != nil {
		return Outcome{}, err
	}
	defer x.orders.forget()
	held, init, err := x.place(ctx)
	if err != nil {
		return Outcome{}, err
	}
	return x.run(ctx, held, init)
}

func (s *Simulation) newExact(cores int) (*exact, error) {
	x := &exact{s: s, sizes: s.Sizes, epochs: int(s.Workload.Epochs), steps: s.steps(), batch: int(s.Workload.Batch), workers: s.Machine.Workers,
		cores: cores, rates: s.Machine.rates(), sums: make([][]sums, cores), progress: s.Progress}
	if x.sizes == nil {
		x.sizes = normalSizes(s.Workload, s.Seed)
	}
	if len(x.sizes) != int(s.Workload.Samples) {
		return nil, fmt.Errorf("there are %d sizes for %g samples", len(x.sizes), s.Workload.Samples)
	}
	x.pick, x.orders = newHolding(x.rates, s.Policy).pick, newOrders(s)
	return x, nil
}

// exactBytes is the memory of a replay, which is allocated once and used for every epoch.
func (s *Simulation) exactBytes(cores float64) float64 {
	w, workers := s.Workload, float64(s.Machine.Workers)
	steps := math.Floor(w.Samples / (workers * w.Batch))
	need := 1<<20 + 3*4*w.Samples + 8*w.Epochs + 8*float64(s.window()) + 16*workers // sizes, positions of two epochs, the clock
	need += min(steps*workers, max(mostAtOnce, steps*workers/8)+workers) * 8 * float64(places) * (1 + cores)
	switch s.Policy {
	case NoPFS:
		need += readersBytes(w.Samples, w.Epochs, workers, w.Samples-steps*workers*w.Batch) + rankingBytes(w.Samples, w.Epochs, workers, cores)
	case LocalityAware:
		need += (4 + 1 + 4) * w.Samples
	case Perfect, Naive, Staging:
	case StaticPeers, LogPeers:
		need += 2*2*homes.Bins + w.Samples // homes, and whether a sample was read
		if s.copies(s.Machine.rates()) > 1 {
			need += w.Samples * float64(copyBytes(s.Machine.Workers))
		}
	default:
		need += (1 + 4) * w.Samples // the worker that holds a sample, and the class
	}
	return need
}

// place decides which worker holds which samples, and how long filling takes.
func (x *exact) place(ctx context.Context) (held *holding, init float64, err error) {
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
		err := x.orders.use(ctx, 0, func(positions []uint32) { held.holdFirstTouch(positions, x.orders.used, x.batch, x.workers, 1) })
		if err != nil {
			return nil, 0, err
		}
	case NoPFS:
		x.served, err = x.rank(ctx)
		return held, 0, err
	case StaticAlone, LogAlone:
		held.holdFixed(len(x.sizes), x.s.fixedShare(x.rates))
	case StaticPeers, LogPeers:
		x.fleet = madeUpFleet(len(x.sizes), x.workers, x.s.copies(x.rates))
	}
	return held, x.stageIn(held), nil
}

// stageIn is how long the slowest worker takes to fetch its samples before the training begins.
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
	empty := newHolding(x.rates, x.s.Policy) // in the first epoch of a cold policy no worker holds a sample
	seen := 1.0
	if x.s.Policy == DeepIOOpportunistic || x.s.Policy == ParallelStaging {
		if part := held.seen(); part > 0 { // where no sample is held the draws are from all
			seen = part
		}
	}
	ends := make([]float64, x.epochs)
	done := 0.0
	if x.s.Policy == NoPFS {
		done = 0.5
	}
	work := room(x.steps, x.workers, max(mostAtOnce, x.steps*x.workers/8))
	for epoch := range x.epochs {
		x.s.beginEpoch(c, epoch)
		d := &dealer{x: x, held: held, epoch: epoch}
		if epoch == 0 && x.s.Policy.cold() {
			d.held, d.cold = empty, true
		}
		if err := d.run(ctx, c, work); err != nil {
			return Outcome{}, err
		}
		ends[epoch] = c.end
		x.progress(done + (1-done)*float64(epoch+1)/float64(x.epochs))
	}
	return x.s.outcome(c, Exact, init, seen, ends), nil
}

// normalSizes draws the sizes of all samples: normal, those below 0 drawn again, then scaled so that their mean is as asked.
func normalSizes(w Workload, seed uint64) []uint32 {
	r := rand.New(rand.NewPCG(seed, math.MaxUint64))
	sizes := make([]uint32, int(w.Samples))
	sum := 0.0
	for k := range sizes {
		x := w.MeanMB + w.SigmaMB*r.NormFloat64()
		for x <= 0 {
			x = w.MeanMB + w.SigmaMB*r.NormFloat64()
		}
		sizes[k] = math.Float32bits(float32(x))
		sum += x
	}
	scale := w.MeanMB / (sum / float64(len(sizes)))
	for k, x := range sizes {
		sizes[k] = uint32(min(max(1, math.Round(float64(math.Float32frombits(x))*scale*1e6)), math.MaxUint32))
	}
	return sizes
}

func gigabytes(b float64) string {
	if b >= 1e12 {
		return fmt.Sprintf("%.3g TB", b/1e12)
	}
	return fmt.Sprintf("%.3g GB", b/1e9)
}
