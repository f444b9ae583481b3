package staging

import (
	"math/rand/v2"
	"testing"

	"lcache/sample"
)

// TestLentSlots: lent slots are memory of the ring. When they are returned, a slot becomes free once no piece of the
// ring is in it. Until then the memory belongs to no slot.
func TestLentSlots(t *testing.T) {
	s := newStaging(t, Options{Samples: 10, Slots: 3, SlotBytes: 8192, MissBytes: 4096, Lent: true})
	if _, ok := s.Acquire(Segment{Log: 1}); ok || s.MissBytes() != 3*8192+4096 || s.SlotsBack() != 0 {
		t.Fatalf("%d bytes of the ring, %d slots", s.MissBytes(), s.SlotsBack())
	}
	first := alloc(t, s, Miss, 1, 4096)
	across := alloc(t, s, Miss, 2, 3*4096) // of the first slot, and all of the second
	behind := alloc(t, s, Miss, 3, 3*4096) // all of the third, and the ring's own page
	publish(s, across, across.Buf[:5000], sample.FromLog)
	if s.InSlot(2) || !s.Present(2) {
		t.Error("a sample of the ring counts as one of a slot")
	}
	s.ReturnSlots()
	s.ReturnSlots()
	if s.SlotsBack() != 0 || s.MissBytes() != 4096 || free(s, Miss) != 0 {
		t.Fatalf("%d slots are back, %d bytes of the ring, %d of them free", s.SlotsBack(), s.MissBytes(), free(s, Miss))
	}
	s.Drop(first)
	if s.SlotsBack() != 0 {
		t.Error("a slot was returned that still has a sample")
	}
	changed := s.Changed()
	s.Drop(behind)
	if s.SlotsBack() != 1 || free(s, Miss) != 4096 || !isClosed(changed) {
		t.Errorf("%d slots are back, %d bytes free", s.SlotsBack(), free(s, Miss))
	}
	if slot, ok := s.Acquire(Segment{Log: 1}); !ok || slot != 2 {
		t.Errorf("slot %d is free: %v", slot, ok)
	}
	hold, absent, at := take(s, 2)
	if absent != 0 || at[0].Offset != 4096 {
		t.Fatalf("%d samples absent, at %v", absent, at)
	}
	if s.Release(&hold); s.SlotsBack() != 3 || s.Present(2) {
		t.Errorf("%d slots are back, the sample is there: %v", s.SlotsBack(), s.Present(2))
	}
	s.Publish(2, 64, sample.FromLog)
	if off, ok := s.SlotOffset(2); !ok || off != 64 {
		t.Errorf("at %d of a slot: %v", off, ok)
	}
}

// TestLentSlotsAtRandom: whatever is in the ring when its slots are returned, every slot becomes free with its last
// piece, and the ring has its own memory at the end.
func TestLentSlotsAtRandom(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		s, err := New(Options{Samples: 1000, Align: 64, Slots: 4, SlotBytes: 4 * 4096, MissBytes: 8 * 4096, Lent: true})
		if err != nil {
			t.Fatal(err)
		}
		var held []*Extent
		asked := false
		for range 200 {
			switch x := r.IntN(20); {
			case x == 0 && !asked:
				asked = true
				s.ReturnSlots()
			case x < 11:
				if x, ok := s.Alloc(Miss, uint32(r.IntN(1000)), 1+r.IntN(6*4096)); ok {
					if asked && x.base < 4*4*4096 {
						t.Fatalf("seed %d: memory of a recalled slot was allocated", seed)
					}
					s.Shrink(x, 1+r.IntN(len(x.Buf)))
					held = append(held, x)
				}
			case len(held) > 0:
				i := r.IntN(len(held))
				s.Drop(held[i])
				held = append(held[:i], held[i+1:]...)
			}
			for i := range s.slot {
				busy := !asked
				for _, x := range held {
					busy = busy || x.base < uint64((i+1)*4*4096) && x.base+uint64(len(x.Buf)) > uint64(i*4*4096)
				}
				if s.lent[i].Load() != busy {
					t.Fatalf("seed %d: slot %d is lent: %v", seed, i, s.lent[i].Load())
				}
			}
		}
		s.ReturnSlots()
		for _, x := range held {
			s.Drop(x)
		}
		if err := s.CheckReleased(); err != nil || s.SlotsBack() != 4 || free(s, Miss) != 8*4096 {
			t.Fatalf("seed %d: %v, %d slots are back, %d bytes of the ring are free", seed, err, s.SlotsBack(), free(s, Miss))
		}
		s.Close()
	}
}
