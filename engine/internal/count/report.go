package count

import (
	"lcache/internal/serve/schedule"
	"lcache/internal/serve/status"
)

// A Report has a training process's measurements of its own time, which the server can't measure. Durations are in seconds since that process's last
// report.
type Report struct {
	Epoch, Rank int     // of the loop; Epoch is negative in the report of a worker, which has only Decode
	LoopWait    float64 // the loop was blocked in next: the GPU waited
	Loop        float64 // duration of the loop, waits included
	Decode      float64 // this process decoded samples
	Workers     int     // processes that decode for this loop; 0: the loop itself does
	Pid         int     // of that process
	Job         int     // the job's number
	First, Had  int     // batches First to First+Had-1 of the epoch were requested by index, before the loop reported their positions
}

// mostRanks bounds the number of ranks that are tracked, because clients choose their numbers.
const mostRanks = schedule.MostRanks

// reports sums up the reports. The ranks' loops run at the same time, so the longest rank counts; decoding is work, and adds up.
type reports struct {
	ranks  map[int]*loop
	epochs map[int]map[int]loopTotals // by epoch that is open or was closed recently, then by rank
	decode float64
	some   bool // a process has reported decoding
}

// loop describes the training loop of a rank.
type loop struct {
	pid        int
	wait, loop float64
	workers    int
}

// loopTotals are the reported times of all ranks together; zero if nothing was reported.
type loopTotals struct {
	wait, loop, decode float64
	workers            int
}

// Report adds a training process's report.
func (c *Job) Report(r Report) {
	if r.Decode > 0 {
		c.reports.decode += r.Decode
		c.reports.some = true
	}
	if r.Epoch < 0 {
		return
	}
	c.reports.add(r)
	// The epoch may be closed already, because the loop continues after the server has delivered the last batch.
	if d := c.listed(r.Epoch); d != nil {
		c.reports.fillEpoch(d)
	}
}

// LoopPid returns the process whose training loop reported for a rank; 0: unknown.
func (c *Job) LoopPid(rank int) int {
	if l := c.reports.ranks[rank]; l != nil {
		return l.pid
	}
	return 0
}

func (s *reports) add(r Report) {
	if s.ranks == nil {
		s.ranks, s.epochs = map[int]*loop{}, map[int]map[int]loopTotals{}
	}
	l := s.ranks[r.Rank]
	if l == nil {
		if len(s.ranks) >= mostRanks {
			return
		}
		l = &loop{}
		s.ranks[r.Rank] = l
	}
	l.wait += r.LoopWait
	l.loop += r.Loop
	l.workers, l.pid = r.Workers, r.Pid
	epoch := s.epochs[r.Epoch]
	if epoch == nil {
		for len(s.epochs) >= 2*keepClosed { // a loop is at most a few epochs behind another one
			delete(s.epochs, furthest(s.epochs, r.Epoch))
		}
		epoch = map[int]loopTotals{}
		s.epochs[r.Epoch] = epoch
	}
	epoch[r.Rank] = loopTotals{wait: epoch[r.Rank].wait + r.LoopWait, loop: epoch[r.Rank].loop + r.Loop}
}

// fillEpoch adds the reported times to an epoch's entry.
func (s *reports) fillEpoch(d *status.Epoch) {
	ranks := s.epochs[d.Epoch]
	if ranks == nil {
		return
	}
	var most loopTotals
	for _, t := range ranks {
		most.wait, most.loop = max(most.wait, t.wait), max(most.loop, t.loop)
	}
	d.LoopWaitSeconds, d.LoopSeconds = &most.wait, &most.loop
}

func (s *reports) totals() (t loopTotals) {
	for _, l := range s.ranks {
		t.wait, t.loop = max(t.wait, l.wait), max(t.loop, l.loop)
		t.workers += l.workers
	}
	t.decode = s.decode
	return t
}

// fill adds the reported times to the entries of a job and its ranks.
func (s *reports) fill(j *status.Job) {
	t := s.totals()
	if len(s.ranks) > 0 {
		j.LoopWaitSeconds, j.LoopSeconds, j.LoopWorkers = &t.wait, &t.loop, t.workers
	}
	if s.some {
		j.DecodeSeconds = &t.decode
	}
	for i := range j.Ranks {
		if l := s.ranks[j.Ranks[i].Rank]; l != nil {
			wait := l.wait
			j.Ranks[i].LoopWaitSeconds = &wait
		}
	}
}
