package engine

import (
	"math/rand/v2"
	"sync"
	"testing"

	"lcache/internal/store/ingest"
)

// TestRanksEndTogether: each rank has one batch of the epoch, so that it is closed by several ranks at once and opened again by late ones.
// The race detector looks on; in the end all samples are counted.
func TestRanksEndTogether(t *testing.T) {
	const ranks = 64
	d := makeDataset(t, 64, func(r *rand.Rand, _ int) int { return r.IntN(2000) })
	o, _ := ingested(t, d, ingest.Options{Job: samplerJob(1, 1, ranks, false), Block: 128 << 10, Memory: 24 << 20})
	e := open(t, o)
	defer closeEngine(t, e)
	var wg sync.WaitGroup
	for rank := range ranks {
		c := attach(t, e)
		wg.Go(func() {
			if _, err := d.readRank(e, c, 0, rank, 0); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if s := e.Status().Jobs[0]; s.SamplesDelivered != ranks {
		t.Errorf("%d samples were delivered, want %d", s.SamplesDelivered, ranks)
	}
}
