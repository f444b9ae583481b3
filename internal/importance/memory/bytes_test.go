package memory

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lcache/sample"
)

// bytesMapped returns the bytes that a memory has mapped for samples.
func bytesMapped(h *Bytes) (n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.cells.chunks {
		n += int64(len(c.bytes))
	}
	return n
}

// TestCopyWhileMemoryIsLocked: a sample can be found and copied while the owner of a memory holds its lock.
func TestCopyWhileMemoryIsLocked(t *testing.T) {
	d := newSamples(t)
	a, _ := d.opportunistic(t)
	a.Begin(0, []sample.Index{1}, nil)
	a.Take(1)
	a.Keep(1, d.bytes[1])
	a.mu.Lock()
	defer a.mu.Unlock()
	returns(t, "a copy", func() {
		got := make([]byte, size)
		if !a.held.Has(1) || !a.held.Copy(1, got) || !bytes.Equal(got, d.bytes[1]) || a.held.Has(2) || a.held.Copy(2, got) {
			t.Error("the memory lacks a kept sample, or has another one")
		}
	})
}

// TestFreedDuringCopy: the bytes of a sample do not change during a copy, even if the sample is freed or kept again,
// or the memory is closed.
func TestFreedDuringCopy(t *testing.T) {
	d := newSamples(t)
	h := d.newBytes(t)
	h.keep(1, d.bytes[1])
	under, ok := h.pin(1) // as Copy does
	if !ok {
		t.Fatal("a sample is not here")
	}
	is := func(when string, c *chain, want []byte) {
		t.Helper()
		got := make([]byte, len(want))
		if c.read(got); !bytes.Equal(got, want) {
			t.Errorf("%s: a sample has other bytes under a copy", when)
		}
	}
	h.free(1)
	for i := range sample.Index(40) {
		if h.keep(i, d.bytes[i]); !h.Has(i) {
			t.Fatalf("sample %d is not kept", i)
		}
	}
	is("the sample was freed, and all were kept", &under, d.bytes[1])
	for i := range sample.Index(40) {
		h.free(i)
	}
	is("all were freed", &under, d.bytes[1])
	h.unpin(under.first)
	before := bytesMapped(h)
	for range 100 {
		for i := range sample.Index(40) {
			h.keep(i, d.bytes[i])
			h.free(i)
		}
	}
	if after := bytesMapped(h); after != before || h.Taken() != 0 {
		t.Errorf("%d bytes are mapped after 4000 samples, %d before; %d are kept", after, before, h.Taken())
	}
	h.keep(3, d.bytes[3])
	if under, ok = h.pin(3); !ok {
		t.Fatal("a sample is not here")
	}
	h.close()
	is("the memory is closed", &under, d.bytes[3])
	if _, ok := h.pin(3); ok || h.Has(3) {
		t.Error("a closed memory has a sample")
	}
	h.unpin(under.first)
	if bytesMapped(h) != 0 {
		t.Error("the last copy does not free a closed memory")
	}
}

// TestFreedWhileWritten: a sample that is freed while its bytes are written is not held, and its room is reused.
func TestFreedWhileWritten(t *testing.T) {
	d := newSamples(t)
	h := d.newBytes(t)
	w, ok := h.begin(1, d.bytes[1])
	if _, twice := h.begin(1, d.bytes[1]); !ok || twice || !h.hasOrWrites(1) || h.Has(1) {
		t.Fatal("a sample is written twice, or is here before it is written")
	}
	h.free(1)
	again, ok := h.begin(1, d.bytes[1])
	if !ok || again.first == w.first {
		t.Fatal("room that is being written to is given away")
	}
	if h.fill(w); h.Has(1) {
		t.Error("a freed sample is here")
	}
	got := make([]byte, size)
	if h.fill(again); !h.Copy(1, got) || !bytes.Equal(got, d.bytes[1]) {
		t.Error("a sample that was kept again is not here")
	}
	wrong := slices.Clone(d.bytes[2])
	wrong[0] ^= 1
	if h.keep(2, wrong); h.Has(2) || h.hasOrWrites(2) || len(h.pins) != 0 || h.Taken() != h.Size(1) {
		t.Error("bytes with another checksum are kept")
	}
}

// TestCopiesAtAnyTime: copies have right bytes while samples are kept and freed.
func TestCopiesAtAnyTime(t *testing.T) {
	d := newSamples(t)
	h := d.newBytes(t)
	var all sync.WaitGroup
	stop := make(chan struct{})
	var copied [2]atomic.Int64
	for k := range copied {
		all.Go(func() {
			got := make([]byte, 3000)
			for i := sample.Index(0); ; i = (i + 1) % 40 {
				select {
				case <-stop:
					return
				default:
				}
				if h.Copy(i, got) {
					if copied[k].Add(1); !bytes.Equal(got, d.bytes[i]) {
						t.Errorf("sample %d has other bytes", i)
					}
				}
			}
		})
	}
	var writers sync.WaitGroup
	for k := range sample.Index(2) {
		writers.Go(func() {
			for n, end := sample.Index(0), time.Now().Add(20*time.Second); n < 4000 || copied[k].Load() == 0 && time.Now().Before(end); n++ {
				h.keep((7*n+k)%40, d.bytes[(7*n+k)%40])
				h.free((3*n + k) % 40)
			}
			for i := range sample.Index(40) {
				h.free(i)
			}
		})
	}
	writers.Wait()
	close(stop)
	all.Wait()
	if a, b := copied[0].Load(), copied[1].Load(); a == 0 || b == 0 || len(h.pins) != 0 || len(h.pending) != 0 {
		t.Errorf("%d and %d samples were copied; %d pins and %d writes are left", a, b, len(h.pins), len(h.pending))
	}
}

// TestKeepingAllocatesNothing: keeping, copying and freeing a sample allocates nothing on Go's heap, whatever its
// size.
func TestKeepingAllocatesNothing(t *testing.T) {
	d := newSamples(t)
	h, dst := d.newBytes(t), make([]byte, size)
	if n := testing.AllocsPerRun(100, func() {
		h.keep(1, d.bytes[1])
		h.Copy(1, dst)
		h.free(1)
	}); n != 0 {
		t.Errorf("%.1f allocations", n)
	}
}

// TestNoMemoryForSamples: if the system refuses memory, no sample is kept, and there is one warning.
func TestNoMemoryForSamples(t *testing.T) {
	d := newSamples(t)
	h := d.newBytes(t)
	h.cells = &cells{grid: grid{size: 1 << 47, each: 1}} // larger than any address space
	for i := range sample.Index(3) {
		if h.keep(i, d.bytes[i]); h.Has(i) || h.hasOrWrites(i) {
			t.Error("a sample is kept without memory")
		}
	}
	if n := d.log.lines("the system refuses memory"); n != 1 {
		t.Errorf("%d warnings, want 1", n)
	}
}
