package prefetch_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"lcache/chunker"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/internal/serve/prefetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// goesOn fails the test if f waits for a hung device, and then releases the device.
func goesOn(t *testing.T, what string, release, f func()) {
	t.Helper()
	late := time.AfterFunc(20*time.Second, func() { t.Errorf("%s waits for the hung device", what); release() })
	defer late.Stop()
	f()
}

// deaf makes the source hang until release is called.
func (b *bed) deaf(t *testing.T) (release func()) {
	t.Helper()
	hung := make(chan struct{})
	release = sync.OnceFunc(func() { close(hung) })
	t.Cleanup(release)
	b.Source.Before(func(context.Context, sample.Entry, []byte) error { <-hung; return nil })
	return release
}

// twoRanks is a bed in which rank 0 needs only the log, and rank 1 only the source.
func twoRanks(t *testing.T, o fetch.Options) *readerBed {
	t.Helper()
	const n, logged = 400, 200
	orders := map[int][][]sample.Index{0: shuffled(logged, 4, 1), 1: shuffled(n-logged, 4, 2)}
	for _, chunk := range orders[1] {
		for k := range chunk {
			chunk[k] += logged
		}
	}
	return newReaderBed(t, n, logged, 512<<10, o, orders)
}

// A rank that needs no source advances while the source hangs, however long. The other rank advances when the source
// answers.
func TestDiskServesWhileSourceHangs(t *testing.T) {
	b := twoRanks(t, fetch.Options{Jobs: 2, SourceTimeout: time.Hour})
	release := b.deaf(t)
	b.r.Asked(chunker.Position{Rank: 1})
	goesOn(t, "a rank that needs the log alone", release, func() {
		for batch := range b.orders[0] {
			b.ask(0, batch)
		}
	})
	if got := len(b.Source.Order()); got > 2 {
		t.Errorf("%d reads of a source that hangs, with two jobs", got)
	}
	release()
	for batch := range b.orders[1] {
		b.ask(1, batch)
	}
}

// A rank that needs no disk advances while the disk hangs. The other rank advances when the disk answers.
func TestSourceServesWhileDiskHangs(t *testing.T) {
	b := twoRanks(t, fetch.Options{Jobs: 2, LogTimeout: time.Hour})
	release := fetchtest.HoldReads(t, b.io, func(int64) bool { return true })
	b.r.Asked(chunker.Position{})
	goesOn(t, "a rank that needs the source alone", release, func() {
		for batch := range b.orders[1] {
			b.ask(1, batch)
		}
	})
	release()
	for batch := range b.orders[0] {
		b.ask(0, batch)
	}
}

// Every chunk needs both. While the source hangs, samples from the log are ready as far as memory allows. When the
// source's deadline passes, the request reads elsewhere.
func TestEveryWaitHasItsDeadline(t *testing.T) {
	for _, hangs := range []string{"source", "disk", "both"} {
		t.Run(hangs, func(t *testing.T) {
			const n, logged = 40, 20
			var order [][]sample.Index
			for i := range sample.Index(logged) {
				order = append(order, []sample.Index{i, logged + i})
			}
			o := fetch.Options{Jobs: 2, SourceTimeout: time.Minute, LogTimeout: time.Minute} // on a busy machine, the device that does not hang may take longer than soon
			if hangs != "disk" {
				o.SourceTimeout = soon
			}
			if hangs != "source" {
				o.LogTimeout = soon
			}
			b := newReaderBed(t, n, logged, 2<<20, o, map[int][][]sample.Index{0: order})
			releases := []func(){}
			if hangs != "disk" {
				releases = append(releases, b.deaf(t))
			}
			if hangs != "source" {
				releases = append(releases, fetchtest.HoldReads(t, b.io, func(int64) bool { return true }))
			}
			release := func() {
				for _, f := range releases {
					f()
				}
			}
			at := chunker.Position{}
			b.r.Asked(at)
			goesOn(t, "a request", release, func() {
				b.until(func() bool {
					return !slices.ContainsFunc(order[0], func(i sample.Index) bool {
						reading, queued := b.r.Look(at, i)
						return reading || queued
					})
				})
			})
			if got := b.Staging.Present(0); got != (hangs == "source") {
				t.Errorf("the log's sample is present: %v, want %v", got, !got)
			}
			if got := b.Staging.Present(logged); got != (hangs == "disk") {
				t.Errorf("the source's sample is present: %v, want %v", got, !got)
			}
			if b.Fetcher.Stats.Timeouts.Load() == 0 {
				t.Error("no timeout was counted")
			}
			release()
		})
	}
}

// Side memory with prefetched samples is given back to a waiting request. The samples are read again.
func TestSideMemoryIsGivenBack(t *testing.T) {
	const n, side = 60, 1 << 17
	b := newLeftBed(t, slices.Repeat([]uint32{3000}, n), fetch.Options{Jobs: 2}, staging.Options{SideBytes: side, MissBytes: room}, prefetch.Options{Side: true},
		map[int][][]sample.Index{0: shuffled(n, 1, 5)})
	b.ask(0, 0)
	b.until(func() bool { return b.Staging.SideUsed() > side*3/4 })
	for _, need := range []int64{room, side / 2, side} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		x, err := b.Fetcher.Room(ctx, need)
		cancel()
		if err != nil {
			t.Fatalf("%d bytes of side memory, which only the prefetcher uses: %v", need, err)
		}
		b.Staging.Drop(x)
	}
	for batch := 1; batch < n; batch++ {
		b.ask(0, batch)
	}
	if got := len(b.Source.Order()); got < n || got > 10*n { // a given-back piece may be read ahead again meanwhile
		t.Errorf("%d reads for %d samples", got, n)
	}
}

// A rank that connects second gets its share of the memory and its turn at the source at once, even if it was not
// expected.
func TestRanksAreServedEvenly(t *testing.T) {
	for _, expected := range []int{1, 2} {
		const n, ring = 80, 16
		orders := map[int][][]sample.Index{0: shuffled(n/2, 1, 1), 1: shuffled(n/2, 1, 2)}
		for _, chunk := range orders[1] {
			chunk[0] += n / 2
		}
		b := newLeftBed(t, slices.Repeat([]uint32{3000}, n), fetch.Options{Jobs: 2}, staging.Options{MissBytes: ring * room}, prefetch.Options{Ranks: expected}, orders)
		ready := func(rank int) int { // including the requested chunk
			if !b.present(orders[rank][0][0]) {
				return 0
			}
			return b.r.Ready(chunker.JobRank{Rank: rank}) + 1
		}
		b.r.Asked(chunker.Position{})
		b.until(func() bool { return ready(0) == ring/expected })
		b.r.Asked(chunker.Position{Rank: 1})
		b.until(func() bool { return ready(1) == ring/2 })
		if got := ready(0); got != ring/2 {
			t.Errorf("%d ranks expected: the first has %d of %d places, want half", expected, got, ring)
		}
		if got := len(b.Source.Order()); got != ring && expected == 2 {
			t.Errorf("%d reads for %d places: samples of the first rank were evicted", got, ring)
		}
	}
	turns := make(chan string, 100)
	let := make(chan struct{})
	b := twoRanks(t, fetch.Options{Jobs: 2})
	b.orders[0] = shuffled(100, 4, 1)
	for _, chunk := range b.orders[0] {
		for k := range chunk {
			chunk[k] += 300
		}
	}
	b.orders[1] = b.orders[1][:0:0]
	for i := range sample.Index(25) {
		b.orders[1] = append(b.orders[1], []sample.Index{200 + i})
	}
	b.Source.Before(func(_ context.Context, e sample.Entry, _ []byte) error { turns <- e.Name; <-let; return nil })
	b.r.Asked(chunker.Position{})
	<-turns
	<-turns // both jobs read for the first rank
	b.r.Asked(chunker.Position{Rank: 1})
	b.until(func() bool { return b.r.Listed(200) })
	let <- struct{}{}
	if got := <-turns; got != b.Name(200) {
		t.Errorf("the next read was %s, want the second rank's first, %s", got, b.Name(200))
	}
	close(let)
}
