package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Bounds of how many samples' histories are drawn, and of the reads in them.
const (
	leastHistories = 2_000
	mostHistories  = 200_000
	historyReads   = 400_000
	longestHistory = 10_000 // epochs
)

// histories draws samples' histories, which worker reads a sample in which epoch, to find out where NoPFS's placement has
// them. A sum over all histories has no short form: which of the samples that a worker reads equally often it holds
// depends on their first use, and of that the workers are not independent.
type histories struct {
	epochs, workers int
	pick            [Classes][Classes]place
	ends            [Classes]rankEnd // of class 1 and 2
	r               *rand.Rand

	reader []int32 // by epoch
	count  []int32 // by worker
	first  []int32 // by worker: the epoch of the first use
}

// rankEnd is where a class ends in the order of a worker's samples: those are held that are read more than count times; of
// those read count times, those first used before epoch; and of these in that epoch a share.
type rankEnd struct {
	count, epoch int
	share        float64
}

// frequencyShares are the shares of NoPFS's placement in all epochs but the first.
func (s *Simulation) frequencyShares(h *holding) (p shares, err error) {
	epochs, workers := s.Workload.Epochs, s.Machine.Workers
	if epochs > longestHistory {
		return p, fmt.Errorf("policy nopfs is simulated for up to %d epochs, not %g", longestHistory, epochs)
	}
	d := &histories{epochs: int(epochs), workers: workers, pick: h.pick, r: rand.New(rand.NewPCG(s.Seed, 1)),
		reader: make([]int32, int(epochs)), count: make([]int32, workers), first: make([]int32, workers)}
	held := 0.0
	for j := 1; j < Classes; j++ {
		held += s.Machine.Capacity[j] / s.totalMB()
		d.ends[j] = reads{epochs, float64(workers)}.rankEnd(min(1, held))
	}
	if d.epochs == 1 {
		p[h.pick[0][0]] = 1
		return p, nil
	}
	draws := min(max(historyReads/d.epochs, leastHistories), mostHistories)
	for range draws {
		d.draw(&p)
	}
	for at := range p {
		p[at] /= float64(draws) * float64(d.epochs-1)
	}
	return p, nil
}

// rankEnd is where the share of the dataset ends that a worker may hold.
func (r reads) rankEnd(share float64) rankEnd {
	k, theta := r.threshold(share)
	end := rankEnd{count: int(k)}
	for left := theta; end.epoch < int(r.epochs); end.epoch++ {
		p := r.firstUse(k, float64(end.epoch))
		if left < p {
			end.share = left / p
			return end
		}
		left -= p
	}
	return end
}

// firstUse is the probability that k reads in E epochs begin in the given one.
func (r reads) firstUse(k, epoch float64) float64 {
	rest := r.epochs - epoch - 1
	if rest < k-1 {
		return 0
	}
	return math.Exp(logChoose(rest, k-1) - logChoose(r.epochs, k))
}

// draw draws the history of one sample, and adds from where its reads are served.
func (d *histories) draw(p *shares) {
	for e := range d.reader {
		i := int32(d.r.IntN(d.workers))
		d.reader[e] = i
		if d.count[i]++; d.count[i] == 1 {
			d.first[i] = int32(e)
		}
	}
	at := d.r.Float64() // the position of the sample in the epoch at which a class ends
	best := 0
	for _, i := range d.reader {
		best = better(best, d.class(i, at))
	}
	for _, i := range d.reader[1:] {
		p[d.pick[d.class(i, at)][best]]++
	}
	for _, i := range d.reader {
		d.count[i] = 0
	}
}

// class is the class in which a worker holds the sample.
func (d *histories) class(worker int32, at float64) int {
	for j := 1; j < Classes; j++ {
		if d.ends[j].holds(int(d.count[worker]), int(d.first[worker]), at) {
			return j
		}
	}
	return 0
}

func (e rankEnd) holds(count, first int, at float64) bool {
	if count != e.count {
		return count > e.count
	}
	return first < e.epoch || first == e.epoch && at < e.share
}

// better is the faster of two classes, where 0 is none.
func better(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
