package session

import (
	"testing"
	"time"
)

// TestLookTime: a boundary waits as long as ranks need for a re-evaluation, but no request times out meanwhile.
func TestLookTime(t *testing.T) {
	for _, c := range []struct{ late, took, request, want time.Duration }{
		{10, 0, 600, 60}, {10, 40, 600, 80}, {10, 40, 60, 50}, {10, 0, 60, 50}, {10, 0, 6, 10},
	} {
		if got := lookTime(c.late, c.took, c.request); got != c.want {
			t.Errorf("LateEpoch %d, a look of %d, requests of %d: %d, want %d", c.late, c.took, c.request, got, c.want)
		}
	}
}
