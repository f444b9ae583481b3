package fetch_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"lcache/internal/serve/fetch"
	"lcache/logfile"
	"lcache/sample"
)

func (b *bed) beginPackages(t *testing.T, open, blocks, packages, room int) *logfile.Packages {
	t.Helper()
	p, err := b.Store.BeginPackages(logfile.Header{Fingerprint: b.Manifest.Fingerprint(), SegmentBlocks: uint32(blocks), Open: uint32(open)}, packages, room)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTogetherFromPackages: samples from packages are read together like those from Logfiles, several in a read.
func TestTogetherFromPackages(t *testing.T) {
	for _, packed := range []bool{false, true} {
		const n = 400
		b := togetherBed(t, n, n, packed, fetch.Options{})
		p := b.beginPackages(t, 2, 4, 20, n)
		moved := map[int]bool{}
		for i := sample.Index(0); i < n; i += 2 {
			for _, number := range b.Pack(p, int(i/2)%2, i) {
				moved[number] = true
			}
		}
		for lane := range 2 {
			if err := p.Finish(t.Context(), lane); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Log().Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		var all []sample.Index
		for i := range sample.Index(n) {
			all = append(all, i)
		}
		rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { all[i], all[j] = all[j], all[i] })
		before := b.Store.Stats().BlockReads
		got, rest := b.together(t, all)
		if len(got) != n || len(rest) != 0 || len(b.Source.Reads()) != 0 {
			t.Errorf("packed %v: %d of %d samples taken, rest %v, %d from the source", packed, len(got), n, rest, len(b.Source.Reads()))
		}
		if reads := b.Store.Stats().BlockReads - before; reads > n/4 {
			t.Errorf("packed %v: %d samples of %d packages and two segments took %d reads", packed, n, len(moved), reads)
		}
	}
}

// TestPackagesRepackedWhileRead: samples move between packages, and package numbers are reused, while other
// goroutines read them. Every byte is right, no sample comes from the source, and none counts as corrupt.
func TestPackagesRepackedWhileRead(t *testing.T) {
	for _, packed := range []bool{false, true} {
		t.Run(fmt.Sprint("packed ", packed), func(t *testing.T) {
			const n, requests, repacked = 120, 300, 20 // minimum of both, whichever is slower
			b := togetherBed(t, n, 0, packed, fetch.Options{})
			b.Know()
			p := b.beginPackages(t, 2, 1, 14, n)
			for i := range sample.Index(n) {
				b.Pack(p, int(i)%2, i)
			}
			var stop atomic.Bool
			var turns atomic.Int64
			moved := make(chan struct{})
			go func() {
				defer close(moved)
				r := rand.New(rand.NewPCG(3, 4))
				for ; !stop.Load(); turns.Add(1) {
					finished := p.Finished()
					if len(finished) == 0 {
						t.Error("no package is finished, so none can be repacked")
						return
					}
					number := finished[r.IntN(len(finished))]
					var members []sample.Index
					p.Log().Arrivals(number, func(_ int, i sample.Index, off uint64) bool {
						if b.Locations.Get(i) == b.Locations.At(logfile.PackagesNum, number, off) { // else it is a hole
							members = append(members, i)
						}
						return true
					})
					for _, i := range members {
						b.Pack(p, r.IntN(2), i)
					}
					if err := p.Free(number); err != nil { // it may have been filled further
						t.Error(err)
						return
					}
				}
			}()
			r := rand.New(rand.NewPCG(5, 6))
			for k := 0; k < requests || turns.Load() < repacked && !t.Failed(); k++ {
				indices := make([]sample.Index, 1+r.IntN(16))
				for k := range indices {
					indices[k] = r.Uint32N(n)
				}
				slices.Sort(indices)
				if got := b.get(t, slices.Compact(indices)...); slices.Contains(got, true) {
					t.Errorf("from the source: %v of %v", got, indices)
				}
			}
			stop.Store(true)
			<-moved
			if turns.Load() < repacked {
				t.Errorf("only %d packages were repacked", turns.Load())
			}
			if st := &b.Fetcher.Stats; st.CorruptSamples.Load() != 0 || st.StaleReads.Load() != 0 || len(b.Source.Reads()) != 0 {
				t.Errorf("%d corrupt, %d stale, %d from the source", st.CorruptSamples.Load(), st.StaleReads.Load(), len(b.Source.Reads()))
			}
		})
	}
}
