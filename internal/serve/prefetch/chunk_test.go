package prefetch

import (
	"testing"

	"lcache/chunker"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// TestNeededFirst: a sample that several chunks want is listed for the chunk that needs it first, whatever the order
// in which chunks were listed.
func TestNeededFirst(t *testing.T) {
	memory, err := staging.New(staging.Options{Samples: 1, Align: 8, Slots: 1, SlotBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	r := &Prefetcher{cache: fetch.Options{Staging: memory}, ranks: map[chunker.JobRank]*rankCursor{}, patient: -1}
	for i := range r.wakes {
		r.wakes[i] = make(chan struct{}, 1)
	}
	pf := &prefetch{size: 1000, path: sample.FromLog}
	add := func(asked, at chunker.Position) *chunk {
		c := r.ranks[at.JobRank()]
		if c == nil {
			c = &rankCursor{rank: at.JobRank(), asked: asked, work: &meters{}, done: map[chunker.Position]bool{}}
			r.ranks[c.rank] = c
		}
		k := &chunk{of: c, at: at, left: 1, prefetches: []*prefetch{pf}}
		i, _ := c.find(at)
		c.chunks = append(c.chunks[:i:i], append([]*chunk{k}, c.chunks[i:]...)...)
		pf.chunks = append(pf.chunks, k)
		pf.bringForward()
		return k
	}
	isOn := func(want *chunk) {
		t.Helper()
		if pf.on != want {
			t.Errorf("it is on the list of %v, want %v", pf.on.at, want.at)
		}
		for _, k := range pf.chunks {
			if n := len(k.todo[sample.FromLog]); n > 0 != (k == want) {
				t.Errorf("the list of %v has %d", k.at, n)
			}
		}
	}
	next := add(chunker.Position{Epoch: 3, Batch: 5}, chunker.Position{Epoch: 4})
	isOn(next)
	soon := add(chunker.Position{}, chunker.Position{Epoch: 3, Batch: 9}) // it was left to another producer
	isOn(soon)
	other := add(chunker.Position{}, chunker.Position{Job: 1, Epoch: 9, Batch: 2}) // of a job that is further ahead
	isOn(soon)
	r.Asked(chunker.Position{Job: 1, Epoch: 9, Batch: 2})
	isOn(other)
	r.Delivered(chunker.Position{Job: 1, Epoch: 9, Batch: 2}) // by index
	isOn(soon)
	r.Delivered(chunker.Position{Epoch: 3, Batch: 9})
	isOn(next)
}
