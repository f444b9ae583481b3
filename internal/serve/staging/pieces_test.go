package staging

import (
	"testing"

	"lcache/sample"
)

// TestPieces: several samples of one read are published, kept and dropped one by one. The memory of the read is freed
// with the last.
func TestPieces(t *testing.T) {
	s := newStaging(t, Options{Samples: 10, Slots: 1, SlotBytes: 4096, MissBytes: 16384})
	whole := alloc(t, s, Miss, 1, 12000)
	out := make([]*Extent, 2)
	changed := s.Changed()
	s.PublishPieces([]Piece{{Of: whole, Index: 1, Data: whole.Buf[:3000], Takes: 2}, {Of: whole, Index: 2, Data: whole.Buf[4032:5000], Takes: 1, From: sample.FromSource}}, out)
	s.Drop(whole)
	if !isClosed(changed) || !s.Present(1) || !s.Present(2) || free(s, Miss) != 4096 {
		t.Fatalf("present %v and %v, %d bytes free", s.Present(1), s.Present(2), free(s, Miss))
	}
	first, absent, at := take(s, 2, 1, 1) // twice in one request: that is one Take
	if absent != 0 || at[0] != (Address{s.OffsetOf(whole.Buf) + 4032, sample.FromSource}) || at[1] != (Address{s.OffsetOf(whole.Buf), sample.FromLog}) {
		t.Fatalf("%d absent, %+v", absent, at)
	}
	if n := first.ExtentBytes(); n != 3*4096 {
		t.Errorf("held: %d bytes, want whole pages of each", n)
	}
	s.Release(&first)
	if !s.Present(1) || s.Present(2) || free(s, Miss) != 4096 {
		t.Errorf("after one of two Takes: present %v and %v, %d bytes free", s.Present(1), s.Present(2), free(s, Miss))
	}
	if !s.KeepMore(out[0]) || s.KeepMore(out[1]) {
		t.Error("want KeepMore to succeed for the live extent only")
	}
	s.KeepAtMost(out[0], 1)
	second, absent, _ := take(s, 1)
	if absent != 0 {
		t.Fatal("kept for a second Take, and not there")
	}
	s.KeepAtMost(out[0], 0)
	if !s.Present(1) {
		t.Error("withdrawn while it is held")
	}
	s.Release(&second)
	if s.Present(1) || free(s, Miss) != 16384 {
		t.Errorf("present %v, %d bytes free at the end", s.Present(1), free(s, Miss))
	}
}

// TestPieceBehindASlot: a sample in a slot keeps its address while a piece of it is published. It gets the piece's
// address when the slot is reclaimed.
func TestPieceBehindASlot(t *testing.T) {
	s := newStaging(t, Options{Samples: 10, Slots: 1, SlotBytes: 4096, MissBytes: 16384})
	owner := Segment{Log: 1}
	slot, _ := s.Acquire(owner)
	s.Publish(1, 0, sample.FromLog)
	s.Ready(slot)
	whole := alloc(t, s, Miss, 1, 3000)
	out := make([]*Extent, 1)
	s.PublishPieces([]Piece{{Of: whole, Index: 1, Data: whole.Buf[:3000], Takes: 1, From: sample.FromSource}}, out)
	s.Drop(whole)
	if s.Restore(out[0]) || !s.InSlot(1) {
		t.Error("the slot's address was replaced")
	}
	if n := s.Reclaim(func(Segment) bool { return true }, func(_ Segment, f func(uint32)) { f(1) }); n != 1 || s.Present(1) {
		t.Fatalf("%d slots reclaimed, present %v", n, s.Present(1))
	}
	if !s.Restore(out[0]) || s.Restore(out[0]) {
		t.Error("want the piece's address once")
	}
	h, absent, at := take(s, 1)
	if absent != 0 || at[0] != (Address{s.OffsetOf(whole.Buf), sample.FromSource}) {
		t.Errorf("%d absent, %+v", absent, at)
	}
	s.Release(&h)
	if s.Restore(out[0]) || s.Present(1) {
		t.Error("a freed extent was restored")
	}
}

// TestMissIsCountedOnce: the first Take of a sample from the source is a miss, wherever the sample is by then. No
// later Take is.
func TestMissIsCountedOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		then func(s *Staging, piece *Extent)
	}{
		{"the piece", func(*Staging, *Extent) {}},
		{"a slot, published before the piece is withdrawn", func(s *Staging, piece *Extent) {
			s.Publish(1, 0, sample.FromLog)
			s.KeepAtMost(piece, 0)
		}},
		{"a slot, published after the piece is withdrawn", func(s *Staging, piece *Extent) {
			s.KeepAtMost(piece, 0)
			s.Publish(1, 0, sample.FromLog)
		}},
	} {
		s := newStaging(t, Options{Samples: 10, Slots: 1, SlotBytes: 4096, MissBytes: 16384})
		slot, _ := s.Acquire(Segment{Log: 1})
		s.Ready(slot)
		whole := alloc(t, s, Miss, 1, 3000)
		out := make([]*Extent, 1)
		s.PublishPieces([]Piece{{Of: whole, Index: 1, Data: whole.Buf[:3000], Takes: 2, From: sample.FromSource}}, out)
		s.Drop(whole)
		c.then(s, out[0])
		for take, want := range []bool{true, false} {
			out, have, there := make([]Address, 1), make([]bool, 1), make([]bool, 1)
			var h Hold
			if absent := s.Take(&h, []uint32{1}, have, there, out); absent != 0 || (out[0].From == sample.FromSource) != want {
				t.Errorf("%s: take %d: %d absent, origin %v, want %v", c.name, take, absent, out[0].From, want)
			}
			s.Release(&h)
		}
		s.Publish(1, 0, sample.FromLog)
		if h, absent, at := take(s, 1); absent != 0 || at[0].From == sample.FromSource {
			t.Errorf("%s: published again: %d absent, origin %v", c.name, absent, at[0].From)
		} else {
			s.Release(&h)
		}
	}
}
