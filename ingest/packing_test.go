package ingest

import (
	"testing"
)

// TestDrawn: every share draws its own samples, spread over the share, and about as many bytes as a trial may read.
func TestDrawn(t *testing.T) {
	for _, c := range []struct{ n, share, shares, size, want int }{
		{0, 0, 1, 10, 0}, {1, 0, 1, 10, 1}, {1, 1, 2, 10, 0}, {10, 0, 1, 10, 10}, {10, 2, 3, 10, 3}, {10_000, 0, 1, 10, 1000}, {10_000, 3, 4, 10, 1000},
		{10_000, 0, 1, trialBytes / 100, 62}, {10_000, 0, 1, 2 * trialBytes, 1},
	} {
		sizes := make([]uint32, c.n)
		for i := range sizes {
			sizes[i] = uint32(c.size)
		}
		list := TrialSamples(sizes, c.share, c.shares)
		if len(list) != c.want {
			t.Errorf("%+v: %d are drawn", c, len(list))
		}
		for k, index := range list {
			if int(index)%c.shares != c.share || k > 0 && index <= list[k-1] || int(index) < (k*c.n/len(list))-c.shares {
				t.Errorf("%+v: sample %d is drawn as number %d", c, index, k)
			}
		}
	}
}
