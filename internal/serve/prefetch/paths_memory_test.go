package prefetch

import (
	"slices"
	"testing"

	"lcache/chunker"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// pathsBed is a rank with three chunks, which have one sample on each path. The rank requests the first chunk.
type pathsBed struct {
	*Prefetcher
	chunks []*chunk
}

func newPathsBed(t *testing.T, paths int) *pathsBed {
	t.Helper()
	memory, err := staging.New(staging.Options{Samples: 9, Align: 64, Slots: 1, SlotBytes: 4096, MissBytes: 1 << 20, SideBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(memory.Close)
	b := &pathsBed{Prefetcher: &Prefetcher{cache: fetch.Options{Staging: memory}, ranks: map[chunker.JobRank]*rankCursor{}, prefetches: map[sample.Index]*prefetch{}, patient: -1}}
	for i := range b.wakes {
		b.wakes[i] = make(chan struct{}, 1)
	}
	for from := range sample.Origin(paths) {
		b.paths = append(b.paths, path{from: from, has: func(index sample.Index) bool { return index%3 == sample.Index(from) }})
	}
	c := &rankCursor{work: &meters{}, done: map[chunker.Position]bool{}, next: chunker.Position{Batch: 3}}
	b.ranks[c.rank] = c
	for batch := range 3 {
		k := &chunk{of: c, at: chunker.Position{Batch: batch}, asked: batch == 0}
		for from := range sample.Origin(paths) {
			pf := &prefetch{index: sample.Index(3*batch) + sample.Index(from), size: 1000, path: from, chunks: []*chunk{k}}
			b.prefetches[pf.index] = pf
			k.prefetches = append(k.prefetches, pf)
			k.left++
			k.bytes += int64(fetch.SideBytes(1000))
			c.bytes += int64(fetch.SideBytes(1000))
			k.todo[from] = append(k.todo[from], pf)
			pf.on = k
		}
		c.chunks = append(c.chunks, k)
		b.chunks = append(b.chunks, k)
	}
	return b
}

// land publishes all samples in side memory.
func (b *pathsBed) land(t *testing.T) {
	t.Helper()
	for _, k := range b.chunks {
		for _, pf := range k.prefetches {
			pf.leaveList()
			x, ok := b.cache.Staging.Alloc(staging.Side, pf.index, 4096)
			if !ok {
				t.Fatal("no room")
			}
			out := make([]*staging.Extent, 1)
			b.cache.Staging.PublishPieces([]staging.Piece{{Of: x, Index: pf.index, Data: x.Buf[:1000], Takes: 1, From: pf.path}}, out)
			b.cache.Staging.Drop(x)
			pf.x, pf.state = out[0], prefetchReady
			k.left--
		}
	}
}

// TestMemoryIsSparedForAllPaths: memory goes to the samples needed first, whichever of the other paths reads them.
func TestMemoryIsSparedForAllPaths(t *testing.T) {
	for paths := 1; paths <= 3; paths++ {
		b := newPathsBed(t, paths)
		for batch, k := range b.chunks {
			for from, pf := range k.prefetches {
				want := int64(batch*(paths-1)) * int64(fetch.SideBytes(1000))
				if got := b.spared(sample.Origin(from), []*prefetch{pf}); got != want {
					t.Errorf("%d paths: %d bytes are spared for others when path %d reads samples of chunk %d, want %d", paths, got, from, batch, want)
				}
			}
		}
		taken := b.take(0, 1, 1) // samples that a path has taken count too, even if their reads have not begun
		if got, want := b.spared(sample.Origin(paths-1), b.chunks[1].prefetches[paths-1:]), int64(paths-1)*int64(fetch.SideBytes(1000)); len(taken) != 1 || got != want {
			t.Errorf("%d paths: %d bytes are spared for %d samples that were taken and others, want %d", paths, got, len(taken), want)
		}
		b.take(0, 1, 1) // and so do those of earlier bursts, which wait for their peers
		if got, want := b.spared(sample.Origin(paths-1), b.chunks[2].prefetches[paths-1:]), int64(2*(paths-1))*int64(fetch.SideBytes(1000)); got != want {
			t.Errorf("%d paths: %d bytes are spared for samples that were taken in two bursts and others, want %d", paths, got, want)
		}
	}
}

// TestFirstPathYieldsFirst: if a chunk that a rank waits for has no room, later chunks lose the samples of the
// first path, then of the next path. Samples of the last path leave only with their chunk. A request that needs
// side memory takes it from the first path before it takes it from the next one.
func TestFirstPathYieldsFirst(t *testing.T) {
	for paths := 1; paths <= 3; paths++ {
		for _, how := range []string{"urgent", "request"} {
			b := newPathsBed(t, paths)
			b.land(t)
			var gone []sample.Index
			for range 20 {
				was := gone
				if how == "urgent" && !b.evictOne() || how == "request" && !b.YieldAny() {
					break
				}
				for index := range sample.Index(9) {
					if pf := b.prefetches[index]; (pf == nil || pf.x == nil) && !slices.Contains(gone, index) && int(index%3) < paths {
						gone = append(gone, index)
					}
				}
				if len(gone) == len(was) {
					t.Fatalf("%d paths, %s: only %v were evicted, want more", paths, how, gone)
				}
			}
			var want []sample.Index
			for from := range sample.Index(paths) {
				want = append(want, 6+from, 3+from) // the last chunk's first, and never the first chunk's
			}
			if !slices.Equal(gone, want) {
				t.Errorf("%d paths, %s: samples were evicted in the order %v, want %v", paths, how, gone, want)
			}
		}
	}
}

// TestEveryPathIsWoken: when a path leaves memory unused, or stops waiting for it, all other paths look for memory.
func TestEveryPathIsWoken(t *testing.T) {
	for paths := 1; paths <= 3; paths++ {
		b := newPathsBed(t, paths)
		b.ctx, b.cancel = t.Context(), func() {}
		pf := b.chunks[0].prefetches[0]
		if x, _ := b.wait(pf.path, fetch.SideBytes(pf.size), []*prefetch{pf}, func() bool { return true }, func() {}); x == nil {
			t.Fatalf("%d paths: no memory", paths)
		}
		for from := range sample.Origins {
			if got, want := len(b.wakes[from]) == 1, from > 0 && int(from) < paths; got != want {
				t.Errorf("%d paths: path %d was woken: %v, want %v", paths, from, got, want)
			}
		}
	}
}
