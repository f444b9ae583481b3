package fetch_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"lcache/internal/serve/fetch"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/internal/serve/staging"
	"lcache/logfile"
	"lcache/sample"
)

// A request for many samples starts few reads at once, and gets all samples.
func TestReadsAtOnce(t *testing.T) {
	const n, most = 2000, 256
	b := fetchtest.New(t, fetchtest.Options{Sizes: slices.Repeat([]uint32{100}, n), Log: logfile.Options{IO: fetchtest.OpenIO(t)}, Fetch: fetch.Options{Jobs: n},
		Staging: staging.Options{Slots: 1, SlotBytes: 4096, SideBytes: 20 << 20, MissBytes: 1 << 20}})
	enough, release := make(chan struct{}), make(chan struct{})
	var reading, highest atomic.Int64
	var first sync.Once
	b.Source.Before(func(context.Context, sample.Entry, []byte) error {
		now := reading.Add(1)
		defer reading.Add(-1)
		for top := highest.Load(); now > top && !highest.CompareAndSwap(top, now); top = highest.Load() {
		}
		if now == most {
			first.Do(func() { close(enough) })
		}
		<-release
		return nil
	})
	indices := make([]sample.Index, n)
	for i := range indices {
		indices[i] = sample.Index(i)
	}
	before := runtime.NumGoroutine()
	done := make(chan error)
	go func() {
		extents, got, err := b.Fetcher.FetchAll(t.Context(), indices)
		for i := range got {
			b.Is(sample.Index(i), got[i].Data)
		}
		for _, x := range extents {
			b.Staging.Drop(x)
		}
		done <- err
	}()
	<-enough
	if more := runtime.NumGoroutine() - before; more > 2*most+16 { // two goroutines for each: one waits, one reads
		t.Errorf("%d goroutines serve a request of %d samples", more, n)
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if highest.Load() > most {
		t.Errorf("%d reads at once, want at most %d", highest.Load(), most)
	}
}
