package draw

import (
	"math"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/numeric"
	"lcache/sample"
)

// Targets computes from values the expected uses of each sample in the next epoch, and writes them to dst, which may
// be values itself. hot is the set of samples that memory will hold; nil: none.
type Targets func(values []float64, hot *sample.Set, dst []float64)

// IIS returns ImPACT's targets: max(floor, R^beta) of the percentile rank R (ImPACT §III-A), so that no sample is drawn twice. The length of an epoch
// depends only on beta, floor and the number of samples.
func IIS(beta, floor float64) Targets {
	return func(values []float64, _ *sample.Set, dst []float64) {
		by := numeric.Ascending(values)
		defer offheap.Free(by)
		for k, i := range by {
			dst[i] = iisTarget(k, len(by), beta, floor)
		}
	}
}

func iisTarget(k, n int, beta, floor float64) float64 {
	r := numeric.Rank(k, n)
	if beta != 1 {
		r = math.Pow(r, beta)
	}
	return max(floor, r)
}

// Weighted returns the targets of SHADE and SpiderCache: draws × v / Σv (SHADE §4.2.1, PADS), where draws is the
// number of samples. smooth is a share of the mean value that is added to every value. rep multiplies the uses of hot
// samples; see [Repeat].
func Weighted(smooth, rep float64) Targets {
	return func(values []float64, hot *sample.Set, dst []float64) {
		weigh(values, float64(len(values)), smooth, dst)
		Repeat(dst, hot, rep, float64(len(values)))
	}
}

// weigh writes draws × v / Σv, or equal targets if all values are zero.
func weigh(values []float64, draws, smooth float64, dst []float64) {
	sum := numeric.Total(values)
	more := smooth * sum / float64(len(values))
	sum += float64(more * float64(len(values)))
	for i, v := range values {
		if sum > 0 {
			dst[i] = draws * (v + more) / sum
		} else {
			dst[i] = draws / float64(len(values))
		}
	}
}

// Repeat multiplies the uses of hot samples by rep, and reduces the uses of the others so that the sum stays draws.
// Hot samples together get at most draws.
func Repeat(targets []float64, hot *sample.Set, rep, draws float64) {
	if hot.Len() == 0 || rep == 1 {
		return
	}
	sum := 0.0
	for i := range hot.All {
		sum += targets[i]
	}
	if sum <= 0 {
		return
	}
	want := min(rep*sum, draws)
	inside, outside := want/sum, 0.0
	if draws > sum {
		outside = (draws - want) / (draws - sum)
	}
	for i := range targets {
		if hot.Has(sample.Index(i)) {
			targets[i] *= inside
		} else {
			targets[i] *= outside
		}
	}
}

// Even wraps t. If all values are equal, all targets are equal too, with the same sum: without knowledge about
// importance, no sample is preferred.
func Even(t Targets) Targets {
	return func(values []float64, hot *sample.Set, dst []float64) {
		same := true
		for _, v := range values {
			if v != values[0] {
				same = false
				break
			}
		}
		t(values, hot, dst)
		if same && len(dst) > 0 {
			mean := numeric.Total(dst) / float64(len(dst))
			for i := range dst {
				dst[i] = mean
			}
		}
	}
}

// Weights writes 1/t for each sample of a batch, scaled to a mean of 1. With these weights the expected gradient of a drawn epoch is that of all samples
// (SHADE Eq. 1). A sample with target 0 has weight 0.
func Weights(targets []float64, batch []sample.Index, dst []float32) []float32 {
	dst = dst[:0]
	sum := 0.0
	for _, i := range batch {
		w := 0.0
		if int(i) < len(targets) && targets[i] > 0 {
			w = 1 / targets[i]
		}
		sum += w
		dst = append(dst, float32(w))
	}
	for k := range dst {
		if sum > 0 {
			dst[k] = float32(float64(dst[k]) * float64(len(dst)) / sum)
		}
	}
	return dst
}
