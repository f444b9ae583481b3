package staging

import (
	"testing"

	"lcache/sample"
)

// TestReload: another owner of its segment loads a ready slot again. Its samples keep their addresses, held or not,
// and the slot is not reclaimed meanwhile.
func TestReload(t *testing.T) {
	s := newStaging(t, Options{Samples: 40, Slots: 2, SlotBytes: 4096})
	old, owner := Segment{Log: 1, Segment: 2}, Segment{Log: 7, Segment: 2}
	a, _ := s.Acquire(old)
	s.Publish(21, uint64(a*4096), sample.FromLog)
	if _, ready := s.Holding(old); ready || s.Reload(a, old, owner) {
		t.Error("a slot that is loading is taken for ready")
	}
	s.Ready(a)
	if i, ready := s.Holding(old); !ready || i != a {
		t.Errorf("slot %d, %v; want %d", i, ready, a)
	}
	if s.Reload(a, owner, owner) {
		t.Error("a slot with another segment was reloaded")
	}
	s.Pin(a)
	if s.Reload(a, old, owner) {
		t.Error("a slot was reloaded that a late block may still be written to")
	}
	s.Unpin(a)
	h, _, before := take(s, 21)
	if !s.Reload(a, old, owner) {
		t.Fatal("a slot with Holds was not reloaded")
	}
	s.Release(&h)
	if n := s.Reclaim(always, tens); n != 0 {
		t.Error("a slot was reclaimed while it was reloaded")
	}
	h, absent, after := take(s, 21)
	if absent != 0 || after[0] != before[0] {
		t.Errorf("the sample is at %+v, was at %+v", after, before)
	}
	s.Release(&h)
	s.Ready(a)
	if n := s.Reclaim(func(o Segment) bool { return o == owner }, tens); n != 1 || s.Present(21) {
		t.Errorf("%d slots were taken back of the new owner, the sample is present: %v", n, s.Present(21))
	}
}
