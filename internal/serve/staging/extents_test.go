package staging

import (
	"sync"
	"testing"

	"lcache/sample"
)

func alloc(t *testing.T, s *Staging, p Pool, i sample.Index, n int) *Extent {
	t.Helper()
	x, ok := s.Alloc(p, i, n)
	if !ok {
		t.Fatalf("no room for %d bytes", n)
	}
	return x
}

// publish makes data, a part of x.Buf, the address of x's sample, and keeps it for one Take.
func publish(s *Staging, x *Extent, data []byte, from sample.Origin) *Extent {
	out := make([]*Extent, 1)
	s.PublishPieces([]Piece{{Of: x, Index: x.Index, Data: data, Takes: 1, From: from}}, out)
	s.Drop(x)
	return out[0]
}

// free returns the free bytes of a pool.
func free(s *Staging, p Pool) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pools[p].total - s.pools[p].used
}

func TestExtentIsHandedOverToTheFirstTake(t *testing.T) {
	s := newStaging(t, Options{Samples: 10, Slots: 1, SlotBytes: 4096, MissBytes: 16384})
	x := alloc(t, s, Miss, 4, 5000)
	if len(x.Buf) != 8192 || s.OffsetOf(x.Buf)%4096 != 0 || s.Kept(x) {
		t.Fatalf("%d bytes at %d, kept %v", len(x.Buf), s.OffsetOf(x.Buf), s.Kept(x))
	}
	changed := s.Changed()
	x = publish(s, x, x.Buf[:5000], sample.FromSource)
	if !isClosed(changed) || !s.Present(4) || !s.Kept(x) {
		t.Error("published, but waiters were not woken or the sample is not present")
	}
	first, absent, out := take(s, 4)
	if absent != 0 || out[0] != (Address{s.OffsetOf(x.Buf), sample.FromSource}) || s.Kept(x) {
		t.Fatalf("%d absent, %+v, kept %v", absent, out, s.Kept(x))
	}
	if s.KeepAtMost(x, 0) {
		t.Error("a taken sample was withdrawn")
	}
	second, absent, _ := take(s, 4, 4) // twice in one request
	if absent != 0 {
		t.Fatal("a second reader does not find it")
	}
	s.Release(&first)
	if !s.Present(4) || free(s, Miss) != 8192 {
		t.Error("given back while the second reader holds it")
	}
	s.Release(&second)
	if s.Present(4) || free(s, Miss) != 16384 {
		t.Errorf("present %v, %d bytes free after the last Hold", s.Present(4), free(s, Miss))
	}
}

func TestWithdrawAndShare(t *testing.T) {
	s := newStaging(t, Options{Samples: 10, Slots: 1, SlotBytes: 4096, SideBytes: 8192})
	x := alloc(t, s, Side, 1, 100)
	if s.KeepAtMost(x, 0) {
		t.Error("withdrawn before it was published")
	}
	x = publish(s, x, x.Buf[64:164], sample.FromLog)
	s.Share(x)
	if s.KeepAtMost(x, 0) || s.Kept(x) {
		t.Error("withdrawn, and freed while it is shared")
	}
	if s.SideUsed() != 4096 {
		t.Errorf("%d bytes are used while a share remains, want 4096", s.SideUsed())
	}
	s.Drop(x)
	if s.SideUsed() != 0 || s.Present(1) {
		t.Errorf("%d bytes are used, present %v after the last reference", s.SideUsed(), s.Present(1))
	}
	// Unpublished memory in a Hold, as for requests by index.
	y := alloc(t, s, Side, 2, 100)
	var h Hold
	h.Add(y)
	s.Release(&h)
	if s.SideUsed() != 0 {
		t.Errorf("%d bytes are used after the Hold", s.SideUsed())
	}
}

// An address that has moved, to a slot or to another extent, is not cleared when the old extent is dropped.
func TestDropKeepsALaterAddress(t *testing.T) {
	s := newStaging(t, Options{Samples: 10, Slots: 1, SlotBytes: 4096, MissBytes: 8192})
	a, _ := s.Acquire(Segment{1, 0})
	x, y := alloc(t, s, Miss, 3, 10), alloc(t, s, Miss, 3, 10)
	x = publish(s, x, x.Buf[:10], sample.FromSource)
	y = publish(s, y, y.Buf[:10], sample.FromSource)
	s.KeepAtMost(x, 0)
	if h, absent, out := take(s, 3); absent != 0 || out[0].Offset != s.OffsetOf(y.Buf) {
		t.Errorf("%d absent, %+v, want it at %d", absent, out, s.OffsetOf(y.Buf))
	} else {
		s.Publish(3, 128, sample.FromLog)
		s.Release(&h)
	}
	if h, absent, out := take(s, 3); absent != 0 || out[0] != (Address{128, sample.FromLog}) {
		t.Errorf("%d absent, %+v, want it in the slot", absent, out)
	} else {
		s.Release(&h)
	}
	s.Ready(a)
}

// KeepAtMost and Take want the same reference. One of them gets it, and the memory is freed once.
func TestKeepAtMostAgainstTake(t *testing.T) {
	const rounds = 2000
	s := newStaging(t, Options{Samples: 4, Slots: 1, SlotBytes: 4096, MissBytes: 3 * 4096})
	taken, withdrawn := 0, 0
	for n := range rounds {
		x := alloc(t, s, Miss, 1, 4096)
		x.Buf[0], x.Buf[4095] = byte(n), byte(n)
		x = publish(s, x, x.Buf, sample.FromSource)
		var wg sync.WaitGroup
		var ok bool
		var h Hold
		var absent int
		wg.Go(func() { ok = s.KeepAtMost(x, 0) })
		wg.Go(func() {
			var out []Address
			if h, absent, out = take(s, 1); absent == 0 {
				// No Alloc gets this memory while it is held.
				y, z := alloc(t, s, Miss, 2, 4096), alloc(t, s, Miss, 3, 4096)
				clear(y.Buf)
				clear(z.Buf)
				if got := s.Slice(out[0].Offset, 4096); got[0] != byte(n) || got[4095] != byte(n) {
					t.Errorf("round %d: the bytes under a Hold were changed", n)
				}
				s.Drop(y)
				s.Drop(z)
			}
		})
		wg.Wait()
		if ok == (absent == 0) {
			t.Fatalf("round %d: withdrawn %v, absent %d", n, ok, absent)
		}
		if ok {
			withdrawn++
		} else {
			taken++
		}
		s.Release(&h)
		if free(s, Miss) != 3*4096 || s.Present(1) || len(s.extents) != 0 {
			t.Fatalf("round %d: %d bytes free, present %v, %d extents", n, free(s, Miss), s.Present(1), len(s.extents))
		}
	}
	t.Logf("taken %d, withdrawn %d", taken, withdrawn)
}
