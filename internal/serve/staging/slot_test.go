package staging

import (
	"slices"
	"testing"

	"lcache/sample"
)

// tens lists the samples of a segment, for an epoch layout with 10 samples in each.
func tens(owner Segment, f func(sample.Index)) {
	for i := range 10 {
		f(sample.Index(owner.Segment*10 + i))
	}
}

func always(Segment) bool { return true }

// take calls Take once.
func take(s *Staging, want ...sample.Index) (h Hold, absent int, out []Address) {
	out = make([]Address, len(want))
	absent = s.Take(&h, want, make([]bool, len(want)), make([]bool, len(want)), out)
	return h, absent, out
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestSlotLifeCycle(t *testing.T) {
	s := newStaging(t, Options{Samples: 40, Slots: 2, SlotBytes: 4096})
	owner := Segment{Log: 1, Segment: 2}
	a, ok := s.Acquire(owner)
	if !ok {
		t.Fatal("no free slot")
	}
	if _, ok := s.Acquire(Segment{1, 3}); !ok {
		t.Fatal("no second slot")
	}
	if _, ok := s.Acquire(Segment{1, 0}); ok {
		t.Fatal("a third slot of two")
	}
	s.Publish(21, uint64(a*4096), sample.FromLog)
	s.Publish(22, uint64(a*4096+64), sample.FromSource)
	if n := s.Reclaim(always, tens); n != 0 || !s.Present(21) {
		t.Errorf("%d slots were taken back while they are loading", n)
	}
	h, absent, out := take(s, 21, 22, 21)
	if absent != 0 || out[0] != (Address{uint64(a * 4096), sample.FromLog}) || out[1] != (Address{uint64(a*4096 + 64), sample.FromSource}) || out[2] != out[0] {
		t.Fatalf("%d absent, %+v", absent, out)
	}
	changed := s.Changed()
	s.Ready(a)
	if !isClosed(changed) {
		t.Error("the ready slot woke no waiter")
	}
	steps := []struct {
		what string
		do   func()
		free int
	}{
		{"held", func() {}, 0},
		{"pinned", func() { s.Pin(a); s.Release(&h) }, 0},
		{"not passed", func() { s.Unpin(a) }, 0},
		{"idle", func() {}, 1},
		{"free", func() {}, 0},
	}
	for _, step := range steps {
		step.do()
		done := func(o Segment) bool { return o == owner && step.what != "not passed" }
		if n := s.Reclaim(done, tens); n != step.free {
			t.Errorf("%s: %d slots were reclaimed, want %d", step.what, n, step.free)
		}
		if got, want := s.Present(21), step.what != "idle" && step.what != "free"; got != want {
			t.Errorf("%s: its samples are present: %v, want %v", step.what, got, want)
		}
	}
	if got, ok := s.Acquire(Segment{2, 0}); !ok || got != a {
		t.Errorf("slot %d, %v; want %d again", got, ok, a)
	}
	held := map[Segment]int{}
	s.Holders(func(o Segment, refs int) { held[o] = refs })
	if len(held) != 2 || held[Segment{1, 3}] != 0 {
		t.Errorf("slots hold %v", held)
	}
}

// Take holds all or nothing: a request that waits for one sample must not keep the slots of the others from being
// reused.
func TestTakeHoldsAllOrNothing(t *testing.T) {
	s := newStaging(t, Options{Samples: 40, Slots: 1, SlotBytes: 4096, MissBytes: 8192})
	a, _ := s.Acquire(Segment{1, 0})
	x, _ := s.Alloc(Miss, 7, 10)
	x = publish(s, x, x.Buf[:10], sample.FromSource)
	s.Publish(0, 0, sample.FromLog)
	s.Ready(a)
	want := []sample.Index{0, 1, 2, 7, 0}
	have, there, out := make([]bool, 5), make([]bool, 5), make([]Address, 5)
	have[2] = true // it came in another way
	out[2] = Address{Offset: 999}
	refs := func() (n int) {
		s.Holders(func(_ Segment, refs int) { n += refs })
		return n
	}
	var h Hold
	if n := s.Take(&h, want, have, there, out); n != 1 || !slices.Equal(there, []bool{true, false, true, true, true}) {
		t.Errorf("%d absent, there %v; want sample 1 alone to be absent", n, there)
	}
	if refs() != 0 || !s.Kept(x) || slices.Contains([]bool{have[0], have[1], have[3]}, true) {
		t.Errorf("held %d times, kept %v, have %v though a sample is absent", refs(), s.Kept(x), have)
	}
	s.Publish(1, 64, sample.FromSource)
	if n := s.Take(&h, want, have, there, out); n != 0 || slices.Contains(have, false) || out[1] != (Address{64, sample.FromSource}) || out[2].Offset != 999 {
		t.Errorf("%d absent, have %v, %v", n, have, out)
	}
	if refs() != 1 || s.Kept(x) {
		t.Errorf("the slot is held %d times, want once for three samples; kept %v", refs(), s.Kept(x))
	}
	if n := s.Take(&h, want, have, there, out); n != 0 || refs() != 1 {
		t.Errorf("taken again: %d absent, held %d times", n, refs())
	}
	s.Release(&h)
	s.Release(&h) // a released Hold holds nothing
	if s.Reclaim(always, tens) != 1 || s.Present(7) {
		t.Error("the one Hold did not return all samples")
	}
}

// Two epochs overlap: a sample is in the slots of both layouts. Reclaiming either must not harm the other.
func TestOneSampleInTwoSlots(t *testing.T) {
	for _, newerGoesFirst := range []bool{false, true} {
		s := newStaging(t, Options{Samples: 40, Slots: 2, SlotBytes: 4096})
		old, _ := s.Acquire(Segment{1, 0})
		newer, _ := s.Acquire(Segment{2, 0})
		s.Publish(3, s.OffsetOf(s.Slot(old)), sample.FromSource)
		before, absent, _ := take(s, 3)
		s.Publish(3, s.OffsetOf(s.Slot(newer))+64, sample.FromLog)
		after, absent2, out := take(s, 3)
		if absent+absent2 != 0 || out[0] != (Address{s.OffsetOf(s.Slot(newer)) + 64, sample.FromLog}) {
			t.Fatalf("absent %d and %d, %+v", absent, absent2, out)
		}
		s.Ready(old)
		s.Ready(newer)
		if s.Reclaim(always, tens) != 0 {
			t.Error("a slot was taken back under a Hold")
		}
		if newerGoesFirst {
			s.Release(&after)
		} else {
			s.Release(&before)
		}
		if s.Reclaim(always, tens) != 1 || s.Present(3) == newerGoesFirst {
			t.Errorf("newer first %v: present %v", newerGoesFirst, s.Present(3))
		}
		s.Release(&before)
		s.Release(&after)
		if s.Reclaim(always, tens) != 1 || s.Present(3) {
			t.Errorf("newer first %v: the second slot does not come back", newerGoesFirst)
		}
	}
}

// While the addresses of a slot are being withdrawn, it can be neither taken from nor acquired.
func TestTakeDuringWithdrawal(t *testing.T) {
	s := newStaging(t, Options{Samples: 40, Slots: 1, SlotBytes: 4096})
	a, _ := s.Acquire(Segment{1, 0})
	s.Publish(3, 0, sample.FromLog)
	s.Ready(a)
	looked := false
	freed := s.Reclaim(always, func(o Segment, f func(sample.Index)) {
		looked = true
		if h, absent, _ := take(s, 3); absent != 1 || len(h.slots) != 0 {
			t.Error("a sample of a slot that is being withdrawn was handed out")
		}
		if _, ok := s.Acquire(Segment{1, 1}); ok {
			t.Error("the slot was reused before its addresses were withdrawn")
		}
		s.Holders(func(o Segment, _ int) { t.Errorf("%v still has a slot", o) })
		tens(o, f)
	})
	if freed != 1 || !looked {
		t.Errorf("%d slots were reclaimed, members was called for %v", freed, looked)
	}
}

func TestAfterClose(t *testing.T) {
	s := newStaging(t, Options{Samples: 40, Slots: 2, SlotBytes: 4096, SideBytes: 8192})
	a, _ := s.Acquire(Segment{1, 0})
	s.Publish(3, 0, sample.FromLog)
	s.Ready(a)
	h, _, _ := take(s, 3)
	x, _ := s.Alloc(Side, 4, 100)
	y, _ := s.Alloc(Side, 5, 100)
	y = publish(s, y, y.Buf[:100], sample.FromSource)
	s.Close()
	s.Close()
	if _, absent, _ := take(s, 3, 5); absent != 2 {
		t.Errorf("%d of 2 are absent", absent)
	}
	if _, ok := s.Alloc(Side, 6, 1); ok {
		t.Error("memory was given after Close")
	}
	s.Release(&h)
	s.Drop(x)
	s.KeepAtMost(y, 0)
	if n := s.Reclaim(always, tens); n != 0 {
		t.Errorf("%d slots were taken back after Close", n)
	}
}
