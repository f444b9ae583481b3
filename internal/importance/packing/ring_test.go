package packing

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"lcache/offheap"
	"lcache/sample"
)

// TestRing: samples come out in the order in which they went in. A sample without room is refused, and all room is free again in the end.
func TestRing(t *testing.T) {
	mapped := offheap.Mapped()
	var h ring
	if err := h.init(1000); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	type one struct {
		index sample.Index
		data  []byte
	}
	var want []one
	held, refused := 0, 0
	for k := range 20000 {
		if r.IntN(2) == 0 {
			data := bytes.Repeat([]byte{byte(k)}, 1+r.IntN(300))
			if h.put(sample.Index(k), data) {
				want = append(want, one{sample.Index(k), data})
				held += len(data)
			} else if refused++; held+len(data) <= 350 {
				t.Fatalf("%d bytes are refused where %d of 1,000 are taken", len(data), held)
			}
			continue
		}
		index, data, ok := h.next()
		if ok != (len(want) > 0) || ok && (index != want[0].index || !bytes.Equal(data, want[0].data)) {
			t.Fatalf("step %d: sample %d, %v, want %v", k, index, ok, len(want) > 0)
		}
		if ok {
			held -= len(data)
			want = want[1:]
			h.taken()
		}
	}
	if refused < 100 || held > 1000 {
		t.Errorf("%d samples were refused, %d bytes held", refused, held)
	}
	h.clear()
	if _, _, ok := h.next(); ok || !h.put(1, make([]byte, 1000)) || h.put(2, make([]byte, 1)) {
		t.Error("an empty one does not take just its bytes")
	}
	h.close()
	if h.put(1, []byte{1}) || offheap.Mapped() != mapped {
		t.Error("it takes something when it is closed, or keeps memory")
	}
}
