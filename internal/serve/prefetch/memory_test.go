package prefetch

import (
	"slices"
	"testing"

	"lcache/chunker"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// TestYield: when a rank requests a chunk with reads that have not begun, samples that are needed later return to
// their list, and the next burst is for that chunk. Samples of requested chunks do not yield.
func TestYield(t *testing.T) {
	memory, err := staging.New(staging.Options{Samples: 6, Align: 8, Slots: 1, SlotBytes: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	r := &Prefetcher{cache: fetch.Options{Staging: memory}, ranks: map[chunker.JobRank]*rankCursor{}, patient: -1}
	chunks := map[int]*chunk{}
	for rank, asked := range []int{0, 1} { // each rank has listed its second chunk; only the second rank requests it
		c := &rankCursor{rank: chunker.JobRank{Job: rank}, asked: chunker.Position{Batch: asked}, work: &meters{}}
		k := &chunk{of: c, at: c.rank.At(0, 1)}
		for i := range 3 {
			pf := &prefetch{index: sample.Index(rank*3 + i), size: 1000, chunks: []*chunk{k}}
			k.todo[sample.FromLog] = append(k.todo[sample.FromLog], pf)
		}
		c.chunks, chunks[rank], r.ranks[c.rank] = []*chunk{k}, k, c
	}
	ofRank := func(burst []*prefetch) (n [2]int) {
		for _, pf := range burst {
			n[pf.index/3]++
		}
		return n
	}
	burst := r.take(sample.FromLog, 4, 1<<20)
	if got := ofRank(burst); got != [2]int{2, 2} {
		t.Fatalf("%v samples of the two ranks were taken, want two each", got)
	}
	for _, pf := range burst {
		if gave, want := r.yieldToUrgent(sample.FromLog, []*prefetch{pf}), pf.index < 3; gave != want {
			t.Errorf("sample %d was evicted: %v, want %v", pf.index, gave, want)
		}
	}
	if got := len(chunks[0].todo[sample.FromLog]); got != 3 {
		t.Errorf("%d of the first rank's samples are listed, want all", got)
	}
	if got := r.ranks[chunker.JobRank{}].inFlight[sample.FromLog]; got != 0 {
		t.Errorf("%d bytes of evicted samples still count as in flight", got)
	}
	if got := ofRank(r.take(sample.FromLog, 4, 1<<20)); got != [2]int{0, 1} {
		t.Errorf("then %v were taken, want the one that the second rank still waits for", got)
	}
	if got := ofRank(r.take(sample.FromLog, 4, 1<<20)); got != [2]int{3, 0} {
		t.Errorf("then %v were taken, want the others", got)
	}
}

// TestSplit: a read of neighbours becomes one read for each sample that a chunk wants, in the same order.
func TestSplit(t *testing.T) {
	along := &dropped{}
	p := &randomRead{parts: []part{{off: 10, n: 5, need: 7, pf: &prefetch{}}, {off: 15, n: 6, need: 3, pf: &prefetch{}}, {off: 21, n: 6, need: 3, pf: &prefetch{index: 9, memory: along, opportunistic: true}}}, need: 3}
	reads := p.split()
	if len(reads) != 2 || reads[0].first().off != 10 || reads[0].end() != 15 || reads[0].need != 7 || reads[1].first().off != 15 || reads[1].end() != 21 || reads[1].need != 3 {
		t.Errorf("%+v", reads)
	}
	if !slices.Equal(along.indices, []sample.Index{9}) {
		t.Errorf("of samples that are read along %v were dropped, want 9: no chunk wants it", along.indices)
	}
}

// dropped notes samples that are not read opportunistically.
type dropped struct {
	OpportunisticMemory
	indices []sample.Index
}

func (d *dropped) Drop(index sample.Index) { d.indices = append(d.indices, index) }
