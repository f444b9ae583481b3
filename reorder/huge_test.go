package reorder_test

import (
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"lcache/chunker"
	"lcache/internal/disk/blockio"
	"lcache/reorder"
	"lcache/sample"
)

// mostPacked is the largest sample of these tests that is compressed.
const mostPacked = 2 * block

// hugeSizes has samples that cross blocks, and some that take four to seven of them, stored as they are: one of exactly four.
func hugeSizes(n int, seed uint64) []uint32 {
	sizes := randomSizes(n, seed)
	for i := range sizes {
		sizes[i] = min(sizes[i], mostPacked)
		if i%10 == 3 || i%10 == 4 {
			sizes[i] = 4*block + uint32(i)*64
		}
	}
	sizes[3] = 4 * block
	return sizes
}

// hugeSpec has scratch memory for packed samples alone, and slots with room to begin huge samples at pages.
func hugeSpec(n int, seed uint64) spec {
	return spec{sizes: hugeSizes(n, seed), workers: 2, packed: true, most: mostPacked, room: 8 * block}
}

// Samples larger than scratch memory reach the slot through two Logfiles, with their bytes and without the source. So do samples that would compress.
func TestHugeSamples(t *testing.T) {
	const n = 60
	for seed := range uint64(4) {
		b := newBed(t, hugeSpec(n, 60+seed))
		l, next, target := b.twoLogs(60 + seed)
		huge := 0
		for i := range sample.Index(n) {
			if b.Form.IsHuge(i) {
				huge++
			}
			if b.Sizes[i] > mostPacked && b.Form.Packed(i) {
				t.Errorf("sample %d of %d bytes is compressed", i, b.Sizes[i])
			}
		}
		if huge != n/5 || b.Form.LargestPacked() > mostPacked {
			t.Errorf("%d samples are huge, want %d; the largest of the others has %d bytes", huge, n/5, b.Form.LargestPacked())
		}
		b.over(l, target, 2)
		b.inLog(1, next.Layout.Order)
		third, segment := b.line(0, permutation(n, 70+seed))
		b.over(next, b.aim(third, segment), 2)
		b.inLog(0, third.Layout.Order)
		if reads := len(b.Source.Reads()); reads > 0 || b.Fetcher.Stats.CorruptSamples.Load() > 0 {
			t.Errorf("%d samples came from the source", reads)
		}
	}
}

// A huge sample that the slot has no room for, as a crash may leave one, is appended without the slot, and takes no scratch memory.
func TestHugeSampleWithoutRoom(t *testing.T) {
	const n = 40
	s := hugeSpec(n, 64)
	b := newBed(t, s)
	order := permutation(n, 64)
	starts := []uint64{0, uint64(n)} // all in one segment, which the slot does not hold
	l := &reorder.EpochLog{ID: 99, Log: b.Begin(0, starts, s.blocks()+1), Layout: &chunker.EpochLayout{Order: order, Used: n, Starts: starts}}
	for _, i := range order {
		b.Fill(l.Log, 0, i)
	}
	if err := l.Log.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	next, segment := b.line(1, permutation(n, 65))
	_, done := b.load(l, 0, b.aim(next, segment), reorder.Deliver)
	b.wait(done)
	b.holds(slices.DeleteFunc(slices.Clone(order), func(i sample.Index) bool { return !b.Staging.Present(i) }))
	b.inLog(1, order)
	if reads := len(b.Source.Reads()); reads > 0 {
		t.Errorf("%d samples came from the source", reads)
	}
}

// A late block of a huge sample is read to its position in the slot, where nothing was published. The slot is kept until then.
func TestHugeSampleLate(t *testing.T) {
	const n = 40
	inSlot := 0
	for nth := range int64(8) {
		s := hugeSpec(n, 61)
		s.slots, s.scratch, s.scan.BlockTimeout = 1, 4, soon
		b := newBed(t, s)
		l, next, target := b.twoLogs(61)
		held, release := gate(t)
		var late atomic.Pointer[[]byte] // where the block goes, if that is in the slot
		b.inject(false, func(k int64, op *blockio.Op) blockio.Fault {
			if k != nth {
				return blockio.Fault{}
			}
			if b.Staging.OffsetOf(op.Buf) < uint64(b.Staging.Bytes()) {
				late.Store(&op.Buf)
			}
			return blockio.Fault{Hold: held, Flip: 1 + 8*100}
		})
		_, done := b.load(l, 0, target, reorder.Deliver)
		b.wait(done)
		there := slices.DeleteFunc(slices.Clone(l.Layout.Members(0)), func(i sample.Index) bool { return !b.Staging.Present(i) })
		out := b.holds(there)
		if buf := late.Load(); buf != nil {
			inSlot++
			from := b.Staging.OffsetOf(*buf)
			for k, a := range out {
				if a.Offset < from+block && a.Offset+uint64(b.Sizes[there[k]]) > from {
					t.Errorf("read %d: sample %d lies where the late block may still land", nth, there[k])
				}
			}
			if b.reclaim(l) != 0 {
				t.Errorf("read %d: the slot was taken back before the block came", nth)
			}
		}
		release()
		blockio.Inject(b.io, nil)
		for {
			changed := b.Staging.Changed()
			b.holds(there) // as long as it is there it stays right
			if b.reclaim(l) > 0 {
				break
			}
			<-changed
		}
		for seg := 1; seg < int(l.Log.Header().Segments); seg++ { // needs all of scratch in the end
			_, done := b.load(l, seg, target, reorder.Deliver)
			b.wait(done)
		}
		b.inLog(1, next.Layout.Order)
	}
	if inSlot < 2 || inSlot == 8 {
		t.Errorf("%d of 8 late blocks went to the slot; want some of each kind", inSlot)
	}
}

// Each read of a scan fails once: all samples are delivered and appended.
func TestHugeSampleReadFails(t *testing.T) {
	const n = 30
	for nth := int64(0); ; nth++ {
		b := newBed(t, hugeSpec(n, 62))
		l, next, target := b.twoLogs(62)
		var failed atomic.Bool
		b.inject(false, func(k int64, _ *blockio.Op) blockio.Fault {
			if k != nth {
				return blockio.Fault{}
			}
			failed.Store(true)
			return blockio.Fault{Err: unix.EIO}
		})
		b.over(l, target, 2)
		blockio.Inject(b.io, nil)
		b.inLog(1, next.Layout.Order)
		if reads := len(b.Source.Reads()); reads > 0 {
			t.Errorf("read %d failed: %d samples came from the source", nth, reads)
		}
		if !failed.Load() {
			return
		}
	}
}

// A disk that does not answer delays the load and the scan only until it answers.
func TestHugeSampleDiskHangs(t *testing.T) {
	const n = 60
	s := hugeSpec(n, 63)
	s.slots, s.scan.BlockTimeout = 1, soon
	b := newBed(t, s)
	l, next, target := b.twoLogs(63)
	answer := b.hangDisk(t)
	_, done := b.load(l, 0, target, reorder.Deliver)
	b.wait(done)
	answer()
	for seg := 1; seg < int(l.Log.Header().Segments); seg++ {
		for b.reclaim(l) == 0 {
		}
		_, done := b.load(l, seg, target, reorder.Deliver)
		b.wait(done)
	}
	b.inLog(1, next.Layout.Order)
}
