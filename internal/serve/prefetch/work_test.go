package prefetch_test

import (
	"testing"

	"lcache/chunker"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/prefetch"
	"lcache/sample"
)

// A read counts for the job that it is made for. The count is dropped with the job's last rank.
func TestReaderCountsForEachJob(t *testing.T) {
	const n, first = 400, 300
	order := shuffled(n, 5, 1)
	b := newReaderBed(t, n, n, 8<<20, fetch.Options{}, map[int][][]sample.Index{1: order[:first/5], 2: order[first/5:]})
	b.jobs = true
	for rank, batches := range b.orders {
		for batch := range batches {
			b.ask(rank, batch)
		}
	}
	for job, want := range map[int]int64{1: first * 3000, 2: (n - first) * 3000, 3: 0, prefetch.AllJobs: n * 3000} {
		if place, source := b.r.Work(job); place.Bytes != want || place.Busy > 0 != (want > 0) || source != (prefetch.Work{}) {
			t.Errorf("job %d: %+v with random reads and %+v from the source, want %d bytes with random reads", job, place, source, want)
		}
	}
	b.r.Forget(b.rank(1))
	if place, _ := b.r.Work(1); place != (prefetch.Work{}) {
		t.Errorf("an ended job still has work %+v", place)
	}
	if place, _ := b.r.Work(prefetch.AllJobs); place.Bytes != n*3000 {
		t.Errorf("%d bytes in all after a job has ended, want %d", place.Bytes, n*3000)
	}
}

// A rank advances as long as samples arrive for it.
func TestReaderAdvances(t *testing.T) {
	const n = 40
	b := newReaderBed(t, n, n, 8<<20, fetch.Options{}, map[int][][]sample.Index{0: shuffled(n, 5, 1)})
	if b.r.Advances(chunker.JobRank{}) {
		t.Error("a rank that has requested nothing advances")
	}
	b.ask(0, 0)
	b.until(func() bool { return b.r.Ready(chunker.JobRank{}) == n/5-1 })
	if !b.r.Advances(chunker.JobRank{}) {
		t.Error("a rank that got a batch did not advance")
	}
	if b.r.Advances(chunker.JobRank{}) {
		t.Error("a rank without new samples advances")
	}
}
