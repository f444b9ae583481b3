package reorder_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/disk/blockio"
	"lcache/internal/serve/fetch"
	"lcache/reorder"
	"lcache/sample"
	"lcache/source/sourcetest"
)

// The n-th read of the disk fails, once or permanently, for every n of a scan. All samples are delivered and appended, and the source is
// read only for samples that the disk really can't return.
func TestEveryReadFails(t *testing.T) {
	const n = 30
	for _, forGood := range []bool{false, true} {
		for nth := int64(0); ; nth++ {
			b := newBed(t, spec{sizes: randomSizes(n, 20), workers: 2})
			l, next, target := b.twoLogs(20)
			var bad atomic.Int64 // offset + 1 of the block that can't be read
			b.inject(false, func(k int64, op *blockio.Op) blockio.Fault {
				if k == nth {
					bad.Store(op.Offset/block + 1)
					return blockio.Fault{Err: unix.EIO}
				}
				if forGood && bad.Load() == op.Offset/block+1 {
					return blockio.Fault{Err: unix.EIO}
				}
				return blockio.Fault{}
			})
			b.over(l, target, 2)
			blockio.Inject(b.io, nil)
			b.inLog(1, next.Layout.Order)
			if reads := len(b.Source.Reads()); !forGood && reads > 0 || reads > n/2 {
				t.Errorf("read %d failed, for good %v: %d samples came from the source", nth, forGood, reads)
			}
			if bad.Load() == 0 {
				break
			}
		}
	}
}

// Damage on the disk costs one read from the source for each damaged sample, and is counted for each, whether its compressed bytes still unpack or not.
func TestDamagedBlock(t *testing.T) {
	for _, c := range []struct {
		s     spec
		first sample.Index // how many samples are scrambled
		least int
	}{
		{spec{sizes: slices.Repeat([]uint32{1500}, 40), workers: 2}, 5, 1},
		{spec{sizes: slices.Repeat([]uint32{5500}, 60), workers: 2, packed: true}, 9, 6},
	} {
		b := newBed(t, c.s)
		l, next, target := b.twoLogs(22)
		damaged := 0
		for i := range c.first {
			damaged += b.Scramble(i)
		}
		b.over(l, target, 2)
		b.inLog(1, next.Layout.Order)
		if got := len(b.Source.Reads()); got != damaged || damaged < c.least || b.Fetcher.Stats.CorruptSamples.Load() != int64(damaged) {
			t.Errorf("packed %v: %d samples damaged, %d read from the source, %d counted", c.s.packed, damaged, got, b.Fetcher.Stats.CorruptSamples.Load())
		}
	}
}

// A late block is given up: its samples come from the source, and are never written to the places where its bytes may still
// arrive. The slot is not reused before they have.
func TestLateBlock(t *testing.T) {
	const n = 40
	for nth := range int64(8) {
		b := newBed(t, spec{sizes: randomSizes(n, 24), workers: 2, slots: 1, scan: reorder.Options{BlockTimeout: soon}})
		l, _, target := b.twoLogs(24)
		held, release := gate(t)
		var offset, length atomic.Int64 // of the late block in staging
		b.inject(false, func(k int64, op *blockio.Op) blockio.Fault {
			if k != nth {
				return blockio.Fault{}
			}
			offset.Store(int64(b.Staging.OffsetOf(op.Buf)))
			length.Store(int64(len(op.Buf)))
			return blockio.Fault{Hold: held, Flip: 1 + 8*100} // the late bytes are also wrong
		})
		slot, done := b.load(l, 0, target, reorder.Deliver)
		b.wait(done)
		if length.Load() == 0 {
			break // fewer blocks than that
		}
		members := l.Layout.Members(0)
		var here []sample.Index // a sample without room in the slot is served by index
		for _, i := range members {
			if b.Staging.Present(i) {
				here = append(here, i)
			}
		}
		if b.scan.Stats.LateBlocks.Load() == 1 && len(here) < len(members)/2 { // on a busy machine others may be late too
			t.Errorf("block %d: %d of %d samples were published", nth, len(here), len(members))
		}
		out := b.holds(here)
		for k, a := range out {
			end := a.Offset + uint64(b.Sizes[here[k]])
			if a.Offset < uint64(offset.Load()+length.Load()) && end > uint64(offset.Load()) {
				t.Errorf("block %d: sample %d lies where the late block may still land", nth, here[k])
			}
		}
		if b.scan.Stats.LateBlocks.Load() == 0 || b.reclaim(l) != 0 {
			t.Errorf("block %d: %d late blocks, and slot %d was taken back before they came", nth, b.scan.Stats.LateBlocks.Load(), slot)
		}
		release()
		for {
			changed := b.Staging.Changed()
			b.holds(here) // as long as it is there it stays right
			if b.reclaim(l) > 0 {
				break
			}
			<-changed
		}
		b.inLog(1, members)
	}
}

// Regression: when a whole segment was late, each of its samples that found no room in the slot waited for the disk again.
func TestLateSegmentDoesNotAskTheDiskAgain(t *testing.T) {
	const n = 30
	for _, inFlight := range []int{16, 1} { // all blocks hang, or one, and the others are not begun
		b := newBed(t, spec{sizes: slices.Repeat([]uint32{2000}, n), workers: 1, slots: 1, scan: reorder.Options{BlockTimeout: soon, InFlight: inFlight}, fetch: fetch.Options{LogTimeout: time.Hour}})
		l, _, target := b.twoLogs(26)
		held, release := gate(t)
		var begun atomic.Int64
		b.inject(false, func(int64, *blockio.Op) blockio.Fault { begun.Add(1); return blockio.Fault{Hold: held} })
		_, done := b.load(l, 0, target, reorder.Deliver)
		b.wait(done)
		if got := begun.Load(); got > int64(inFlight) || got == 0 {
			t.Errorf("%d blocks at once: %d were begun", inFlight, got)
		}
		release()
		for _, i := range l.Layout.Members(0) {
			if !b.Locations.In(i, 1) {
				t.Errorf("%d blocks at once: sample %d was not written on", inFlight, i)
			}
		}
	}
}

// Segments that are loaded at once have a bounded number of blocks in flight, the first one's first.
func TestBlocksInFlight(t *testing.T) {
	const most = 2
	b := newBed(t, spec{sizes: slices.Repeat([]uint32{2000}, 60), workers: 2, scan: reorder.Options{InFlight: most}})
	l, _, target := b.twoLogs(26)
	first := b.Staging.OffsetOf(b.Staging.Slot(0)[:1])
	var inFlight, worst, late atomic.Int64
	var second atomic.Bool
	b.inject(false, func(_ int64, op *blockio.Op) blockio.Fault {
		if inSecond := b.Staging.OffsetOf(op.Buf) >= first+uint64(b.Staging.SlotBytes()); inSecond {
			second.Store(true)
		} else if second.Load() {
			late.Add(1)
		}
		worst.Store(max(worst.Load(), inFlight.Add(1)))
		held := make(chan struct{})
		time.AfterFunc(time.Millisecond, func() { inFlight.Add(-1); close(held) })
		return blockio.Fault{Hold: held}
	})
	slot, done := b.load(l, 0, target, reorder.Deliver)
	_, doneToo := b.load(l, 1, target, reorder.Deliver)
	b.wait(done)
	b.wait(doneToo)
	if slot != 0 || !second.Load() {
		t.Fatalf("the first segment was loaded to slot %d; a second one was read: %t", slot, second.Load())
	}
	if worst.Load() != most || late.Load() > 0 {
		t.Errorf("%d blocks were in flight at once, want %d; %d of the first segment came after the second one's", worst.Load(), most, late.Load())
	}
}

// Writes fail from the n-th on, for some n. Samples that the disk did not accept are reported lost, have no location, and are supplied in the next
// epoch, with the right bytes.
func TestWritesFail(t *testing.T) {
	const n = 60
	lost := 0
	for nth := int64(0); nth < 40; nth += 6 {
		b := newBed(t, spec{sizes: randomSizes(n, 28), workers: 3})
		l, next, target := b.twoLogs(28)
		b.inject(true, func(k int64, _ *blockio.Op) blockio.Fault {
			if k >= nth && k < nth+6 {
				return blockio.Fault{Err: unix.EIO}
			}
			return blockio.Fault{}
		})
		b.over(l, target, 2)
		if err := next.Log.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		blockio.Inject(b.io, nil)
		if len(b.Source.Reads()) != 0 {
			t.Errorf("from write %d: the source was read in an epoch that only could not be written on", nth)
		}
		if err := b.Store.Drop(0); err != nil {
			t.Fatal(err)
		}
		b.lossy = true
		last, segment := b.line(0, permutation(n, 30))
		b.over(next, b.aim(last, segment), 2)
		b.inLog(0, last.Layout.Order)
		for i := range b.Lost() {
			if b.Source.Reads()[b.Name(i)] == 0 {
				t.Errorf("from write %d: lost sample %d was not read from the source again", nth, i)
			}
		}
		lost += len(b.Lost())
		if got := len(b.Source.Reads()); got > len(b.Lost()) || b.Fetcher.Stats.CorruptSamples.Load() != 0 {
			t.Errorf("from write %d: %d samples lost, %d read from the source, %d counted as damaged", nth, len(b.Lost()), got, b.Fetcher.Stats.CorruptSamples.Load())
		}
	}
	if lost == 0 {
		t.Error("no failure lost anything: this tests nothing")
	}
}

// A disk that accepts no writes delays the scan by the deadline of a write. The samples are dropped and counted, and
// become misses.
func TestWritesHang(t *testing.T) {
	const n = 60
	b := newBed(t, spec{sizes: slices.Repeat([]uint32{3000}, n), workers: 4, slots: 1, scan: reorder.Options{WriteTimeout: time.Millisecond}})
	l, next, target := b.twoLogs(31)
	held, release := gate(t)
	b.inject(true, func(int64, *blockio.Op) blockio.Fault { return blockio.Fault{Hold: held} })
	b.over(l, target, 1)
	dropped := int64(0)
	for _, i := range l.Layout.Order {
		if b.Locations.Get(i) == 0 {
			dropped++
			if target.Router.Placed(i) {
				t.Errorf("sample %d is dropped, and yet placed", i)
			}
		}
	}
	if dropped == 0 || b.scan.Stats.Dropped.Load() != dropped {
		t.Errorf("%d samples have no place, %d counted as dropped; want the same, and some", dropped, b.scan.Stats.Dropped.Load())
	}
	release()
	if err := next.Log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A hung source pins the slot that it may still write to, and delays only its own samples.
func TestSourceHangsDuringAScan(t *testing.T) {
	const n = 30
	b := newBed(t, spec{sizes: slices.Repeat([]uint32{1000}, n), workers: 2, slots: 1, fetch: fetch.Options{SourceTimeout: 15 * soon, Jobs: 4}})
	l, _ := b.line(0, permutation(n, 33))
	held, release := gate(t)
	bad := l.Layout.Order[2]
	b.Source.Before(func(_ context.Context, e sample.Entry, dst []byte) error {
		if e.Name == b.Name(bad) {
			<-held
			clear(dst)
		}
		return nil
	})
	_, done := b.load(l, 0, nil, reorder.Deliver)
	b.wait(done)
	members := slices.DeleteFunc(slices.Clone(l.Layout.Order[:l.Layout.Starts[1]]), func(i sample.Index) bool { return i == bad })
	b.holds(members)
	if b.reclaim(l) != 0 {
		t.Error("the slot was taken back while the source may still write to it")
	}
	release()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := b.Fetcher.Close(ctx); err != nil {
		t.Fatal(err)
	}
	b.holds(members)
	if b.reclaim(l) != 1 {
		t.Error("the slot does not come back")
	}
}

// TestSlowBytesOutlastTheSilence: a source that keeps delivering bytes may take longer for a sample than the limit of silence, even if the sample's location in the log is damaged.
func TestSlowBytesOutlastTheSilence(t *testing.T) {
	const silence = 30 * soon
	b := newBed(t, spec{sizes: slices.Repeat([]uint32{1000}, 60), workers: 2, slots: 1, fetch: fetch.Options{SourceTimeout: silence, Jobs: 4}})
	l, next, target := b.twoLogs(12)
	_, done := b.load(l, 0, target, reorder.Deliver)
	b.wait(done)
	b.reclaim(l)
	if err := next.Log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(l.Layout.Members(0), func(i sample.Index) bool { return b.Scramble(i) == 2 }) // the last blocks of the next log are in memory only
	if at < 0 {
		t.Fatal("no sample is on disk in both logs")
	}
	bad := l.Layout.Members(0)[at]
	b.Source.Before(func(ctx context.Context, _ sample.Entry, _ []byte) error {
		for range 12 {
			time.Sleep(silence / 8)
			sourcetest.Moved(ctx)
		}
		return ctx.Err()
	})
	again := &reorder.EpochLog{ID: 99, Log: l.Log, Layout: l.Layout}
	_, done = b.load(again, 0, target, reorder.Deliver)
	b.wait(done)
	b.holds(l.Layout.Members(0))
	if n := b.Source.Reads()[b.Name(bad)]; n != 1 {
		t.Errorf("the damaged sample was read %d times from the source, want once", n)
	}
}
