package importance

import (
	"time"

	"lcache/offheap"
)

// Several jobs on one cache keep samples together, and each has its own orders and its own values. What is kept is decided by V[i] = Σ ω·R[i]: by the percentile ranks of
// each job's values, and the job's weight.

// JobRanks are how one job ranks all samples.
type JobRanks struct {
	Ranks  []float32 // percentile rank of each sample, from 0 to 1; nil: nothing is known yet, and the job has no say
	Weight float64
}

// JobWeights are the weights of jobs: each one's share of the time that all of them waited for the source in the last epoch. They are equal where none has waited.
func JobWeights(waited []time.Duration) []float64 {
	sum := 0.0
	for _, d := range waited {
		sum += float64(max(d, 0))
	}
	weights := make([]float64, len(waited))
	for k, d := range waited {
		if weights[k] = 1 / float64(len(waited)); sum > 0 {
			weights[k] = float64(max(d, 0)) / sum
		}
	}
	return weights
}

// Ranks writes the percentile rank of each value to dst: its place in ascending order of (value, index), from 0 to 1.
func Ranks(values []float64, dst []float32) {
	by := ascending(values)
	defer offheap.Free(by)
	for k, i := range by {
		dst[i] = float32(rank(k, len(by)))
	}
}

// Together writes the value that each sample has for all jobs to dst.
func Together(jobs []JobRanks, dst []float64) {
	clear(dst)
	for _, j := range jobs {
		for i, r := range j.Ranks {
			dst[i] += float64(j.Weight * float64(r))
		}
	}
}
