package fetch_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"lcache/fetch"
	"lcache/fetch/fetchtest"
	"lcache/logfile"
	"lcache/sample"
	"lcache/staging"
)

// aheadBed has n samples of 3000 bytes at the source, and a ring for some of them.
func aheadBed(t *testing.T, n, ring, jobs int) *bed {
	t.Helper()
	io := openIO(t)
	return &bed{io: io, Bed: fetchtest.New(t, fetchtest.Options{Sizes: slices.Repeat([]uint32{3000}, n), Log: logfile.Options{IO: io},
		Fetch: fetch.Options{Jobs: jobs}, Staging: staging.Options{Slots: 1, SlotBytes: 4096, SideBytes: 1 << 16, MissBytes: ring * 4096}})}
}

// sequence asks for some samples in order, each for a batch of its own; done is closed at its end.
func sequence(indices ...sample.Index) (next func() (fetch.Ask, bool), done chan struct{}) {
	done = make(chan struct{})
	at := 0
	return func() (fetch.Ask, bool) {
		if at == len(indices) {
			close(done)
			return fetch.Ask{}, false
		}
		at++
		return fetch.Ask{Index: indices[at-1], Batch: at - 1}, true
	}, done
}

// until waits for something that staging tells of.
func (b *bed) until(what func() bool) {
	for {
		changed := b.Staging.Changed()
		if what() {
			return
		}
		<-changed
	}
}

func (b *bed) take(t *testing.T, i sample.Index) (*staging.Hold, bool) {
	t.Helper()
	h, out := &staging.Hold{}, make([]staging.Address, 1)
	if b.Staging.Take(h, []sample.Index{i}, make([]bool, 1), make([]bool, 1), out) > 0 {
		return nil, false
	}
	b.Is(i, b.Staging.Slice(out[0].Offset, 3000))
	if !out[0].FromSource {
		t.Errorf("sample %d: a miss is called a hit", i)
	}
	return h, true
}

func always(fetch.Ask) bool { return true }

// Misses are read in the order of need, as far as the ring has room, and each is read once.
func TestAheadFillsTheRingInOrder(t *testing.T) {
	const n, ring = 12, 4
	b := aheadBed(t, n, ring, 1)
	a := fetch.NewMissPrefetcher(b.Fetcher)
	var want []sample.Index
	for i := range sample.Index(n) {
		want = append(want, (i*5+2)%n)
	}
	next, done := sequence(want...)
	a.Start(next, always)
	var names []string
	for k, i := range want {
		b.until(func() bool { return b.Staging.Present(i) })
		if got := len(b.Source.Order()); got > k+ring {
			t.Errorf("%d samples were read when %d were taken: more than the ring holds", got, k)
		}
		h, ok := b.take(t, i)
		if !ok {
			t.Fatalf("sample %d is present and can't be taken", i)
		}
		b.Staging.Release(h)
		names = append(names, b.Name(i))
	}
	<-done
	a.Stop()
	if got := b.Source.Order(); !slices.Equal(got, names) {
		t.Errorf("read in the order %v, want %v", got, names)
	}
}

// Regression: a sample larger than the ring stopped the reading ahead until its rank had passed it.
func TestAheadPassesOverWhatNeverFits(t *testing.T) {
	io := openIO(t)
	b := &bed{io: io, Bed: fetchtest.New(t, fetchtest.Options{Sizes: []uint32{3000, 3*4096 + 1, 3000, 3 * 4096}, Log: logfile.Options{IO: io},
		Fetch: fetch.Options{Jobs: 1}, Staging: staging.Options{Slots: 1, SlotBytes: 4096, SideBytes: 1 << 16, MissBytes: 3 * 4096}})}
	a := fetch.NewMissPrefetcher(b.Fetcher)
	next, done := sequence(0, 1, 2)
	a.Start(next, always)
	<-done
	b.until(func() bool { return b.Staging.Present(0) && b.Staging.Present(2) })
	a.Stop()
	next, done = sequence(3) // this one fits, alone
	a.Start(next, always)
	<-done
	b.until(func() bool { return b.Staging.Present(3) })
	a.Stop()
	if n := b.Source.Reads()[b.Name(1)]; n != 0 || b.Staging.Present(1) {
		t.Errorf("the sample that never fits was read %d times", n)
	}
}

// A sample that is no longer wanted gives its room to one that is.
func TestAheadSweeps(t *testing.T) {
	const n, ring = 10, 3
	b := aheadBed(t, n, ring, 2)
	a := fetch.NewMissPrefetcher(b.Fetcher)
	var passed atomic.Int64 // batches before it are not wanted
	next, done := sequence(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	wanted := func(k fetch.Ask) bool { return int64(k.Batch) >= passed.Load() }
	a.Start(next, wanted)
	b.until(func() bool { return b.Staging.Present(0) && b.Staging.Present(1) && b.Staging.Present(2) })
	h, ok := b.take(t, 1)
	if !ok {
		t.Fatal("sample 1 is not there")
	}
	passed.Store(7)
	a.Sweep(wanted)
	b.until(func() bool { return b.Staging.Present(7) && b.Staging.Present(8) }) // the third place is held
	if b.Staging.Present(0) || b.Staging.Present(2) || !b.Staging.Present(1) {
		t.Error("want what is passed to be gone, and what is held to stay")
	}
	b.Staging.Release(h)
	<-done
	a.Stop()
	for i := range sample.Index(n) {
		if b.Staging.Present(i) {
			t.Errorf("sample %d is still there after Stop", i)
		}
	}
	for i := sample.Index(3); i < 7; i++ {
		if b.Source.Reads()[b.Name(i)] != 0 {
			t.Errorf("sample %d was read though nobody wanted it any more", i)
		}
	}
}

// A sample that occurs again while it is being read is not read twice, and what is there already is not read at all.
func TestAheadReadsOnce(t *testing.T) {
	b := aheadBed(t, 3, 6, 4)
	a := fetch.NewMissPrefetcher(b.Fetcher)
	asked := make(chan struct{})
	b.Source.Before(func(context.Context, sample.Entry, []byte) error { <-asked; return nil })
	next, done := sequence(0, 0, 1, 0, 1)
	a.Start(next, always)
	<-done // the whole sequence was gone through while the reads are on their way
	if !a.IsReading(0) || !a.IsReading(1) || a.IsReading(2) {
		t.Errorf("coming: %v %v %v, want 0 and 1", a.IsReading(0), a.IsReading(1), a.IsReading(2))
	}
	close(asked)
	b.until(func() bool { return b.Staging.Present(0) && b.Staging.Present(1) })
	a.Stop()
	if r := b.Source.Reads(); r[b.Name(0)] != 1 || r[b.Name(1)] != 1 || len(r) != 2 {
		t.Errorf("reads: %v, want one of each", r)
	}
}

// Stop joins the reads, also those of a source that has gone deaf, and Start replaces the sequence before.
func TestAheadStops(t *testing.T) {
	b := aheadBed(t, 4, 4, 2)
	a := fetch.NewMissPrefetcher(b.Fetcher)
	a.Stop() // nothing was begun
	begun, hung := make(chan struct{}, 4), make(chan struct{})
	b.Source.Before(func(context.Context, sample.Entry, []byte) error { begun <- struct{}{}; <-hung; return nil })
	next, _ := sequence(0, 1, 2, 3)
	a.Start(next, always)
	<-begun
	<-begun
	a.Stop()
	if a.IsReading(0) || a.IsReading(1) {
		t.Error("still coming after Stop")
	}
	x, ok := b.Staging.Alloc(staging.Miss, 0, 3*4096)
	if ok {
		b.Staging.Drop(x)
		t.Error("memory that the source may still write to was given back")
	}
	close(hung)
	b.Source.Before(nil)
	next, done := sequence(3, 2)
	a.Start(next, always)
	<-done
	b.until(func() bool { return b.Staging.Present(3) && b.Staging.Present(2) })
	a.Stop()
}

// A read that fails frees its memory, and wakes waiters to look again.
func TestAheadFails(t *testing.T) {
	b := aheadBed(t, 3, 1, 1)
	a := fetch.NewMissPrefetcher(b.Fetcher)
	b.Source.Before(func(_ context.Context, e sample.Entry, _ []byte) error {
		if e.Name == b.Name(0) {
			return context.DeadlineExceeded
		}
		return nil
	})
	next, _ := sequence(0, 1)
	a.Start(next, always)
	b.until(func() bool { return b.Staging.Present(1) })
	a.Stop()
	if b.Staging.Present(0) {
		t.Error("a read that failed was published")
	}
}

// Regression: Sweep called its caller's function under its own lock, and a caller of IsReading under the lock that this function
// takes deadlocked.
func TestSweepAndComingUnderOneLock(t *testing.T) {
	b := aheadBed(t, 4, 4, 2)
	a := fetch.NewMissPrefetcher(b.Fetcher)
	next, done := sequence(0, 1, 2, 3)
	a.Start(next, always)
	<-done
	b.until(func() bool {
		return b.Staging.Present(3) && b.Staging.Present(2) && b.Staging.Present(1) && b.Staging.Present(0)
	})
	var mine sync.Mutex
	inside, asked := make(chan struct{}), make(chan struct{})
	var once sync.Once
	mine.Lock()
	go func() {
		defer mine.Unlock()
		<-inside // Sweep is in its caller's function, about to wait for mine
		a.IsReading(1)
		close(asked)
	}()
	a.Sweep(func(fetch.Ask) bool {
		once.Do(func() { close(inside) })
		mine.Lock()
		defer mine.Unlock()
		return false
	})
	<-asked
	a.Stop()
}
