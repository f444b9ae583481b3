package packing

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// TestRing: samples come out in the order in which they went in. A sample without room is refused, and all room is
// free at the end.
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
		t.Error("the closed ring accepts a sample, or keeps memory")
	}
}

// TestRingDuringCopies: while a sample is being copied, others can be added after it. They come out after it, clear
// drops all of them, and close waits for the copy.
func TestRingDuringCopies(t *testing.T) {
	mapped := offheap.Mapped()
	var h ring
	if err := h.init(100); err != nil {
		t.Fatal(err)
	}
	begin := func(index sample.Index) (fill func()) {
		room, number, ok := h.reserve(index, 40)
		if !ok {
			t.Fatalf("the ring has no room for sample %d", index)
		}
		return func() {
			copy(room, bytes.Repeat([]byte{byte(index)}, 40))
			h.filled(number)
		}
	}
	fill := begin(1)
	if !h.put(2, make([]byte, 40)) {
		t.Fatal("the ring has no room for a second sample")
	}
	if index, _, ok := h.next(); ok {
		t.Errorf("got sample %d while the first one is being copied, want none", index)
	}
	fill()
	for _, want := range []sample.Index{1, 2} {
		if index, data, ok := h.next(); !ok || index != want || data[39] != byte(want)&1 {
			t.Errorf("got sample %d, %v, want %d", index, ok, want)
		}
		h.taken()
	}
	fill = begin(3)
	h.clear()
	if h.put(4, make([]byte, 70)) {
		t.Error("room is given away that a sample is being copied to")
	}
	fill()
	if index, _, ok := h.next(); ok {
		t.Errorf("got sample %d, which was dropped", index)
	}
	if !h.put(5, make([]byte, 100)) {
		t.Error("the room of a dropped sample is not free")
	}
	h.clear()
	fill = begin(6)
	closed := make(chan struct{})
	go func() { defer close(closed); h.close() }()
	for end := time.Now().Add(20 * time.Second); h.put(7, nil); runtime.Gosched() { // until close has begun
		if time.Now().After(end) {
			t.Fatal("samples are taken while the memory is being closed")
		}
	}
	select {
	case <-closed:
		t.Error("the memory is freed while a sample is being copied to it")
	default:
	}
	fill()
	<-closed
	if offheap.Mapped() != mapped {
		t.Error("memory is left")
	}
}
