package prefetch_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/chunker"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/prefetch"
	"lcache/sample"
)

// TestAnyNumberOfPaths: with one, two and three paths, and with little memory, every chunk of two ranks arrives, and
// each sample comes through the first path that has it. Few are read more than once.
func TestAnyNumberOfPaths(t *testing.T) {
	const n, logged, between = 300, 100, 200 // samples below logged are in the log, those below between on the path in between
	for _, paths := range []int{1, 2, 3} {
		for _, ring := range []int{96 << 10, 256 << 10, 8 << 20} {
			t.Run(fmt.Sprintf("%d/%d", paths, ring), func(t *testing.T) {
				order := shuffled(n, 7, 3)
				num := len(order) / 2
				b := newReaderBed(t, n, logged, ring, fetch.Options{Jobs: 3}, map[int][][]sample.Index{0: order[:num], 1: order[num:]})
				b.r.Stop()
				var copied atomic.Int64
				b.r = prefetch.NewOf(paths, b.Fetcher, prefetch.Options{Chunk: b.chunk, Ranks: 2}, func(index sample.Index) bool { return index < between }, func(index sample.Index, dst []byte) {
					copied.Add(1)
					copy(dst, b.Content(index))
				})
				t.Cleanup(b.r.Stop)
				want := func(index sample.Index) sample.Origin {
					switch {
					case paths > 1 && index < logged:
						return sample.FromLog
					case paths > 2 && index < between:
						return sample.FromMemory
					}
					return sample.FromSource
				}
				counts := map[sample.Origin]int64{}
				for batch := range order[num:] {
					for rank, batches := range b.orders {
						if batch >= len(batches) {
							continue
						}
						for k, from := range b.originsAt(b.rank(rank).At(0, batch)) {
							if index := batches[batch][k]; from != want(index) {
								t.Errorf("sample %d came from origin %d, want %d", index, from, want(index))
							}
							counts[want(batches[batch][k])]++
						}
					}
				}
				most := func(samples int64) int64 { return 2 * samples } // a read that has yielded is repeated once
				if got := b.Fetcher.Stats.Reads[sample.FromSource].Reads.Load(); got > most(counts[sample.FromSource]) || ring == 8<<20 && got != counts[sample.FromSource] {
					t.Errorf("%d reads from the source for %d samples", got, counts[sample.FromSource])
				}
				if got := copied.Load(); got > most(counts[sample.FromMemory]) || ring == 8<<20 && got != counts[sample.FromMemory] {
					t.Errorf("%d samples came by the middle path, want %d", got, counts[sample.FromMemory])
				}
			})
		}
	}
}

// TestEvictedLastChunkComes: the last chunk of a rank's order, which gave way to another rank, is read again when its turn comes.
func TestEvictedLastChunkComes(t *testing.T) {
	const n, ring = 26, 256 << 10 // all samples of rank 0 fit the ring, and not half of it
	order := shuffled(n-2, 2, 1)
	b := newReaderBed(t, n, n, ring, fetch.Options{}, map[int][][]sample.Index{0: order, 1: {{n - 2, n - 1}}})
	b.r.Stop()
	end := make(chan struct{})
	ends := sync.OnceFunc(func() { close(end) })
	b.r = prefetch.New(b.Fetcher, prefetch.Options{Chunk: func(at chunker.Position) (prefetch.Upcoming, bool) {
		c, ok := b.chunk(at)
		if !ok && at.Rank == 0 {
			ends()
		}
		return c, ok
	}})
	t.Cleanup(b.r.Stop)
	b.r.Asked(b.rank(0).At(0, 0))
	select {
	case <-end: // the last chunk is listed, and there is none after it
	case <-time.After(20 * time.Second):
		t.Fatal("the order is not listed to its end")
	}
	b.waitFor("all samples of the rank are there", func() bool {
		return !slices.ContainsFunc(slices.Concat(order...), func(index sample.Index) bool { return !b.Staging.Present(index) })
	})
	b.ask(1, 0)
	if last := order[len(order)-1]; b.Staging.Present(last[0]) {
		t.Fatal("the last chunk was not evicted, so the test shows nothing")
	}
	for batch := range order {
		b.ask(0, batch)
	}
}
