package simulate

// shares are the probabilities that a read is served from each place.
type shares [places]float64

// sources is the probability that a read goes to the source.
func (p shares) sources() float64 { return p[fromPFS] + p[onDemand] }

// sharesOf returns the shares of a policy in its first epoch and in the others, from the access model. LocalityAware has
// none: what its workers read depends on each other.
func (s *Simulation) sharesOf(r rates) (first, steady shares, err error) {
	h := newHolding(r, s.Policy)
	n, m := float64(s.Machine.Workers), s.Machine
	nothing := shares{}
	nothing[h.pick[0][0]] = 1
	held := func(share, own float64, class int) (p shares) {
		p[h.pick[class][class]] += share * own
		p[h.pick[0][class]] += share * (1 - own)
		p[h.pick[0][0]] += 1 - share
		return p
	}
	fits := func(class int) float64 { return min(1, n*m.Capacity[class]/s.totalMB()) }
	switch s.Policy {
	case DeepIOOrdered:
		steady = held(fits(1), 1/n, 1)
	case DeepIOOpportunistic:
		if steady = nothing; m.Capacity[1] > 0 { // all that is read is held
			steady = held(1, 1/n+(1-1/n)/n, 1)
		}
	case ParallelStaging:
		steady[localSSD] = 1
	case LBANNDynamic:
		steady = held(float64(s.steps())*n*s.Workload.Batch/s.Workload.Samples, 1/n, 1)
	case LBANNPreload:
		steady = held(1, 1/n, 1)
	case StaticAlone, LogAlone:
		steady = held(s.fixedShare(r), 1, 2)
	case StaticPeers, LogPeers:
		if copies := s.copies(r); copies > 0 {
			share := min(1, copies)
			steady = held(share, copies/n/share, 2)
		} else {
			steady = nothing
		}
	case NoPFS:
		if steady, err = s.frequencyShares(h); err != nil {
			return first, steady, err
		}
	default:
		steady = nothing
	}
	if first = steady; s.Policy.cold() {
		first = nothing
	}
	return first, steady, nil
}

// fixedShare is the share of the dataset that lcache holds on the SSDs, whose slack is 1 %: as much as fits, or less if the disk would
// be the bottleneck. The other samples come from the source, in parallel with the disk.
func (s *Simulation) fixedShare(r rates) float64 {
	homes := float64(s.Machine.Workers)
	if s.Policy.alone() {
		homes = 1
	}
	top := min(1, 0.99*homes*s.Machine.Capacity[2]/s.totalMB())
	disk, source, others := s.Policy.diskPasses()*r.class[2], r.pfs[r.all()], max(r.compute, r.prepare)
	if disk == 0 {
		return top
	}
	return min(top, max(source/(source+disk), others/disk))
}

// copies is how often each worker with peers keeps its share of the dataset (T). Where the disks have room for more than the dataset, and hold all of it,
// the static layout keeps copies.
func (s *Simulation) copies(r rates) float64 {
	share, n := s.fixedShare(r), float64(s.Machine.Workers)
	if share < 1 || s.Policy == LogPeers {
		return share
	}
	return min(n, 0.99*n*s.Machine.Capacity[2]/s.totalMB())
}

// seen is the share of the dataset that a policy ever reads. A policy that holds no samples draws from the whole dataset.
func (s *Simulation) seen() float64 {
	class := s.Policy.shards()
	if s.Policy != DeepIOOpportunistic && s.Policy != ParallelStaging || s.Machine.Capacity[class] == 0 {
		return 1
	}
	return min(1, float64(s.Machine.Workers)*s.Machine.Capacity[class]/s.totalMB())
}

// init is how long staging in takes, where every worker has an equal part.
func (s *Simulation) init(r rates) float64 {
	class, n := s.Policy.shards(), float64(s.Machine.Workers)
	if class == 0 {
		return 0
	}
	own := s.totalMB() / n
	if s.Policy != LBANNPreload && (s.Policy.shards() == 2 || own > s.Machine.Capacity[1]) {
		own = min(own, s.Machine.Capacity[class])
	}
	others := 0.0
	if s.Policy == ParallelStaging {
		others = max(0, min(s.Machine.Capacity[2], s.totalMB()*s.seen())-own)
	}
	return r.stageIn(class, own, others)
}
