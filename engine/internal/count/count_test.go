package count

import (
	"slices"
	"testing"
	"time"

	"lcache/internal/serve/status"
	"lcache/sample"
)

// job is a Job with a clock of its own. Each rank has three batches in an epoch.
type job struct {
	*Job
	now time.Time
}

func newJob() *job {
	j := &job{now: time.Unix(1000, 0)}
	j.Job = New(func() time.Time { return j.now }, Totals{At: j.now})
	return j
}

func (j *job) batches(int, int) int { return 3 }

// deliver delivers batches of an epoch to a rank.
func (j *job) deliver(epoch, rank int, batches ...int) *Epoch {
	j.now = j.now.Add(time.Second)
	ep, _ := j.Epoch(epoch, rank)
	for _, b := range batches {
		ep.Deliver(rank, b, 3)
	}
	return ep
}

// over returns the numbers of the epochs that are over.
func (j *job) over(ranks ...Rank) (numbers []int) {
	for _, end := range j.Over(ranks, j.batches) {
		numbers = append(numbers, end.Number)
	}
	return numbers
}

// TestOver: an epoch is over when each rank that is expected in it has received its batches.
func TestOver(t *testing.T) {
	asked := func(rank, epoch int) Rank { return Rank{Rank: rank, Asked: true, Epoch: epoch} }
	for name, c := range map[string]struct {
		first, second []int // batches of epoch 1 that ranks 0 and 1 received
		ranks         []Rank
		over          bool
	}{
		"nothing was delivered":              {nil, nil, []Rank{asked(0, 2)}, false},
		"all batches":                        {[]int{2, 0, 1}, nil, []Rank{asked(0, 1)}, true},
		"a batch is missing":                 {[]int{0, 2}, nil, []Rank{asked(0, 1)}, false},
		"the first were never requested":     {[]int{1, 2}, nil, []Rank{asked(0, 1)}, true},
		"a batch came twice":                 {[]int{0, 2, 2}, nil, []Rank{asked(0, 1)}, false},
		"left for the next epoch":            {[]int{0}, nil, []Rank{asked(0, 2)}, true},
		"another rank has a batch to come":   {[]int{0, 1, 2}, []int{0}, []Rank{asked(0, 1), asked(1, 1)}, false},
		"another rank has left":              {[]int{0, 1, 2}, []int{0}, []Rank{asked(0, 1), asked(1, 2)}, true},
		"another rank is an epoch behind":    {[]int{0, 1, 2}, nil, []Rank{asked(0, 1), asked(1, 0)}, false},
		"another rank is late":               {[]int{0, 1, 2}, nil, []Rank{asked(0, 1), {Rank: 1, Asked: true, Late: true}}, true},
		"another rank is late in this epoch": {[]int{0, 1, 2}, []int{0}, []Rank{asked(0, 1), {Rank: 1, Asked: true, Epoch: 1, Late: true}}, false},
		"another rank never requested any":   {[]int{0, 1, 2}, nil, []Rank{asked(0, 1), {Rank: 1}}, true},
		"the rank has gone":                  {[]int{0}, nil, nil, true},
	} {
		j := newJob()
		j.Epoch(1, 0)
		if c.first != nil {
			j.deliver(1, 0, c.first...)
		}
		if c.second != nil {
			j.deliver(1, 1, c.second...)
		}
		if over := len(j.over(c.ranks...)) == 1; over != c.over {
			t.Errorf("%s: over %v, want %v", name, over, c.over)
		}
	}
}

// TestGoneBack: a rank that begins an earlier epoch again has left the later one. A late request of another worker for an earlier epoch that is still open does not count as such a beginning.
func TestGoneBack(t *testing.T) {
	back, worker := newJob(), newJob()
	back.deliver(5, 0, 0)
	back.deliver(0, 0, 0)
	worker.deliver(4, 0, 0)
	worker.deliver(5, 0, 0)
	if got := back.over(Rank{Asked: true, Epoch: 0}); !slices.Equal(got, []int{5}) {
		t.Errorf("the rank has gone back to epoch 0: %v are over, want 5", got)
	}
	if got := worker.over(Rank{Asked: true, Epoch: 4}); got != nil {
		t.Errorf("a late request for epoch 4: %v are over, want none", got)
	}
}

// TestLateRank: a rank that was not in an epoch when it was over opens it again, and its part is added to the epoch's entry. The entry has the digests of the last end.
func TestLateRank(t *testing.T) {
	j := newJob()
	j.deliver(0, 0, 0, 1, 2).Hits = 3
	first := j.Over([]Rank{{Asked: true}}, j.batches)
	j.Close(first[0], Totals{At: j.now, Source: 10}, true)
	j.deliver(0, 1, 0, 1, 2).Hits += 4
	second := j.Over([]Rank{{Asked: true}, {Rank: 1, Asked: true}}, j.batches)
	j.Close(second[0], Totals{At: j.now, Source: 15}, true)
	one, two := "of rank 0", "of both"
	j.SetDigests(second[0], &two, &two)
	j.SetDigests(first[0], &one, &one)
	var d status.Job
	j.Fill(&d, Totals{At: j.now})
	if len(d.EpochsDone) != 1 || d.EpochsDone[0].Hits != 7 || d.EpochsDone[0].SourceBytes != 15 || d.EpochsDone[0].OrderDigest != &two {
		t.Errorf("%+v, want one epoch with 7 hits, 15 bytes and the digest of both ranks", d.EpochsDone)
	}
	if len(first[0].Received) != 1 || len(second[0].Received) != 2 {
		t.Errorf("ended with %v and %v, want 1 and 2 ranks", first[0].Received, second[0].Received)
	}
	if ep := j.deliver(0, 0); ep.Hits != 0 {
		t.Errorf("rank 0 reads epoch 0 again, and begins with %d hits", ep.Hits)
	}
}

// TestEndedStays: deliveries in an epoch that was over do not change when the epoch is open again.
func TestEndedStays(t *testing.T) {
	j := newJob()
	j.deliver(0, 0, 0)
	left := j.Over([]Rank{{Asked: true, Epoch: 1}}, j.batches)[0]
	j.Close(left, Totals{}, false)
	j.deliver(0, 1, 0)
	j.deliver(0, 0, 1)
	if got := left.Received[0]; !slices.Equal(got, []uint64{1}) {
		t.Errorf("rank 0 had received %b, want batch 0", got)
	}
}

// TestEpochsAreBounded: epochs that clients invent take a limited memory. The epoch whose last request is the oldest makes room.
func TestEpochsAreBounded(t *testing.T) {
	j := newJob()
	for epoch := range keepDone + 2*mostOpen {
		ep, over := j.Epoch(epoch, 0)
		if ep.Deliver(0, 3, 3); !ep.Diverged {
			t.Fatal("a batch that the rank does not have does not count as a divergence")
		}
		want := []int(nil)
		if epoch >= mostOpen {
			want = []int{epoch - mostOpen}
		}
		var got []int
		for _, end := range over {
			got = append(got, end.Number)
			j.Close(end, Totals{}, false)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("epoch %d closes %v, want %v", epoch, got, want)
		}
	}
	if len(j.open) != mostOpen || len(j.closed) > 2*keepClosed || len(j.done) != keepDone {
		t.Errorf("%d open, %d closed and %d done epochs are kept", len(j.open), len(j.closed), len(j.done))
	}
}

// TestDivergence: divergences are counted, and the first one is kept with the position of the first other sample.
func TestDivergence(t *testing.T) {
	j := newJob()
	if j.IsUsed() {
		t.Error("used before any request")
	}
	j.Diverge(status.Divergence{Epoch: 1, Batch: 2}, []sample.Index{1, 2, 3}, []sample.Index{1, 2, 4})
	j.Diverge(status.Divergence{Epoch: 7}, nil, []sample.Index{1})
	var d status.Job
	if j.Fill(&d, Totals{}); d.Divergences != 2 || *d.FirstDivergence != (status.Divergence{Epoch: 1, Batch: 2, Position: 2}) || !j.IsUsed() {
		t.Errorf("%d divergences, the first %+v", d.Divergences, d.FirstDivergence)
	}
}
