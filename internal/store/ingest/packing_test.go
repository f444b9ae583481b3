package ingest

import (
	"testing"
)

// TestDrawn: every share tries samples of its own, spread over the share, and about as many bytes as a trial may
// read.
func TestDrawn(t *testing.T) {
	for _, c := range []struct{ n, first, behind, size, want int }{
		{0, 0, 0, 10, 0}, {1, 0, 1, 10, 1}, {1, 1, 1, 10, 0}, {10, 0, 10, 10, 10}, {10, 6, 9, 10, 3}, {10_000, 0, 10_000, 10, 1000}, {10_000, 7500, 10_000, 10, 1000},
		{10_000, 0, 10_000, trialBytes / 100, 62}, {10_000, 0, 10_000, 2 * trialBytes, 1},
	} {
		sizes := make([]uint32, c.n)
		for i := range sizes {
			sizes[i] = uint32(c.size)
		}
		list := TrialSamples(sizes, c.first, c.behind)
		if len(list) != c.want {
			t.Errorf("%+v: %d are drawn", c, len(list))
		}
		for k, index := range list {
			if from := c.first + k*(c.behind-c.first)/len(list); int(index) < from || int(index) >= c.behind || k > 0 && index <= list[k-1] {
				t.Errorf("%+v: sample %d is drawn as number %d", c, index, k)
			}
		}
	}
}
