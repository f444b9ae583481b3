package engine

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"lcache/internal/store/ingest"
)

// TestGoneBack: a job continues in the middle of an epoch, and slots fill with later segments. When it then begins the epoch from its start, the scan makes room for the first segments.
func TestGoneBack(t *testing.T) {
	d := makeDataset(t, 1600, func(r *rand.Rand, _ int) int { return 1 + r.IntN(30_000) })
	j := samplerJob(4, 16, 1, true)
	o, _ := ingested(t, d, ingest.Options{Job: j, Block: 128 << 10})
	o.Patience, o.Timeout = 20*time.Second, time.Minute
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	read := func(batch int) {
		t.Helper()
		began := time.Now()
		b, err := c.Chunk(context.Background(), 0, 0, batch)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.check(e, b); err != nil {
			t.Error(err)
		}
		c.Release(b.Lease)
		if took := time.Since(began); took > 10*time.Second {
			t.Fatalf("batch %d was waited for for %v", batch, took)
		}
	}
	batches := e.cache.Schedule.Batches(0, 0)
	read(batches / 4)
	if segments := e.Status().Totals.Segments; segments <= e.cache.Sizing.Slots {
		t.Fatalf("%d slots are enough for %d segments: nothing is tested", e.cache.Sizing.Slots, segments)
	}
	logsBecome(t, e, "slots are full", func(l logfiles) bool { return l.loaded >= e.cache.Sizing.Slots-1 })
	for batch := range batches {
		read(batch)
	}
	if s := e.Status().Jobs[0]; s.SourceReads > 0 {
		t.Errorf("%d reads from the source", s.SourceReads)
	}
}
