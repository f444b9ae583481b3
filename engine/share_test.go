package engine

import (
	"testing"

	"lcache/fetch"
)

// TestDepth tells how the pass and the prefetcher share the device.
func TestDepth(t *testing.T) {
	for what, c := range map[string]struct {
		sharing
		depth int
	}{
		"nothing is moved": {sharing{}, 0},
		"the window serves, and late ranks read by place":     {sharing{inWindow: true, moving: true}, fetch.BesideTheWindow},
		"a job like the owner reads beside the window":        {sharing{inWindow: true, moving: true, others: 1}, fetch.BesideTheWindow},
		"a job that reads more than the owner, until it owns": {sharing{inWindow: true, others: 3}, fetch.BesideTheWindow},
		"a validation pass beside the window":                 {sharing{inWindow: true, moving: true, others: 0.01}, fetch.LeastBesideTheWindow},
		"a sort comes first":                                  {sharing{moving: true, sorting: true}, fetch.BesideThePass},
		"a sort, and a job that reads beside it":              {sharing{moving: true, sorting: true, others: 1}, 2 * fetch.BesideThePass},
		"a sort is over, but the log is not swapped yet":      {sharing{moving: true, begun: true}, 0},
		"the next epoch's log lags behind the ranks":          {sharing{moving: true, sweeping: true, moved: 0.2, read: 0.4}, fetch.BesideThePass},
		"the next epoch's log is ahead of the ranks":          {sharing{moving: true, sweeping: true, moved: 0.4, read: 0.2}, 0},
		"the log of the epoch that is read is written late":   {sharing{moving: true, sweeping: true, moved: 0.4, read: 0.2, begun: true}, fetch.BesideThePass},
		"reads in order are measured":                         {sharing{moving: true, sorting: true, measuring: true}, 0},
	} {
		if got := c.sharing.depth(); got != c.depth {
			t.Errorf("%s: %d reads by place, want %d", what, got, c.depth)
		}
	}
}
