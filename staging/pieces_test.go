package staging

import "testing"

// TestPieces: several samples of one read are published, kept and given back one by one; the memory of the read ends with the last.
func TestPieces(t *testing.T) {
	s := newStaging(t, Options{Samples: 10, Slots: 1, SlotBytes: 4096, MissBytes: 16384})
	whole := alloc(t, s, Miss, 1, 12000)
	out := make([]*Extent, 2)
	changed := s.Changed()
	s.PublishPieces([]Piece{{Of: whole, Index: 1, Data: whole.Buf[:3000], Takes: 2}, {Of: whole, Index: 2, Data: whole.Buf[4032:5000], Takes: 1, FromSource: true}}, out)
	s.Drop(whole)
	if !isClosed(changed) || !s.Present(1) || !s.Present(2) || free(s, Miss) != 4096 {
		t.Fatalf("present %v and %v, %d bytes free", s.Present(1), s.Present(2), free(s, Miss))
	}
	first, absent, at := take(s, 2, 1, 1) // twice in one request: that is one Take
	if absent != 0 || at[0] != (Address{s.OffsetOf(whole.Buf) + 4032, true}) || at[1] != (Address{s.OffsetOf(whole.Buf), false}) {
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
		t.Error("want what is alive to be kept once more, and what is gone not")
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
