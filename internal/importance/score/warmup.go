package score

import (
	"slices"

	"lcache/internal/disk/offheap"
	"lcache/internal/importance/numeric"
)

// WarmUp finds the samples of unstable importance (ImPACT §III-B): those whose percentile rank varies most over the
// first epochs. It ends when the sets S of two consecutive epochs are nearly equal. It needs 16 bytes per sample
// until it is closed.
type WarmUp struct {
	mean, spread []float64 // Welford's algorithm: mean, and sum of squared distances from it
	epochs       int
	size         int
	overlap      float64
	most, fixed  int
	s            []uint32 // S of the newest epoch, ascending
	overlaps     []float64
}

// NewWarmUp begins the warm-up for n samples with o.Unstable of them in S. The numbers of epochs must be at least 1.
func NewWarmUp(n int, o LossOptions) (*WarmUp, error) {
	mean, err := offheap.MakeDense[float64](n)
	if err != nil {
		return nil, err
	}
	spread, err := offheap.MakeDense[float64](n)
	if err != nil {
		offheap.Free(mean)
		return nil, err
	}
	return &WarmUp{mean: mean, spread: spread, size: min(o.Unstable, n), overlap: o.Overlap, most: max(o.MaxEpochs, 1), fixed: o.Fixed}, nil
}

// Close frees the memory except S.
func (w *WarmUp) Close() {
	offheap.Free(w.mean)
	offheap.Free(w.spread)
	w.mean, w.spread = nil, nil
}

// S returns the newest set of unstable samples, ascending.
func (w *WarmUp) S() []uint32 { return w.s }

// Overlaps returns the overlaps of consecutive S, from the third epoch on.
func (w *WarmUp) Overlaps() []float64 { return w.overlaps }

// EndEpoch adds the values of one epoch, and reports whether the warm-up has ended. One epoch has no variance, so the
// first S is that of the second epoch, and the first comparison is made after the third.
func (w *WarmUp) EndEpoch(values []float64) (ended bool) {
	n := len(values)
	by := numeric.Ascending(values)
	defer offheap.Free(by)
	w.epochs++
	for k, i := range by {
		r := numeric.Rank(k, n)
		d := r - w.mean[i]
		w.mean[i] += d / float64(w.epochs)
		w.spread[i] += float64(d * (r - w.mean[i]))
	}
	settled := false
	if w.epochs >= 2 {
		before := w.s
		w.s = w.widest(by)
		if w.epochs >= 3 {
			share := common(before, w.s)
			w.overlaps = append(w.overlaps, share)
			settled = share > w.overlap
		}
	}
	if w.fixed > 0 {
		return w.epochs >= w.fixed
	}
	return settled || w.epochs >= w.most
}

// widest returns the samples of greatest variance, in ascending order of index. by is memory for n indices.
func (w *WarmUp) widest(by []uint32) []uint32 {
	numeric.Greatest(w.spread, by)
	s := slices.Clone(by[:w.size])
	slices.Sort(s)
	return s
}

// common returns the share of a that is also in b; 1 if both are empty. Both are ascending and of equal length.
func common(a, b []uint32) float64 {
	if len(b) == 0 {
		return 1
	}
	both := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			both, i, j = both+1, i+1, j+1
		case a[i] < b[j]:
			i++
		default:
			j++
		}
	}
	return float64(both) / float64(len(b))
}
