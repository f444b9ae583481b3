package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"lcache/chunker"
	"lcache/internal/store/cache"
	"lcache/internal/store/ingest"
	"lcache/sample"
	"lcache/source"
)

// readsOf counts how often each sample is read from the source.
type readsOf struct {
	source.Source
	mu    sync.Mutex // guards names
	names map[string]int
}

func (s *readsOf) Read(ctx context.Context, e sample.Entry, dst []byte) error {
	s.mu.Lock()
	s.names[e.Name]++
	s.mu.Unlock()
	return s.Source.Read(ctx, e, dst)
}

// TestPlacementIsFollowed: a third of the samples must not be kept on this machine. Ingest reads only the others, and needs less space. The log is complete with
// those, and each epoch reads exactly this third from the source. A cache that is filled by its first epoch gets the same log.
func TestPlacementIsFollowed(t *testing.T) {
	inLayouts(t, func(t *testing.T, layout string) {
		for name, noPrefill := range map[string]bool{"ingest": false, "first epoch": true} {
			t.Run(name, func(t *testing.T) {
				testPlacementIsFollowed(t, layout, noPrefill)
			})
		}
	})
}

func testPlacementIsFollowed(t *testing.T, layout string, noPrefill bool) {
	isElsewhere := func(m *sample.Manifest, index sample.Index) bool { return m.NameHash(index)%3 == 0 }
	d := makeDataset(t, 900, func(r *rand.Rand, _ int) int { return 15_000 + r.IntN(10_000) })
	j := samplerJob(2, 20, 1, false) // all of its epochs are read, so nothing is read ahead beyond them
	_, whole := ingested(t, d, ingest.Options{Job: j, Layout: layout, NoPrefill: true})
	o, rep := ingested(t, d, ingest.Options{Job: j, Layout: layout, NoPrefill: noPrefill, IO: cache.IO{Elsewhere: isElsewhere}})
	reads := &readsOf{names: map[string]int{}}
	o.Source = func(s source.Source) source.Source { reads.Source = s; return reads }
	e := open(t, o)
	defer closeEngine(t, e)

	var kept, keptBytes, padded int64
	for i, b := range d.bytes {
		if !isElsewhere(e.cache.Manifest, sample.Index(i)) {
			kept++
			keptBytes += int64(len(b))
			padded += int64(chunker.Padded(uint32(len(b)), e.cache.Format.Align))
		}
	}
	if n := int64(len(d.bytes)); kept < n/2 || kept > n*4/5 {
		t.Fatalf("%d of %d samples are for this machine: the test shows nothing", kept, n)
	}
	if f := e.cache.Facts(); int64(f.Kept) != padded || rep.ArenaBytes > whole.ArenaBytes*4/5 {
		t.Errorf("space for %d bytes, an arena of %d; want %d, and much less than the %d of all samples", f.Kept, rep.ArenaBytes, padded, whole.ArenaBytes)
	}
	if s := e.Status().Jobs[0]; s.KeptBytes != keptBytes {
		t.Errorf("%d bytes are kept, want %d", s.KeptBytes, keptBytes)
	}
	if want := kept; !noPrefill && rep.ReadSamples != want || noPrefill && rep.ReadSamples != 0 {
		t.Errorf("ingest read %d samples, want %d or, without prefill, none", rep.ReadSamples, want)
	}
	d.readEpochs(t, e, j, 0, 2)
	for i := range d.bytes {
		index := sample.Index(i)
		sampleName, err := e.cache.Manifest.Name(index)
		if err != nil {
			t.Fatal(err)
		}
		here, n := !isElsewhere(e.cache.Manifest, index), reads.names[sampleName]
		least, most := 1, 2 // in each epoch, unless memory has it from the one before
		if here {
			least, most = 0, 0
			if noPrefill {
				least, most = 1, 1
			}
		}
		if hasPlace := e.cache.Locations.Get(index) != 0; hasPlace != here || n < least || n > most {
			t.Errorf("sample %d, for this machine: %v; in the log: %v; read %d times from the source, want %d to %d", index, here, hasPlace, n, least, most)
		}
	}
	if !e.cache.IsComplete(0, 1) {
		t.Error("a cache that has all of its samples is not complete")
	}
	if e.cache.Elsewhere = nil; e.cache.IsComplete(0, 1) {
		t.Error("a cache that lacks a third of its samples is complete")
	}
}
