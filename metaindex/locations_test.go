package metaindex_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"lcache/metaindex"
	"lcache/sample"
)

func newLocations(t testing.TB, n, align int) *metaindex.Locations {
	t.Helper()
	l, err := metaindex.NewLocations(n, align)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Free)
	return l
}

func TestLocAtItsLimits(t *testing.T) {
	const largest = 1<<42 - 2 // of offset / align: one is added, and zero stays nowhere
	for _, align := range []int{8, 64} {
		l := newLocations(t, 1, align)
		for _, slot := range []int{0, 1, 2} {
			for _, segment := range []int{0, 1, metaindex.MaxSegments - 1} {
				for _, unit := range []uint64{0, 1, largest - 1, largest} {
					off := unit * uint64(align)
					loc := l.At(slot, segment, off)
					gotSlot, gotSegment, gotOff, ok := l.Split(loc)
					if !ok || gotSlot != slot || gotSegment != segment || gotOff != off {
						t.Errorf("align %d: (%d, %d, %d) became (%d, %d, %d), %v", align, slot, segment, off, gotSlot, gotSegment, gotOff, ok)
					}
				}
			}
		}
		if _, _, _, ok := l.Split(0); ok {
			t.Error("nowhere is somewhere")
		}
	}
}

func FuzzLoc(f *testing.F) {
	f.Add(uint8(0), uint32(0), uint64(0), false)
	f.Add(uint8(1), uint32(1<<20-1), uint64(1<<42-2), true)
	f.Add(uint8(2), uint32(77), uint64(123456789), false)
	f.Fuzz(func(t *testing.T, which uint8, segment uint32, unit uint64, wide bool) {
		align, slot := 8, int(which%3)
		if wide {
			align = 64
		}
		segment, unit = segment%metaindex.MaxSegments, unit%(1<<42-1)
		l := newLocations(t, 1, align)
		l.Set(0, l.At(slot, int(segment), unit*uint64(align)))
		s, k, off, ok := l.Split(l.Get(0))
		if !ok || s != slot || k != int(segment) || off != unit*uint64(align) {
			t.Fatalf("(%d, %d, %d×%d) became (%d, %d, %d), %v", slot, segment, unit, align, s, k, off, ok)
		}
		if !l.In(0, slot) || l.In(0, (slot+1)%3) || l.In(0, (slot+2)%3) {
			t.Fatalf("slot %d: In does not know", slot)
		}
	})
}

func TestLocationsSetClear(t *testing.T) {
	l := newLocations(t, 3, 64)
	a, b := l.At(0, 5, 640), l.At(1, 5, 640)
	if l.Get(1) != 0 || l.In(1, 0) || l.In(1, 1) {
		t.Error("a fresh entry has a location")
	}
	if l.Clear(1, 0) {
		t.Error("cleared an entry without a location")
	}
	l.Set(1, a)
	if l.Clear(1, b) || l.Get(1) != a {
		t.Error("cleared a place that somebody else has set meanwhile")
	}
	l.Set(1, b)
	if l.Clear(1, a) || !l.Clear(1, b) || l.Get(1) != 0 {
		t.Error("want only the place that was seen to be cleared")
	}
	if !l.Move(1, 0, a) || l.Move(1, 0, b) || l.Get(1) != a || !l.Move(1, a, b) || l.Move(1, a, 0) || l.Get(1) != b {
		t.Error("want a sample to be moved from the place that was seen, also from nowhere")
	}
	if l.Get(0) != 0 || l.Get(2) != 0 {
		t.Error("neighbours were touched")
	}
	if l.Bytes() != 24 {
		t.Errorf("%d bytes, want 24", l.Bytes())
	}
}

// One mover moves each sample repeatedly, while others find that a location is bad: a Clear must never remove a location that was set since.
func TestLocationsConcurrently(t *testing.T) {
	const n, moves = 8, 2000
	l := newLocations(t, n, 64)
	var cleared [n]atomic.Int64
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for !stop.Load() {
				for i := range sample.Index(n) {
					saw := l.Get(i)
					slot, segment, off, ok := l.Split(saw)
					if ok && (segment != int(i) || slot != int(off/64%2)) {
						t.Errorf("sample %d: a place that was never set: slot %d segment %d offset %d", i, slot, segment, off)
						return
					}
					if l.Clear(i, saw) {
						cleared[i].Add(1)
					}
				}
			}
		})
	}
	var movers sync.WaitGroup
	for i := range sample.Index(n) {
		movers.Go(func() {
			for m := range uint64(moves) {
				l.Set(i, l.At(int(m%2), int(i), m*64))
			}
		})
	}
	movers.Wait()
	stop.Store(true)
	readers.Wait()
	for i := range sample.Index(n) {
		last := l.At((moves-1)%2, int(i), (moves-1)*64)
		if got := l.Get(i); got != last && got != 0 {
			t.Errorf("sample %d ends at %x, want %x or nowhere", i, got, last)
		}
		if c := cleared[i].Load(); c > moves {
			t.Errorf("sample %d was cleared %d times, set %d times", i, c, moves)
		}
	}
}
