package logfile

import "testing"

// TestHasRoom: bytes in write buffers count as used, because they will need a place. A freed place counts as free again.
func TestHasRoom(t *testing.T) {
	const block, places = 4096, 10
	b := newBed(t, 1, block, places, []uint32{1024, block, 2048, block})
	b.open()
	l := b.begin(0, 0, 4, 2, 2)
	for i, taken := range []int64{1024, 1024 + block, 1024 + block + 2048, 1024 + 2*block + 2048} {
		b.append(l, i, uint32(i))
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if room := places*block - taken; b.s.Left() != room || !b.s.HasRoom(room) || b.s.HasRoom(room+1) {
			t.Errorf("%d bytes are appended: want room for %d and no more", taken, room)
		}
	}
	for seg := range 4 {
		l.FreeSegment(seg)
	}
	if !b.s.HasRoom(places*block) || b.s.HasRoom(places*block+1) {
		t.Error("want room for all places after all blocks are freed")
	}
	b.close()
}
