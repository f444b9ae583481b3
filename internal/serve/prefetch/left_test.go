package prefetch_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"lcache/chunker"
	"lcache/internal/disk/blockio"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/fetch/fetchtest"
	"lcache/internal/serve/prefetch"
	"lcache/internal/serve/staging"
	"lcache/logfile"
	"lcache/sample"
)

// A leftBed is a readerBed over a source without a log, in which another producer may load samples. A sample of 3000
// bytes takes room bytes of memory.
type leftBed struct {
	*readerBed
	brings atomic.Pointer[func(sample.Index) bool] // samples that are left to the Prefetcher
	listed *atomic.Int64                           // the last batch that Chunk was called for; nil: not noted
}

const room = 2 * 4096

func newLeftBed(t *testing.T, sizes []uint32, o fetch.Options, memory staging.Options, p prefetch.Options, orders map[int][][]sample.Index) *leftBed {
	t.Helper()
	io := fetchtest.OpenIO(t)
	if memory.Slots == 0 {
		memory.Slots, memory.SlotBytes = 1, 4096
	}
	b := &leftBed{readerBed: &readerBed{t: t, orders: orders, bed: &bed{io: io, Bed: fetchtest.New(t, fetchtest.Options{Sizes: sizes, Log: logfile.Options{IO: io},
		Fetch: o, Staging: memory})}}}
	t.Cleanup(func() { blockio.Inject(io, nil) })
	p.Chunk = func(at chunker.Position) (prefetch.Upcoming, bool) {
		if b.listed != nil {
			b.listed.Store(max(b.listed.Load(), int64(at.Batch)))
		}
		c, ok := b.chunk(at)
		if left := b.brings.Load(); left != nil {
			c.Left = *left
		}
		return c, ok
	}
	b.r = prefetch.New(b.Fetcher, p)
	t.Cleanup(b.r.Stop)
	return b
}

// leave sets which samples are left to the Prefetcher.
func (b *leftBed) leave(which func(sample.Index) bool) { b.brings.Store(&which) }

// missBed has n samples of 3000 bytes: one for each chunk of rank 0, in the order of their indices. The ring has room
// for some of them.
func missBed(t *testing.T, n, ring, jobs int) *leftBed {
	t.Helper()
	var order [][]sample.Index
	for i := range n {
		order = append(order, []sample.Index{sample.Index(i)})
	}
	return newLeftBed(t, slices.Repeat([]uint32{3000}, n), fetch.Options{Jobs: jobs}, staging.Options{SideBytes: 1 << 16, MissBytes: ring * room}, prefetch.Options{},
		map[int][][]sample.Index{0: order})
}

func (b *leftBed) present(indices ...sample.Index) bool {
	return !slices.ContainsFunc(indices, func(i sample.Index) bool { return !b.Staging.Present(i) })
}

// take holds one sample.
func (b *leftBed) take(i sample.Index) *staging.Hold {
	b.t.Helper()
	h, out := &staging.Hold{}, make([]staging.Address, 1)
	if b.Staging.Take(h, []sample.Index{i}, make([]bool, 1), make([]bool, 1), out) > 0 {
		b.t.Fatalf("sample %d can't be taken", i)
	}
	if b.Is(i, b.Staging.Slice(out[0].Offset, 3000)); out[0].From != sample.FromSource {
		b.t.Errorf("sample %d: a miss is called a hit", i)
	}
	return h
}

// Misses are read in the order of need, as far as the ring has room, and each is read once. Samples of another
// producer are not read.
func TestMissesInTheOrderOfNeed(t *testing.T) {
	const n, ring, per = 60, 6, 3
	order := shuffled(n, per, 4)
	b := newLeftBed(t, slices.Repeat([]uint32{3000}, n), fetch.Options{Jobs: 1}, staging.Options{MissBytes: ring * room}, prefetch.Options{}, map[int][][]sample.Index{0: order})
	isMiss := func(i sample.Index) bool { return i%3 == 0 }
	b.leave(isMiss)
	var names []string
	for batch, chunk := range order {
		at := chunker.Position{Batch: batch}
		b.r.Asked(at)
		for _, i := range chunk {
			if !isMiss(i) {
				b.until(func() bool { _, queued := b.r.Look(at, i); return !queued }) // once the chunk is listed: another producer loads it
				continue
			}
			b.until(func() bool { return b.present(i) })
			if got := len(b.Source.Order()); got > len(names)+ring {
				t.Errorf("%d samples were read when %d were taken: more than the ring holds", got, len(names))
			}
			h := b.take(i)
			b.Staging.Release(h)
			names = append(names, b.Name(i))
		}
		b.r.Delivered(at)
	}
	if got := b.Source.Order(); !slices.Equal(got, names) {
		t.Errorf("read in the order %v, want %v", got, names)
	}
}

// Regression: a sample larger than the ring stopped reading ahead until its rank had passed it.
func TestTooLargeMissDelaysNoOther(t *testing.T) {
	b := newLeftBed(t, []uint32{3000, 3*4096 + 2, 3000, 3 * 4096}, fetch.Options{Jobs: 1}, staging.Options{MissBytes: 4 * 4096}, prefetch.Options{},
		map[int][][]sample.Index{0: {{0}, {1}, {2}, {3}}})
	b.r.Asked(chunker.Position{})
	b.until(func() bool { return b.present(0, 2) })
	for batch := range 3 {
		b.r.Asked(chunker.Position{Batch: batch})
		b.r.Delivered(chunker.Position{Batch: batch})
	}
	b.r.Asked(chunker.Position{Batch: 3}) // this one fits, alone
	b.until(func() bool { return b.present(3) })
	if n := b.Source.Reads()[b.Name(1)]; n != 0 || b.present(1) {
		t.Errorf("the sample that never fits was read %d times", n)
	}
}

// If a rank jumps, the samples before the jump make room for wanted samples. A held sample stays.
func TestUnwantedMissesMakeRoom(t *testing.T) {
	const n, ring, far = 100, 3, 80
	b := missBed(t, n, ring, 2)
	b.r.Asked(chunker.Position{})
	b.until(func() bool { return b.present(0, 1, 2) })
	h := b.take(1)
	b.r.Asked(chunker.Position{Batch: far})
	b.until(func() bool { return b.present(far, far+1) }) // the third place is held
	if b.present(0) || b.present(2) || !b.present(1) {
		t.Error("got samples 0 and 2 kept or held sample 1 evicted, want the opposite")
	}
	b.Staging.Release(h)
	b.until(func() bool { return b.present(far + 2) })
	b.r.Stop()
	reads := b.Source.Reads()
	for i := range sample.Index(n) {
		if b.present(i) {
			t.Errorf("sample %d is still there after Stop", i)
		}
		if i > ring+1 && i < far && reads[b.Name(i)] != 0 { // one read may have begun before the jump
			t.Errorf("sample %d was read, but no chunk wanted it", i)
		}
	}
}

// A sample that occurs again while it is being read is not read twice.
func TestMissesAreReadOnce(t *testing.T) {
	b := newLeftBed(t, slices.Repeat([]uint32{3000}, 3), fetch.Options{Jobs: 4}, staging.Options{MissBytes: 8 * room}, prefetch.Options{},
		map[int][][]sample.Index{0: {{0, 0}, {1}, {0}, {1}}, 1: {{1, 0}}})
	begun, asked := make(chan struct{}, 10), make(chan struct{})
	b.Source.Before(func(context.Context, sample.Entry, []byte) error { begun <- struct{}{}; <-asked; return nil })
	b.r.Asked(chunker.Position{})
	b.r.Asked(chunker.Position{Rank: 1})
	<-begun
	<-begun
	isReading := func(i sample.Index) bool { reading, _ := b.r.Look(chunker.Position{Rank: -1}, i); return reading }
	if !isReading(0) || !isReading(1) {
		t.Error("two reads have begun, want one of each sample")
	}
	if isReading(2) {
		t.Error("sample 2 is being read, but no chunk wants it")
	}
	for _, last := range []chunker.Position{{Batch: 3}, {Rank: 1}} { // a sample that is asked for before its next chunk is listed makes room, and is read again
		b.waitFor("the last chunk is listed", func() bool { _, queued := b.r.Look(last, 2); return !queued })
	}
	close(asked)
	for batch := range 4 {
		b.ask(0, batch)
	}
	b.ask(1, 0)
	if r := b.Source.Reads(); r[b.Name(0)] != 1 || r[b.Name(1)] != 1 || len(r) != 2 {
		t.Errorf("reads: %v, want one of each", r)
	}
}

// Stop does not wait for a hung source. Memory that its answer may still write to is not given back before.
func TestStopWithAHungSource(t *testing.T) {
	b := missBed(t, 4, 4, 2)
	begun, hung := make(chan struct{}, 4), make(chan struct{})
	b.Source.Before(func(context.Context, sample.Entry, []byte) error { begun <- struct{}{}; <-hung; return nil })
	b.r.Asked(chunker.Position{})
	<-begun
	<-begun
	late := time.AfterFunc(20*time.Second, func() { t.Error("Stop waits for the source"); close(hung) })
	b.r.Stop()
	if !late.Stop() {
		return
	}
	if x, ok := b.Staging.Alloc(staging.Miss, 0, 3*room); ok {
		b.Staging.Drop(x)
		t.Error("memory that the source may still write to was given back")
	}
	close(hung)
	b.until(func() bool { return b.Staging.Free(staging.Miss) == 4*room })
	if b.present(0) || b.present(1) {
		t.Error("a read that Stop has ended was published")
	}
}

// A failed read frees its memory, and wakes waiting requests.
func TestMissesThatFail(t *testing.T) {
	b := missBed(t, 3, 2, 1)
	b.Source.Before(func(_ context.Context, e sample.Entry, _ []byte) error {
		if e.Name == b.Name(0) {
			return errors.New("it is gone")
		}
		return nil
	})
	b.r.Asked(chunker.Position{})
	b.until(func() bool {
		reading, queued := b.r.Look(chunker.Position{}, 0)
		return !reading && !queued && b.present(1)
	})
	if b.present(0) {
		t.Error("a read that failed was published")
	}
	b.r.Skip(chunker.Position{}) // the request reads it by index, and gets the error
	b.r.Delivered(chunker.Position{})
	b.ask(0, 1)
	b.ask(0, 2)
}

// Regression: a request read a sample by index that was about to be read ahead and waited for memory. It was read
// again when there was some.
func TestMissesReadByIndexFirst(t *testing.T) {
	const ring = 2
	b := missBed(t, ring+2, ring, 1)
	b.r.Asked(chunker.Position{})
	b.until(func() bool { return b.present(0, 1) })
	at := chunker.Position{Batch: ring}
	b.r.Asked(at) // memory is full of samples that the rank has left behind
	b.waitFor("its read is about to begin", func() bool { return b.r.Taken(ring) })
	b.r.Skip(at)
	if reading, queued := b.r.Look(at, ring); reading || queued {
		t.Errorf("reading %v, queued %v: want neither", reading, queued)
	}
	b.r.Delivered(chunker.Position{})
	b.r.Delivered(chunker.Position{Batch: 1})
	b.ask(0, ring+1)
	if n := b.Source.Reads()[b.Name(ring)]; n != 0 {
		t.Errorf("the sample was read ahead %d times", n)
	}
}

// When the window begins to serve a rank, samples that were read for it stay, and reads that have not begun are left
// to the window. When the window stops, the prefetcher reads them again.
func TestRefreshInBothDirections(t *testing.T) {
	const n = 12
	b := missBed(t, n, 2*n, 2)
	window := func(sample.Index) bool { return false }
	b.leave(window)
	b.r.Asked(chunker.Position{})
	isListed := func() bool {
		_, queued := b.r.Look(chunker.Position{Batch: n - 1}, n-1)
		return !queued
	}
	b.waitFor("the window's last sample is listed as the window's", isListed)
	if got := b.Source.Order(); len(got) != 0 {
		t.Errorf("samples %v were read, but the prefetch window loads all of them", got)
	}

	begun, let := make(chan string, n), map[string]chan struct{}{}
	for i := range sample.Index(n) {
		let[b.Name(i)] = make(chan struct{})
	}
	b.Source.Before(func(_ context.Context, e sample.Entry, _ []byte) error { begun <- e.Name; <-let[e.Name]; return nil })
	b.leave(func(sample.Index) bool { return true })
	b.r.Refresh(chunker.Position{})
	close(let[b.Name(0)])
	close(let[b.Name(1)])
	b.until(func() bool { return b.present(0, 1) })
	for range 4 {
		<-begun
	}
	b.leave(window)
	b.r.Refresh(chunker.Position{})
	b.waitFor("the window's last sample is listed as the window's again", isListed)
	close(let[b.Name(2)])
	close(let[b.Name(3)])
	b.until(func() bool { return b.present(0, 1, 2, 3) }) // read samples stay, and reads in flight complete
	if got := b.Source.Order(); len(got) != 4 {
		t.Errorf("%v were read, want the four that had begun", got)
	}

	b.leave(func(sample.Index) bool { return true })
	for i := sample.Index(4); i < n; i++ {
		close(let[b.Name(i)])
	}
	b.r.Refresh(chunker.Position{})
	for batch := range n {
		b.ask(0, batch)
	}
	if got := b.Source.Order(); len(got) != n {
		t.Errorf("%v were read, want each once", got)
	}
}

// A sample in a slot is not read for a chunk. It is read if the slot is reused before the chunk was requested,
// whether the prefetcher is notified or finds out itself.
func TestLeavesItsSlot(t *testing.T) {
	for name, notice := range map[string]func(b *leftBed, i sample.Index){
		"the prefetcher is told":        func(b *leftBed, i sample.Index) { b.r.LeftSlot(i) },
		"a request finds it gone first": func(b *leftBed, i sample.Index) { b.r.Look(chunker.Position{Batch: 2}, i) },
	} {
		t.Run(name, func(t *testing.T) {
			b := missBed(t, 4, 6, 1)
			of := staging.Segment{Log: 7}
			slot, ok := b.Staging.Acquire(of)
			if !ok {
				t.Fatal("no slot is free")
			}
			b.Staging.Publish(2, b.Staging.OffsetOf(b.Staging.Slot(slot)), sample.FromLog)
			b.Staging.Ready(slot)
			b.r.Asked(chunker.Position{})
			b.until(func() bool { return b.present(0, 1, 2, 3) && b.r.Ready(chunker.JobRank{}) == 3 })
			if got, want := b.Source.Order(), []string{b.Name(0), b.Name(1), b.Name(3)}; !slices.Equal(got, want) {
				t.Fatalf("got reads of %v, want %v: the other sample is in a slot", got, want)
			}
			b.r.LeftSlot(2) // it has not left
			if freed := b.Staging.Reclaim(func(staging.Segment) bool { return true }, func(_ staging.Segment, gone func(sample.Index)) { gone(2) }); freed != 1 {
				t.Fatalf("%d slots were reclaimed, want 1", freed)
			}
			notice(b, 2)
			b.until(func() bool { return b.present(2) })
			b.Staging.Release(b.take(2))
			if got := len(b.Source.Order()); got != 4 {
				t.Errorf("%d reads, want 4", got)
			}
		})
	}
}

// A sample that a chunk wants is copied when its slot is reused. Without memory for the copy, it is read again in its
// turn.
func TestKeptFromItsSlot(t *testing.T) {
	for _, ring := range []int{6, 3} { // number of samples
		b := missBed(t, 4, ring, 1)
		slot, _ := b.Staging.Acquire(staging.Segment{Log: 7})
		copy(b.Staging.Slot(slot), b.Content(2))
		b.Staging.Publish(2, b.Staging.OffsetOf(b.Staging.Slot(slot)), sample.FromLog)
		b.Staging.Ready(slot)
		b.r.Asked(chunker.Position{})
		enough := ring == 6
		b.until(func() bool { return b.present(0, 1) && (b.r.Ready(chunker.JobRank{}) == 3 || !enough) })
		var kept prefetch.Kept
		b.Staging.Reclaim(func(staging.Segment) bool { return true }, func(_ staging.Segment, gone func(sample.Index)) {
			kept = b.r.KeepFromSlot(func(f func(sample.Index)) { f(1); f(2); f(2) })
			clear(b.Staging.Slot(slot)) // as the next load would
			gone(2)
		})
		if b.present(2) {
			t.Fatal("the sample is still in its slot")
		}
		kept.Restore(b.Staging)
		b.r.LeftSlot(2)
		if got := b.present(2); enough && (!got || len(kept) != 1) {
			t.Errorf("with room for all, the sample is there: %v, %d copies were made; want one", got, len(kept))
		}
		for batch, i := range []sample.Index{0, 1, 2, 3} {
			b.r.Asked(chunker.Position{Batch: batch})
			b.until(func() bool { return b.present(i) })
			h, out := &staging.Hold{}, make([]staging.Address, 1)
			b.Staging.Take(h, []sample.Index{i}, make([]bool, 1), make([]bool, 1), out)
			b.Is(i, b.Staging.Slice(out[0].Offset, 3000))
			b.Staging.Release(h)
			b.r.Delivered(chunker.Position{Batch: batch})
		}
		if got := len(b.Source.Order()); enough && got != 3 {
			t.Errorf("%d samples were read, want 3", got)
		}
	}
}

// A sample is copied from its slot even if a request by index gives it another address meanwhile, because that memory
// may be reused at any time.
func TestKeptFromItsSlotDuringARequest(t *testing.T) {
	b := missBed(t, 4, 8, 1)
	slot, _ := b.Staging.Acquire(staging.Segment{Log: 7})
	copy(b.Staging.Slot(slot), b.Content(2))
	b.Staging.Publish(2, b.Staging.OffsetOf(b.Staging.Slot(slot)), sample.FromLog)
	b.Staging.Ready(slot)
	b.r.Asked(chunker.Position{})
	b.until(func() bool { return b.present(0, 1, 3) && b.r.Ready(chunker.JobRank{}) == 3 })
	x, ok := b.Staging.Alloc(staging.Side, 2, 3000) // memory of the request; it has other bytes by the time of the copy
	if !ok {
		t.Fatal("no side memory")
	}
	var kept prefetch.Kept
	b.Staging.Reclaim(func(staging.Segment) bool { return true }, func(_ staging.Segment, gone func(sample.Index)) {
		kept = b.r.KeepFromSlot(func(f func(sample.Index)) {
			f(2)
			b.Staging.Publish(2, b.Staging.OffsetOf(x.Buf), sample.FromLog)
		})
		gone(2)
	})
	if len(kept) != 1 {
		t.Fatalf("%d copies, want 1", len(kept))
	}
	b.Is(2, kept[0].Buf)
	b.Staging.Publish(2, b.Staging.OffsetOf(kept[0].Buf), sample.FromLog)
	b.Staging.Drop(x)
}
