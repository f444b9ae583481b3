package logfile

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/sample"

	"golang.org/x/sys/unix"
)

// failing makes the writes (or reads) that match fail.
func failing(io *blockio.IO, write bool, match func(n int64) bool) {
	var mu sync.Mutex // a retry is submitted concurrently with an append
	n := int64(-1)
	blockio.Inject(io, func(_ int64, op *blockio.Op) blockio.Fault {
		mu.Lock()
		defer mu.Unlock()
		if op.Buf == nil || op.Write != write {
			return blockio.Fault{}
		}
		if n++; !match(n) {
			return blockio.Fault{}
		}
		return blockio.Fault{Err: unix.EIO}
	})
}

// One failed write costs a retry and nothing else.
func TestNthWriteFails(t *testing.T) {
	const n = 12
	for nth := int64(0); ; nth++ {
		b := newBed(t, 2, 4096, 40, randomSizes(n, 4096, 9000, 11))
		b.open()
		l := b.begin(0, 0, 2, 40, n)
		hit := false
		failing(b.opts.IO, true, func(i int64) bool { hit = hit || i == nth; return i == nth })
		for i := range uint32(n) {
			b.append(l, int(i)%2, i)
		}
		if err := l.WriteTails(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
		blockio.Inject(b.opts.IO, nil)
		got := b.check(l)
		if len(got[0])+len(got[1]) != n || len(b.losses()) != 0 {
			t.Errorf("write %d failed: %v, lost %v", nth, got, b.losses())
		}
		if hit != (b.s.Stats().WriteErrors == 1) {
			t.Errorf("write %d failed: %+v", nth, b.s.Stats())
		}
		b.books()
		b.close()
		if !hit {
			break
		}
	}
}

// A write that fails twice makes a hole: exactly the samples that overlap it are lost, reported once, and gone from the list.
func TestNthWriteFailsTwice(t *testing.T) {
	const n = 14
	for nth := int64(0); ; nth++ {
		b := newBed(t, 1, 4096, 40, randomSizes(n, 4096, 9000, 12))
		b.open()
		l := b.begin(0, 0, 1, 40, n)
		var count int64
		// Flushed after each append, so writes are one at a time and the next one is the second try.
		failing(b.opts.IO, true, func(i int64) bool { count = i; return i == nth || i == nth+1 })
		var offs []uint64
		for i := range uint32(n) {
			offs = append(offs, b.append(l, 0, i))
			if err := l.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		blockio.Inject(b.opts.IO, nil)
		holes := map[int]bool{}
		for j := range l.Blocks(0) {
			err := readBlock(l, 0, j, aligned(t, 4096))
			if isErr(err, ErrHole) {
				holes[j] = true
			} else if err != nil {
				t.Error(err)
			}
		}
		var want []sample.Index
		lost := map[sample.Index]int{}
		for i, off := range offs {
			whole := true
			for j := off / 4096; j*4096 < off+uint64(b.sizes[i]); j++ {
				whole = whole && !holes[int(j)]
			}
			if whole {
				want = append(want, uint32(i))
			} else {
				lost[uint32(i)] = 1
			}
		}
		if got := b.check(l)[0]; !slices.Equal(got, want) {
			t.Errorf("writes %d, %d failed: holes %v: got %v, want %v", nth, nth+1, holes, got, want)
		}
		if got := b.losses(); !equalCounts(got, lost) {
			t.Errorf("writes %d, %d failed: %v reported lost, want %v", nth, nth+1, got, lost)
		}
		if uint64(len(holes)) != b.s.Stats().Holes {
			t.Errorf("holes %v, stats %+v", holes, b.s.Stats())
		}
		b.books()
		b.close()
		b.open()
		if got := b.check(b.s.Logfiles()[0])[0]; !slices.Equal(got, want) {
			t.Errorf("after a restart: got %v, want %v", got, want)
		}
		b.close()
		if count < nth {
			break
		}
	}
}

func equalCounts(a, b map[sample.Index]int) bool {
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return len(a) == len(b)
}

// A disk that fails all writes makes holes, but no append hangs and no place is lost.
func TestAllWritesFail(t *testing.T) {
	const n = 60
	b := newBed(t, 1, 4096, 6, randomSizes(n, 4096, 9000, 13))
	b.open()
	l := b.begin(0, 0, 3, 60, n)
	failing(b.opts.IO, true, func(int64) bool { return true })
	for i := range uint32(n) {
		b.append(l, int(i)%3, i)
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.books()
	if b.s.Free() != 6 {
		t.Errorf("%d of 6 places free", b.s.Free())
	}
	b.close()
	if len(b.losses()) != n {
		t.Errorf("%d samples reported lost, want %d", len(b.losses()), n)
	}
}

// While no place will be freed, a block without a place becomes a hole at once, and so does a block that waits already. Options.Lost is called for both.
func TestNoneFreed(t *testing.T) {
	const n, places = 8, 4
	b := newBed(t, 1, 4096, places, slices.Repeat([]uint32{4096}, n))
	b.open()
	l := b.begin(0, 0, 1, n, n)
	for i := range uint32(places + 1) {
		b.append(l, 0, i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := l.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a block without a place was flushed: %v", err)
	}
	b.s.SetNoFrees(true)
	for i := uint32(places + 1); i < n; i++ {
		b.append(l, 0, i)
	}
	if err := l.Seal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.losses(); len(got) != n-places || got[places] != 1 || got[n-1] != 1 {
		t.Errorf("%v reported lost, want the last %d samples", got, n-places)
	}
	b.s.SetNoFrees(false)
	if err := l.FreeBlocks(0, 1); err != nil {
		t.Fatal(err)
	}
	b.books()
	b.close()
}

// A Logfile fails its own blocks that wait for a place: their buffers are free, and blocks of the other Logfile keep waiting.
func TestFailWaiting(t *testing.T) {
	const n, places = 8, 4
	b := newBed(t, 1, 4096, places, slices.Repeat([]uint32{4096}, n))
	b.open()
	filled, other := b.begin(0, 0, 1, n, n), b.begin(1, 1, 1, n, n)
	for i := range uint32(places + 2) {
		b.append(filled, 0, i)
	}
	b.append(other, 0, n-1)
	filled.FailWaiting()
	if err := filled.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.losses(); len(got) != 2 || got[places] != 1 || got[places+1] != 1 {
		t.Errorf("%v reported lost, want samples %d and %d", got, places, places+1)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := other.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the other Logfile's block does not wait: %v", err)
	}
	if err := filled.FreeBlocks(0, 1); err != nil {
		t.Fatal(err)
	}
	if err := other.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.books()
	b.close()
}

// TestFailWaitingForATurn: a block that waits although places are free, because its device has enough writes in flight, does not fail; one behind it that
// has no place does.
func TestFailWaitingForATurn(t *testing.T) {
	const inFlight, places = 4, 6
	b := newBed(t, 1, 4096, places, slices.Repeat([]uint32{4096}, places+1))
	b.open()
	hold := make(chan struct{})
	blockio.Inject(b.opts.IO, func(int64, *blockio.Op) blockio.Fault { return blockio.Fault{Hold: hold} })
	busy, filled := b.begin(0, 0, 1, inFlight, inFlight), b.begin(1, 1, 1, places, places)
	for i := range uint32(inFlight) {
		b.append(busy, 0, i)
	}
	for i := uint32(inFlight); i <= places; i++ {
		b.append(filled, 0, i)
	}
	for began := time.Now(); b.s.Free() != places-inFlight; time.Sleep(time.Millisecond) { // the places are noted first
		if time.Since(began) > 10*time.Second {
			t.Fatalf("%d places are free, want %d: as many blocks wait for their turn", b.s.Free(), places-inFlight)
		}
	}
	filled.FailWaiting()
	if got := b.losses(); len(got) != 1 || got[places] != 1 {
		t.Errorf("%v reported lost, want sample %d", got, places)
	}
	blockio.Inject(b.opts.IO, nil)
	close(hold)
	if err := filled.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.books()
	b.close()
}

func TestNthReadFails(t *testing.T) {
	b := newBed(t, 2, 4096, 40, []uint32{9000, 100, 4096}) // on two devices no block follows another one
	b.open()
	defer b.close()
	l := b.begin(0, 0, 1, 40, 3)
	for i := range uint32(3) {
		b.append(l, 0, i)
		b.flush(l) // so that each block is dealt to the next device
	}
	if err := l.WriteTails(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(t.Context()); err != nil { // else some of it is served from memory
		t.Fatal(err)
	}
	for nth := int64(0); nth < 3; nth++ { // the first sample is in three blocks
		failing(b.opts.IO, false, func(i int64) bool { return i == nth })
		if _, err := l.Read(t.Context(), 0, 0, 9000, aligned(t, Span(0, 9000))); !isErr(err, unix.EIO) {
			t.Errorf("read %d failed: got %v", nth, err)
		}
		b.s.devices[0].read = newHealth(asideErrors, hungTicks, time.Hour) // a minute later, as far as the device's state is concerned
	}
	failing(b.opts.IO, false, func(int64) bool { return true })
	if err := readBlock(l, 0, 0, aligned(t, 4096)); !isErr(err, unix.EIO) {
		t.Errorf("got %v", err)
	}
	if got := b.s.Stats().ReadErrors; got != 4 {
		t.Errorf("%d read errors counted, want 4", got)
	}
	blockio.Inject(b.opts.IO, nil)
	if got := b.check(l)[0]; len(got) != 3 {
		t.Errorf("after the trouble: %v", got)
	}
}

// A hung read ends with its context, and reports when the buffer is free.
func TestReadHangs(t *testing.T) {
	b := newBed(t, 1, 4096, 40, []uint32{4096})
	b.open()
	defer b.close()
	l := b.begin(0, 0, 1, 40, 3)
	b.append(l, 0, 0)
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	blockio.Inject(b.opts.IO, func(int64, *blockio.Op) blockio.Fault { return blockio.Fault{Hold: hold} })
	defer blockio.Inject(b.opts.IO, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Read(ctx, 0, 0, 4096, aligned(t, 4096))
	pending, ok := err.(interface{ Unwrap() error }).Unwrap().(*PendingError)
	if !ok || !isErr(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	select {
	case <-pending.Done:
		t.Error("done while it hangs")
	default:
	}
	close(hold)
	<-pending.Done
}

// A hung write delays only its own buffer: the block is served from memory meanwhile.
func TestWriteHangs(t *testing.T) {
	b := newBed(t, 1, 4096, 40, []uint32{4096, 4096, 5000})
	b.open()
	l := b.begin(0, 0, 2, 40, 3)
	hold := make(chan struct{})
	blockio.Inject(b.opts.IO, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Write && op.Offset == 0 {
			return blockio.Fault{Hold: hold}
		}
		return blockio.Fault{}
	})
	for i := range uint32(3) {
		b.append(l, 0, i)
	}
	if got := b.check(l)[0]; len(got) != 3 {
		t.Errorf("while a write hangs: %v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	if err := l.Flush(ctx); !isErr(err, context.DeadlineExceeded) {
		t.Errorf("flush: %v", err)
	}
	cancel()
	if err := l.FreeBlocks(0, 1); err != nil { // freed on its way
		t.Fatal(err)
	}
	close(hold)
	b.books()
	blockio.Inject(b.opts.IO, nil)
	b.close()
	b.open()
	if got := b.check(b.s.Logfiles()[0])[0]; !slices.Equal(got, []uint32{1, 2}) {
		t.Errorf("after a restart: %v", got)
	}
	b.close()
}

// A failed sync is reported by every later Seal and by Close, and is not retried.
// Lengths that are learnt are durable before the records that need them, and that they can't be made so is an error of the Logfile.
func TestSyncSizes(t *testing.T) {
	b := newBed(t, 1, 4096, 40, []uint32{4096, 4096})
	var before, syncs int
	var fails error
	b.opts.SyncSizes = func() error {
		if before++; syncs != before-1 {
			t.Errorf("lengths synced after the blocks: %d and %d times", before, syncs)
		}
		return fails
	}
	b.open()
	l := b.begin(0, 0, 1, 40, 3)
	blockio.Inject(b.opts.IO, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Buf == nil {
			syncs++
		}
		return blockio.Fault{}
	})
	b.append(l, 0, 0)
	if err := l.Seal(t.Context()); err != nil || before != 1 || syncs != 1 {
		t.Errorf("seal: %v, lengths synced %d times, the arena %d times", err, before, syncs)
	}
	fails = unix.EIO
	b.append(l, 0, 1)
	if err := l.Seal(t.Context()); !isErr(err, unix.EIO) {
		t.Errorf("seal when lengths can't be synced: %v", err)
	}
	blockio.Inject(b.opts.IO, nil)
	if err := b.s.Close(); !isErr(err, unix.EIO) {
		t.Errorf("close: %v", err)
	}
}

func TestSyncFails(t *testing.T) {
	b := newBed(t, 2, 4096, 40, []uint32{4096, 4096})
	b.open()
	l := b.begin(0, 0, 1, 40, 3)
	b.append(l, 0, 0)
	syncs := 0
	blockio.Inject(b.opts.IO, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Buf == nil {
			if syncs++; syncs <= 2 { // one for each arena
				return blockio.Fault{Err: unix.EIO}
			}
		}
		return blockio.Fault{}
	})
	if err := l.Seal(t.Context()); !isErr(err, unix.EIO) {
		t.Errorf("first seal: %v", err)
	}
	if err := l.Seal(t.Context()); !isErr(err, unix.EIO) {
		t.Errorf("second seal: %v", err)
	}
	if blockio.Inject(b.opts.IO, nil); syncs != 2 {
		t.Errorf("%d syncs of two arenas: failed ones were tried again", syncs)
	}
	if got := b.s.Stats().SyncErrors; got != 1 {
		t.Errorf("%d sync errors counted, want 1", got)
	}
	fresh := b.begin(1, 1, 1, 40, 3)
	b.append(fresh, 0, 1)
	if err := fresh.Seal(t.Context()); err != nil {
		t.Errorf("a logfile begun later: %v", err)
	}
	if err := b.s.Close(); !isErr(err, unix.EIO) {
		t.Errorf("close: %v", err)
	}
}

// A journal that can't be written costs durability only.
func TestJournalCannotBeWritten(t *testing.T) {
	b := newBed(t, 1, 4096, 40, []uint32{4096, 4096})
	b.open()
	l := b.begin(0, 0, 1, 40, 3)
	l.journal.wmu.Lock()
	f := l.journal.f
	readOnly, err := os.Open(b.s.journalPath(0))
	if err != nil {
		t.Fatal(err)
	}
	l.journal.f = readOnly
	l.journal.wmu.Unlock()
	b.append(l, 0, 0)
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.s.flushJournals()
	if b.s.Stats().JournalErrors == 0 {
		t.Error("no error was counted")
	}
	l.journal.wmu.Lock()
	readOnly.Close()
	l.journal.f = f
	l.journal.wmu.Unlock()
	b.append(l, 0, 1)
	b.close()
	b.open()
	if got := b.check(b.s.Logfiles()[0])[0]; !slices.Equal(got, []uint32{0, 1}) {
		t.Errorf("records written late: %v", got)
	}
	b.close()
}
