package records

import "testing"

// TestArrowHoldsOneBatch: the buffers of a batch are free before those of the next one are decompressed.
func TestArrowHoldsOneBatch(t *testing.T) {
	tb := NewTable(-1)
	r := &arrowReader{ctx: t.Context(), o: memoryFile(golden(t, "zstd.arrow")), t: tb, decoding: &decoding{t: tb, w: &limitedWriter{}}}
	batches := 0
	for m, err := r.next(); m != nil; m, err = r.next() {
		if err != nil {
			t.Fatal(err)
		}
		switch m.kind {
		case messageSchema:
			if err := newArrowWith(t, Settings{}).(*arrow).begin(r, "x", m); err != nil {
				t.Fatal(err)
			}
		case messageBatch:
			b, err := r.parse(m)
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range r.unpacked[:cap(r.unpacked)] {
				if u.bytes != nil {
					t.Errorf("batch %d begins while %d bytes of the one before are held", batches, len(u.bytes))
				}
			}
			if err := b.chunk(0, b.rows); err != nil {
				t.Fatal(err)
			}
			batches++
		}
	}
	if batches < 2 || cap(r.unpacked) == 0 {
		t.Errorf("%d batches, %d buffers", batches, cap(r.unpacked))
	}
}
