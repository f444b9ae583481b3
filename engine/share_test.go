package engine

import (
	"lcache/internal/serve/prefetch"
	"testing"
)

// TestDepth tests how the scan and the prefetcher share the device.
func TestDepth(t *testing.T) {
	for what, c := range map[string]struct {
		sharing
		depth int
	}{
		"nothing is moved": {sharing{}, 0},
		"the window serves, and others read small samples by place": {sharing{inWindow: true, moving: true, mean: 16 << 10}, 106},
		"a validation pass over a tenth while the window serves":    {sharing{inWindow: true, moving: true, mean: 16 << 10, others: 0.1}, 48},
		"a job as large as the owner while the window serves":       {sharing{inWindow: true, moving: true, mean: 16 << 10, others: 1}, 106},
		"a job as large as the owner, with samples of 100 KB":       {sharing{inWindow: true, moving: true, mean: 100e3, others: 1}, 161},
		"the window serves, and others read large samples by place": {sharing{inWindow: true, mean: 1 << 20}, 16},
		"the window serves, and others read huge samples by place":  {sharing{inWindow: true, mean: 1 << 30}, 1},
		"a sort comes first":                                {sharing{moving: true, sorting: true}, prefetch.MostDuringScan},
		"a sort, and other jobs read":                       {sharing{moving: true, sorting: true, mean: 16 << 10, others: 1}, 66},
		"a sort is over, but the log is not swapped yet":    {sharing{moving: true, begun: true}, 0},
		"the next epoch's log lags behind the ranks":        {sharing{moving: true, sweeping: true, moved: 0.2, read: 0.4}, prefetch.MostDuringScan},
		"the next epoch's log is ahead of the ranks":        {sharing{moving: true, sweeping: true, moved: 0.4, read: 0.2}, 0},
		"the log of the epoch that is read is written late": {sharing{moving: true, sweeping: true, moved: 0.4, read: 0.2, begun: true}, prefetch.MostDuringScan},
		"reads in order are measured":                       {sharing{moving: true, sorting: true, measuring: true}, 0},
	} {
		if got := c.sharing.depth(); got != c.depth {
			t.Errorf("%s: %d reads by place, want %d", what, got, c.depth)
		}
	}
}
