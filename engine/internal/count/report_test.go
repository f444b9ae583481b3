package count

import (
	"testing"

	"lcache/internal/serve/status"
)

// TestReportsAreBounded: invented numbers of a client take a limited memory.
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

// TestLateReport: a loop's report about an epoch that is over is added to the epoch's entry.
func TestLateReport(t *testing.T) {
	j := newJob()
	j.deliver(0, 0, 0, 1, 2)
	j.Report(Report{LoopWait: 1, Loop: 10})
	j.Close(j.Over([]Rank{{Asked: true}}, j.batches)[0], Totals{}, false)
	j.Report(Report{LoopWait: 2, Loop: 5, Decode: 3, Workers: 4, Pid: 77})
	var d status.Job
	j.Fill(&d, Totals{})
	if done := d.EpochsDone[0]; *done.LoopWaitSeconds != 3 || *done.LoopSeconds != 15 {
		t.Errorf("waited %g s of %g s, want 3 of 15", *done.LoopWaitSeconds, *done.LoopSeconds)
	}
	if *d.DecodeSeconds != 3 || d.LoopWorkers != 4 || j.LoopPid(0) != 77 || j.LoopPid(1) != 0 {
		t.Errorf("decoding %g s with %d workers, loops %d and %d; want 3, 4, 77 and none", *d.DecodeSeconds, d.LoopWorkers, j.LoopPid(0), j.LoopPid(1))
	}
}
