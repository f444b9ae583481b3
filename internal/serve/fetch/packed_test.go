package fetch_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/internal/serve/staging"
	"lcache/internal/testenv"
	"lcache/logfile"
	"lcache/sample"
)

// newPackedBed has samples of these sizes in slot 0 of a compressed log. Samples 0, 3, 6 … are stored as they are.
func newPackedBed(t *testing.T, sizes []uint32, o fetch.Options) *bed {
	t.Helper()
	io := fetchtest.OpenIO(t)
	b := &bed{io: io, Bed: fetchtest.New(t, fetchtest.Options{Sizes: sizes, Packed: true, Log: logfile.Options{IO: io}, Fetch: o,
		Staging: staging.Options{Slots: 1, SlotBytes: 4096, SideBytes: 8 << 20}})}
	t.Cleanup(func() { blockio.Inject(io, nil) })
	l := b.Begin(0, []uint64{0, uint64(len(sizes)) + 1}, 2000)
	for i := range sizes {
		b.Fill(l, 0, sample.Index(i))
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// Many concurrent requests share memory for one of the largest samples. Each gets its turn and its own bytes.
func TestPackedMany(t *testing.T) {
	testenv.Long(t)
	r := rand.New(rand.NewPCG(1, 1))
	sizes := make([]uint32, 200)
	for i := range sizes {
		sizes[i] = 1 + r.Uint32N(20_000)
	}
	sizes[1], sizes[3] = 1_200_000, 1_200_000
	b := newPackedBed(t, sizes, fetch.Options{PackedBytes: 600_000})
	var wg sync.WaitGroup
	for range 4 {
		order := r.Perm(len(sizes))[:60]
		wg.Go(func() {
			for _, i := range order {
				for k, fromSource := range b.get(t, sample.Index(i), 1, 3, sample.Index(i)) {
					if fromSource {
						t.Errorf("sample %d, number %d of the request, came from the source", i, k)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := b.Fetcher.Stats.CorruptSamples.Load(); n != 0 {
		t.Errorf("%d samples count as corrupt", n)
	}
}

func TestPackedScrambled(t *testing.T) {
	sizes := []uint32{5000, 5000, 5000, 5000}
	b := newPackedBed(t, sizes, fetch.Options{})
	// Lower than the last block, which is still in memory.
	if b.Scramble(0) != 1 {
		t.Fatal("the sample is not on disk")
	}
	if from := b.get(t, 0, 1, 2, 3); !from[0] || from[3] {
		t.Errorf("from the source: %v", from)
	}
	if n := b.Fetcher.Stats.CorruptSamples.Load(); n != 1 || b.Locations.Get(0) != 0 {
		t.Errorf("%d corrupt, want 1, and its place forgotten", n)
	}
}

// If the log hangs, the next supplier is asked. A late answer goes to a separate buffer, so side memory is free at
// once. Without a buffer for decompression, the sample comes from the source, and its location stays valid.
func TestPackedLogHangs(t *testing.T) {
	sizes := []uint32{9000, 9000, 9000, 9000, 9000, 9000}
	b := newPackedBed(t, sizes, fetch.Options{LogTimeout: soon, PackedBytes: 1}) // room for one read at a time
	release := fetchtest.HoldReads(t, b.io, func(int64) bool { return true })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	extents, got, err := b.Fetcher.FetchAll(ctx, []sample.Index{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	for k, i := range []sample.Index{1, 2} {
		if b.Is(i, got[k].Data); got[k].From != sample.FromSource {
			t.Errorf("sample %d does not come from the source", i)
		}
	}
	for _, x := range extents {
		b.Staging.Drop(x)
	}
	if n := b.Fetcher.Stats.Timeouts.Load(); n != 1 {
		t.Errorf("%d reads were begun: the memory of the first is not free before its answer is in", n)
	}
	if used := b.Staging.SideUsed(); used != 0 {
		t.Errorf("%d bytes of side memory are held for a late answer that does not go there", used)
	}
	if n := b.Fetcher.Stats.CorruptSamples.Load(); n != 0 || b.Locations.Get(1) == 0 || b.Locations.Get(2) == 0 {
		t.Errorf("%d samples count as corrupt, want none: the disk was only late", n)
	}
	release()
}
