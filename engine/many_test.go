package engine

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"

	"lcache/internal/store/ingest"
	"lcache/internal/testenv"
)

// TestManySmallFiles limits an ingest's allocations for each sample, and checks that the defaults are enough. Both once failed with a million files.
func TestManySmallFiles(t *testing.T) {
	testenv.Long(t)
	n := testenv.Pick(20_000, 5_000)
	d := makeDataset(t, n, func(r *rand.Rand, _ int) int { return 20 + r.IntN(200) })
	j := samplerJob(2, 256, 1, false)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o, rep := ingested(t, d, ingest.Options{Job: j})
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / uint64(n); each > 4096 {
		t.Errorf("an ingest takes %d bytes of the heap for each sample", each)
	}
	if rep.ReadBytes != d.total || rep.StoredBytes != d.total || rep.MemoryBytes > 128<<20 {
		t.Errorf("read %d and stored %d of %d bytes, with %d bytes of memory", rep.ReadBytes, rep.StoredBytes, d.total, rep.MemoryBytes)
	}
	e := open(t, o)
	defer closeEngine(t, e)
	c := attach(t, e)
	defer c.Disconnected()
	seen := 0
	for batch := range (n + 255) / 256 {
		b, err := c.Chunk(context.Background(), 0, 0, batch)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.check(e, b); err != nil {
			t.Fatal(err)
		}
		seen += len(b.Indices)
		c.Release(b.Lease)
	}
	if seen != n {
		t.Errorf("%d samples in an epoch of %d", seen, n)
	}
	noSource(t, e)
}
