package score

import (
	"math"
	"slices"

	"lcache/sample"
)

// Rank is SHADE's scorer: a sample's value depends on how many samples of its batch have a smaller loss (SHADE §4.1,
// Eq. 6). So losses of different epochs can be compared.
type Rank struct {
	values
	batch int
	base  float64
	whole []float64      // the scores of a full batch, by the number of samples with a smaller loss
	keys  []uint64       // of one observation: the bits of a loss << 32 | its position; reused
	room  []uint64       // memory for sorting
	index []sample.Index // indices of the observation
}

// NewRank returns a scorer for n samples that are trained in batches of the given size. base is b0 of [RankScores].
func NewRank(n, batch int, base float64) (*Rank, error) {
	v, err := newValues(n)
	if err != nil {
		return nil, err
	}
	s := &Rank{values: v, batch: batch, base: base}
	for smaller := range min(batch, MaxSamples) {
		s.whole = append(s.whole, rankScore(smaller, batch, batch, base))
	}
	return s, nil
}

// Observe takes the losses of one batch. Refused samples do not count in the ranks. If a sample is in the batch
// twice, its greater score applies.
func (s *Rank) Observe(o Observation) (r Report) {
	switch {
	case o.Kind == Counts || o.misshapen():
		return Report{Shape: 1}
	case s.stale(o.Epoch):
		return Report{Stale: len(o.Index)}
	}
	s.begin(&o)
	s.keys, s.index = s.keys[:0], s.index[:0]
	for k, i := range o.Index {
		switch {
		case int(i) >= len(s.v):
			r.Unknown++
		case !finite(o.Loss[k]):
			r.NotFinite++
		default:
			// The bits of non-negative numbers have the order of the numbers.
			s.keys = append(s.keys, uint64(math.Float32bits(max(o.Loss[k], 0)))<<32|uint64(len(s.index)))
			s.index = append(s.index, i)
			r.Observed++
		}
	}
	s.sort()
	n, score := len(s.keys), 0.0
	// Scores ascend, so the greater score of a repeated sample is written last.
	for smaller, key := range s.keys {
		if smaller == 0 || s.keys[smaller-1]>>32 < key>>32 {
			if n == s.batch {
				score = s.whole[smaller]
			} else {
				score = rankScore(smaller, n, s.batch, s.base)
			}
		}
		s.set(s.index[uint32(key)], score)
	}
	return r
}

// mostKeys is the maximum number of keys that are sorted byte by byte.
const mostKeys = 8192

// sort sorts the keys by loss, byte by byte. The sort is stable. It dominates the cost of an observation, and batches
// are small.
func (s *Rank) sort() {
	if len(s.keys) > mostKeys {
		slices.Sort(s.keys)
		return
	}
	s.room = slices.Grow(s.room[:0], len(s.keys))[:len(s.keys)]
	var counts [4][256]uint32
	for _, key := range s.keys {
		counts[0][byte(key>>32)]++
		counts[1][byte(key>>40)]++
		counts[2][byte(key>>48)]++
		counts[3][byte(key>>56)]++
	}
	from, to := s.keys, s.room
	for k := range counts {
		count, shift, at := &counts[k], 32+8*k, uint32(0)
		for b, n := range count {
			count[b] = at
			at += n
		}
		for _, key := range from {
			b := byte(key >> shift)
			to[count[b]] = key
			count[b]++
		}
		from, to = to, from
	}
}

// EndEpoch ends the epoch.
func (s *Rank) EndEpoch(p Progress) { s.end(p) }

// RankScores returns SHADE's scores for one batch (SHADE Eq. 6): ln(base + number of other samples with a smaller
// loss). Equal losses have equal scores. If there are more or fewer losses than batch, the number is scaled in
// proportion. A single sample counts as the middle of a batch.
func RankScores(losses []float64, batch int, base float64) []float64 {
	sorted := slices.Sorted(slices.Values(losses))
	scores := make([]float64, len(losses))
	for k, loss := range losses {
		smaller, _ := slices.BinarySearch(sorted, loss)
		scores[k] = rankScore(smaller, len(losses), batch, base)
	}
	return scores
}

// rankScore returns the score of a sample in a batch of n, given the number of other samples with a smaller loss.
func rankScore(smaller, n, batch int, base float64) float64 {
	count := float64(smaller)
	switch {
	case n == 1:
		count = float64(batch-1) / 2
	case n != batch:
		count = float64(count * float64(batch-1) / float64(n-1))
	}
	return math.Log(count + base)
}
