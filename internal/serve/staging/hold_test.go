package staging

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"lcache/sample"
)

// imprint fills a sample's place with its index and a unique number.
func imprint(p []byte, i sample.Index, serial uint32) {
	for at := 0; at+8 <= len(p); at += 8 {
		binary.LittleEndian.PutUint32(p[at:], i)
		binary.LittleEndian.PutUint32(p[at+4:], serial)
	}
}

// read checks that a place has one imprint of sample i, and returns its number.
func read(t *testing.T, p []byte, i sample.Index) (serial uint32) {
	serial = binary.LittleEndian.Uint32(p[4:])
	for at := 0; at+8 <= len(p); at += 8 {
		if got := binary.LittleEndian.Uint32(p[at:]); got != i {
			t.Errorf("sample %d: its place holds sample %d", i, got)
			return serial
		}
		if got := binary.LittleEndian.Uint32(p[at+4:]); got != serial {
			t.Errorf("sample %d: its place holds writings %d and %d", i, serial, got)
			return serial
		}
	}
	return serial
}

// A loader moves a window over the epochs, misses come and go, and many readers take, read twice and release. Bytes
// in a Hold never change, and all memory is free at the end.
func TestBytesUnderAHoldNeverChange(t *testing.T) {
	const segments, size, slots, epochs, readers = 6, 256, 3, 60, 6
	const samples = segments*10 + 10 // the last ten are misses
	s := newStaging(t, Options{Samples: samples, Slots: slots, SlotBytes: 10 * size, MissBytes: 6 * 4096})
	var serial atomic.Uint32
	var stop atomic.Bool
	var done sync.WaitGroup
	for g := range readers {
		done.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 2))
			found := 0
			for !stop.Load() || found == 0 {
				found += readOnce(t, s, r, samples, size)
				runtime.Gosched()
			}
		})
	}
	var missed sync.WaitGroup
	missed.Go(func() {
		for n := range epochs * segments {
			i := sample.Index(segments*10 + n%10)
			x, ok := s.Alloc(Miss, i, size)
			if !ok {
				continue // all are held
			}
			imprint(x.Buf[:size], i, serial.Add(1))
			x = publish(s, x, x.Buf[:size], sample.FromSource)
			runtime.Gosched()
			s.KeepAtMost(x, 0)
		}
	})
	for epoch := range uint64(epochs) {
		for k := range segments {
			loadSegment(t, s, Segment{Log: epoch + 1, Segment: k}, size, &serial)
		}
	}
	missed.Wait()
	stop.Store(true)
	done.Wait()
	for s.Reclaim(always, tens) > 0 {
	}
	for i := range sample.Index(samples) {
		if s.Present(i) {
			t.Errorf("sample %d still has an address", i)
		}
	}
	for range slots {
		if _, ok := s.Acquire(Segment{Log: 999}); !ok {
			t.Error("a slot did not come back")
		}
	}
	if free(s, Miss) != 6*4096 {
		t.Errorf("%d bytes of the ring are free, want all", free(s, Miss))
	}
}

func readOnce(t *testing.T, s *Staging, r *rand.Rand, samples, size int) (found int) {
	want := make([]sample.Index, 1+r.IntN(3))
	for i := range want {
		want[i] = sample.Index(r.IntN(samples))
	}
	var h Hold
	have, out, was := make([]bool, len(want)), make([]Address, len(want)), make([]uint32, len(want))
	if s.Take(&h, want, have, make([]bool, len(want)), out) > 0 {
		return 0
	}
	for i := range want {
		was[i] = read(t, s.Slice(out[i].Offset, size), want[i])
	}
	runtime.Gosched()
	for i := range want {
		if read(t, s.Slice(out[i].Offset, size), want[i]) != was[i] {
			t.Errorf("sample %d changed while it was held", want[i])
		}
	}
	s.Release(&h)
	return 1
}

// loadSegment does the work of the scan, without a disk: it waits for a slot, writes and publishes.
func loadSegment(t *testing.T, s *Staging, owner Segment, size int, serial *atomic.Uint32) {
	for {
		changed := s.Changed()
		slot, ok := s.Acquire(owner)
		if !ok {
			s.Reclaim(func(o Segment) bool { return o != owner }, tens)
			if slot, ok = s.Acquire(owner); !ok {
				<-changed
				continue
			}
		}
		mem := s.Slot(slot)
		for n := range 10 {
			i := sample.Index(owner.Segment*10 + n)
			imprint(mem[n*size:(n+1)*size], i, serial.Add(1))
			s.Publish(i, s.OffsetOf(mem)+uint64(n*size), sample.FromLog)
		}
		s.Ready(slot)
		return
	}
}
