package fetch_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/internal/serve/staging"
	"lcache/logfile"
	"lcache/sample"
)

// togetherBed has n samples. The first logged of them are on disk in two segments, alternately, in blocks of 64 KiB.
func togetherBed(t *testing.T, n, logged int, packed bool, o fetch.Options) *bed {
	t.Helper()
	io := fetchtest.OpenIO(t)
	sizes := make([]uint32, n)
	for i := range sizes {
		sizes[i] = uint32(1 + i*37%6000)
	}
	b := &bed{io: io, Bed: fetchtest.New(t, fetchtest.Options{Sizes: sizes, Block: 64 << 10, Packed: packed, Log: logfile.Options{IO: io}, Fetch: o,
		Staging: staging.Options{Slots: 1, SlotBytes: 4096, SideBytes: 8 << 20}})}
	t.Cleanup(func() { blockio.Inject(io, nil) })
	l := b.Begin(0, []uint64{0, uint64(n), 2 * uint64(n)}, n)
	for i := range logged {
		b.Fill(l, i%2, sample.Index(i))
	}
	if err := l.WriteTails(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// together reads samples together. It returns how often each came with the right bytes, and the rest.
func (b *bed) together(t *testing.T, indices []sample.Index) (got map[sample.Index]int, rest []int) {
	t.Helper()
	var mu sync.Mutex
	got = map[sample.Index]int{}
	rest = b.Fetcher.Together(t.Context(), indices, func(samples []fetch.Stored) (wrong []int) {
		mu.Lock()
		defer mu.Unlock()
		for _, s := range samples {
			index := indices[s.I]
			plain := make([]byte, b.Sizes[index])
			if b.Form != nil {
				if b.Form.Unpack(index, s.Data, plain) != nil {
					wrong = append(wrong, s.I)
					continue
				}
			} else {
				copy(plain, s.Data)
			}
			if !bytes.Equal(plain, b.Content(index)) {
				wrong = append(wrong, s.I)
				continue
			}
			got[index]++
		}
		return wrong
	})
	return got, rest
}

// Nearby samples are read with few reads, whatever the order of the indices. Samples without a location are in the
// rest.
func TestTogether(t *testing.T) {
	const n, logged = 900, 800
	for _, packed := range []bool{false, true} {
		b := togetherBed(t, n, logged, packed, fetch.Options{})
		var indices []sample.Index
		for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
			if i%5 != 0 { // gaps are read too
				indices = append(indices, sample.Index(i))
			}
		}
		before := b.Store.Stats()
		got, rest := b.together(t, indices)
		after := b.Store.Stats()
		for k, i := range indices {
			if want := i < logged; got[i] != 1 && want || slices.Contains(rest, k) == want {
				t.Fatalf("packed %v: take got sample %d %d times; it is in rest: %v", packed, i, got[i], slices.Contains(rest, k))
			}
		}
		if !slices.IsSorted(rest) {
			t.Error("rest is not in order")
		}
		bytes := 0
		for i := range logged {
			if bytes += int(b.Sizes[i]); packed {
				bytes += b.Form.Length(sample.Index(i)) - int(b.Sizes[i])
			}
		}
		if reads, most := after.BlockReads-before.BlockReads, uint64(2*bytes/(64<<10)+8); reads == 0 || reads > most {
			t.Errorf("packed %v: %d reads for %d bytes, want at most %d", packed, reads, bytes, most)
		}
		if b.Fetcher.Stats.Reads[sample.FromLog].Reads.Load() != 0 || len(b.Source.Reads()) != 0 {
			t.Errorf("%d samples were read one by one, %v from the source", b.Fetcher.Stats.Reads[sample.FromLog].Reads.Load(), b.Source.Reads())
		}
	}
}

// Samples with wrong bytes are in the rest, and no others.
func TestTogetherWrongBytes(t *testing.T) {
	b := togetherBed(t, 100, 100, false, fetch.Options{})
	for _, i := range []sample.Index{12, 60} {
		if b.Scramble(i) == 0 {
			t.Fatal("the sample is not on disk")
		}
	}
	indices := make([]sample.Index, 100)
	for i := range indices {
		indices[i] = sample.Index(i)
	}
	got, rest := b.together(t, indices)
	if !slices.Contains(rest, 12) || !slices.Contains(rest, 60) || len(rest)+len(got) != 100 || len(rest) > 20 {
		t.Errorf("rest %v, %d samples taken", rest, len(got))
	}
}

// Without memory nothing is read, and all samples are in the rest. The same holds if the disk does not answer; its
// late answer does no harm.
func TestTogetherFails(t *testing.T) {
	b := togetherBed(t, 400, 400, false, fetch.Options{LogTimeout: 20 * time.Millisecond})
	indices := make([]sample.Index, 400)
	for i := range indices {
		indices[i] = sample.Index(i)
	}
	x, ok := b.Fetcher.TryRoom(b.Staging.SideBytes())
	if !ok {
		t.Fatal("no room for one buffer")
	}
	before := b.Store.Stats().Reads
	if got, rest := b.together(t, indices); len(got) != 0 || len(rest) != 400 || b.Store.Stats().Reads != before {
		t.Errorf("without memory: %d samples taken, %d in rest, %d reads", len(got), len(rest), b.Store.Stats().Reads-before)
	}
	b.Staging.Drop(x)
	held := make(chan struct{})
	blockio.Inject(b.io, func(int64, *blockio.Op) blockio.Fault { return blockio.Fault{Hold: held} })
	began := time.Now()
	got, rest := b.together(t, indices)
	if len(got) != 0 || len(rest) != 400 || b.Fetcher.Stats.Timeouts.Load() == 0 {
		t.Errorf("the disk hung: %d samples taken, %d in rest", len(got), len(rest))
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	close(held)
}
