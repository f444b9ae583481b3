package count

import (
	"testing"

	"lcache/internal/serve/status"
)

// TestReportsAreBounded: numbers that a client makes up take no memory without end.
func TestReportsAreBounded(t *testing.T) {
	var s reports
	for n := range mostRanks + 10 {
		s.add(Report{Epoch: n, Rank: n, LoopWait: 1})
	}
	if len(s.ranks) != mostRanks || len(s.epochs) > 2*keepClosed {
		t.Errorf("%d ranks and %d epochs are kept", len(s.ranks), len(s.epochs))
	}
	latest := status.Epoch{Epoch: mostRanks - 1}
	if s.fillEpoch(&latest); latest.LoopWaitSeconds == nil || *latest.LoopWaitSeconds != 1 {
		t.Errorf("the latest epoch is not among them: %+v", latest)
	}
}
