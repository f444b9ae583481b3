package plan

import "math"

// Crossover is the sample size above which reordering no longer pays on a disk, with large blocks.
type Crossover struct {
	SampleBytes float64 `json:"sample_bytes"` // reordering pays below this size; 0 if nothing limits reads
}

// Crossover returns s* = 1/(τ_log·I): the sample size at which random reads cost as much as reading and writing in order.
func (d DiskLine) Crossover() Crossover {
	return Crossover{SampleBytes: per(1, d.tauLog()*d.randomIOPS())}
}

// IOPSCrossover returns the operations/s above which reading samples of a size in place is as fast as reordering.
func (d DiskLine) IOPSCrossover(sample float64) float64 { return per(1, d.tauLog()*sample) }

// CombinedCrossover returns the combined bandwidth below which reading samples of a size in place is as fast as reordering, on a disk with combined
// limits.
func (d DiskLine) CombinedCrossover(sample float64) float64 { return 2 * d.randomIOPS() * sample }

// MixCrossover returns φ above which reading samples of a size in place is as fast as reordering. It is not clipped to 0 and 1.
func (d DiskLine) MixCrossover(sample float64) float64 {
	x, y := per(1, d.ReadBPS), per(1, d.WriteBPS)
	if min(x, y) == 0 {
		return math.Inf(1)
	}
	return (d.tauStatic(sample, 0) - max(x, y)) / min(x, y)
}

// tauStatic returns the disk seconds per byte of samples read in place, each in 1+x reads.
func (d DiskLine) tauStatic(sample, x float64) float64 {
	return d.Seconds(Transfer{1 + pageBytes/sample, (sample + pageBytes) / (1 + x)}, Transfer{})
}

// Mixed is a third layout, which lcache does not implement: a share of each epoch's samples is kept in order, the rest in place.
type Mixed struct {
	ShareInOrder float64 `json:"share_in_order"`
	BytesPerS    float64 `json:"bytes_per_s"`
}

// BestMix returns the best mixed layout for a disk with combined limits of bytes and operations; zero if it has none.
func (d DiskLine) BestMix(sample float64) Mixed {
	b, i, u := d.CombinedBPS, d.CombinedIOPS, d.OpBytes
	if u == 0 {
		u = defaultOpBytes
	}
	if b == 0 || i == 0 || !(sample > 0) {
		return Mixed{}
	}
	rate := func(x float64) float64 {
		return 1 / max((1+x)/b, ((1-x)/sample+2*x/u)/i)
	}
	best := Mixed{0, rate(0)}
	for _, x := range []float64{clip((b/sample-i)/(b/sample-2*b/u+i), 0, 1), 1} {
		if r := rate(x); r > best.BytesPerS {
			best = Mixed{x, r}
		}
	}
	return best
}
