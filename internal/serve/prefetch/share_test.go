package prefetch

import (
	"slices"
	"testing"
	"time"

	"lcache/chunker"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

func TestShares(t *testing.T) {
	tests := []struct {
		name     string
		memory   int64
		expected int
		paces    []float64
		want     []int64
	}{
		{"alone", 1000, 1, []float64{7}, []int64{1000}},
		{"nothing was taken yet", 1000, 1, []float64{0, 0}, []int64{500, 500}},
		{"equals", 1000, 2, []float64{3, 3}, []int64{500, 500}},
		{"one sleeps", 1000, 1, []float64{5, 0}, []int64{750, 250}},
		{"one is three times as fast", 1000, 2, []float64{3, 1}, []int64{625, 375}},
		{"the others may still come", 1000, 4, []float64{9}, []int64{250}},
		{"no rank", 1000, 2, nil, []int64{}},
	}
	for _, tt := range tests {
		if got := shares(tt.memory, tt.expected, tt.paces); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestPace(t *testing.T) {
	var p pace
	begin := time.Now()
	if got := p.lately(begin); got != 0 {
		t.Errorf("at first: %v", got)
	}
	p.take(100, begin)
	p.take(100, begin.Add(paceHalf))
	if got := p.lately(begin.Add(paceHalf)); got != 150 {
		t.Errorf("100 bytes and 100 a half-life ago: %v, want 150", got)
	}
	if got := p.lately(begin.Add(100 * paceHalf)); got > 1e-9 {
		t.Errorf("long ago: %v", got)
	}
}

// TestTakeIsFairBetweenJobs: a job of one rank has as much in flight as a job of three, whose ranks share evenly. It
// has several times as much as a patient job.
func TestTakeIsFairBetweenJobs(t *testing.T) {
	memory, err := staging.New(staging.Options{Samples: 4 * 600, Align: 8, Slots: 1, SlotBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for patient, wants := range map[int][]int64{-1: {80_000, 80_000, 80_000, 240_000}, 0: {40_000, 40_000, 40_000, 360_000}} {
		r := &Prefetcher{cache: fetch.Options{Staging: memory}, ranks: map[chunker.JobRank]*rankCursor{}, patient: patient}
		for rank := range 4 {
			c := &rankCursor{rank: chunker.JobRank{Job: rank / 3, Rank: rank}}
			k := &chunk{of: c}
			for i := range 600 {
				pf := &prefetch{index: sample.Index(rank*600 + i), size: 1000, chunks: []*chunk{k}}
				k.todo[sample.FromLog] = append(k.todo[sample.FromLog], pf)
			}
			c.chunks = []*chunk{k}
			r.ranks[c.rank] = c
		}
		const quota = 60 // samples of one chunk that are taken at once
		if got := len(r.take(sample.FromLog, 8*quota, 1<<30)); got != 8*quota {
			t.Fatalf("%d were taken, want %d", got, 8*quota)
		}
		for rank, want := range wants {
			if got := r.ranks[chunker.JobRank{Job: rank / 3, Rank: rank}].inFlight[sample.FromLog]; got < want-1000*quota || got > want+1000*quota {
				t.Errorf("job %d patient: rank %d has %d bytes in flight, want about %d", patient, rank, got, want)
			}
		}
	}
}
