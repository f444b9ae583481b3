package engine

import (
	"math/rand/v2"
	"testing"

	"lcache/ingest"
)

// BenchmarkRequest is one batch of 64 small samples requested by position, and released. Each epoch follows the last one; its boundary is part of the time.
func BenchmarkRequest(b *testing.B) {
	d := makeDataset(b, 20_000, func(r *rand.Rand, _ int) int { return 100 + r.IntN(900) })
	j := samplerJob(1<<20, 64, 1, true)
	o, _ := ingested(b, d, ingest.Options{Job: j, Block: 1 << 20, Memory: 128 << 20})
	e := open(b, o)
	defer closeEngine(b, e)
	c := attach(b, e)
	defer c.Disconnected()
	b.ReportAllocs()
	batches := 20_000 / 64
	for i := 0; b.Loop(); i++ {
		got, err := c.Chunk(b.Context(), i/batches, 0, i%batches)
		if err != nil {
			b.Fatal(err)
		}
		c.Release(got.Lease)
	}
}
