package engine

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"lcache/internal/importance/score"
	"lcache/internal/serve/deliver"
	"lcache/internal/store/ingest"
	"lcache/sample"
)

// BenchmarkRequest is one batch of 64 small samples requested by position, and released. Each epoch follows the last one; its boundary is part of the time. TestLocksOfARequest counts the locks
// that it takes.
func BenchmarkRequest(b *testing.B) {
	for _, c := range []struct{ name, importance string }{
		{"plain", ""},
		{"importance", `{"method":"shade","batch_size":64,"world_size":1,"seed":5,"cache":"4MiB"}`},
		{"substitutes", `{"method":"impact","batch_size":64,"world_size":1,"seed":5,"cache":"4MiB"}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := makeDataset(b, 20_000, func(r *rand.Rand, i int) int { return 100 + r.IntN(900) })
			j := samplerJob(1<<20, 64, 1, true)
			o, _ := ingested(b, d, ingest.Options{Job: j, Block: 1 << 20, Memory: 160 << 20})
			e := open(b, o)
			defer closeEngine(b, e)
			c, asked := attach(b, e), c.importance
			defer c.Disconnected()
			if asked != "" {
				losing{d: d, e: e}.ask(b, 0, asked)
			}
			b.ReportAllocs()
			var at deliver.Position
			for b.Loop() {
				got, err := c.ChunkAt(b.Context(), at)
				if errors.Is(err, io.EOF) {
					at.Epoch, at.Batch = at.Epoch+1, 0
					got, err = c.ChunkAt(b.Context(), at)
				}
				if err != nil {
					b.Fatal(err)
				}
				if asked != "" { // else its epochs are plain permutations
					b.StopTimer()
					e.Observe(0, observed(at, got.Indices))
					b.StartTimer()
				}
				c.Release(got.Lease)
				at.Batch++
			}
		})
	}
}

// observed is an observation of a batch.
func observed(at deliver.Position, indices []sample.Index) score.Observation {
	o := score.Observation{Kind: score.Losses, Epoch: uint32(at.Epoch), Batch: uint32(at.Batch), Index: slices.Clone(indices), Node: sample.None}
	for _, i := range o.Index {
		o.Loss = append(o.Loss, loss(i, at.Epoch))
	}
	return o
}
