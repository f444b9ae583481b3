package offheap

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestMakeFree(t *testing.T) {
	for _, n := range []int{0, 1, 1023, 1 << 20} {
		s, err := Make[uint32](n)
		if err != nil {
			t.Fatal(err)
		}
		if len(s) != n {
			t.Fatalf("len = %d, want %d", len(s), n)
		}
		for i := range s {
			if s[i] != 0 {
				t.Fatalf("element %d of a fresh array is %d", i, s[i])
			}
			s[i] = uint32(i)
		}
		Free(s)
	}
	Free[uint64](nil)
}

// Mapped counts every array until it is freed, even through a shorter slice that begins at the same element.
func TestMapped(t *testing.T) {
	before := Mapped()
	a, err := Make[uint32](1000)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Make[byte](7)
	if err != nil {
		t.Fatal(err)
	}
	if n := Mapped() - before; n != 4007 {
		t.Errorf("%d bytes are mapped, want 4007", n)
	}
	Free(a[:3])
	if n := Mapped() - before; n != 7 {
		t.Errorf("%d bytes are mapped after the first is freed, want 7", n)
	}
	Free(b)
	if n := Mapped() - before; n != 0 {
		t.Errorf("%d bytes are mapped after both are freed", n)
	}
}

// A dense array works like others, at any size.
func TestMakeDense(t *testing.T) {
	before := Mapped()
	for _, n := range []int{0, 3, hugeFrom/8 + 5} {
		s, err := MakeDense[uint64](n)
		if err != nil {
			t.Fatal(err)
		}
		if len(s) != n || Mapped() != before+int64(8*n) {
			t.Fatalf("%d numbers, and %d bytes are mapped; want %d and %d", len(s), Mapped()-before, n, 8*n)
		}
		for i := range s {
			if s[i] != 0 {
				t.Fatalf("element %d of a fresh array is %d", i, s[i])
			}
			s[i] = uint64(i)
		}
		if n > 0 && s[n-1] != uint64(n-1) {
			t.Errorf("the last element is %d, want %d", s[n-1], n-1)
		}
		Free(s)
	}
	if Mapped() != before {
		t.Errorf("%d bytes are left", Mapped()-before)
	}
}

// pages returns the process's virtual memory in pages.
func pages(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skipf("no /proc/self/statm: %v", err)
	}
	n, err := strconv.Atoi(strings.Fields(string(b))[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The array is not on Go's heap, and is unmapped completely, even if the owner has shortened its slice.
func TestMemoryIsOutsideTheHeapAndComesBack(t *testing.T) {
	const n = 64 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	had := pages(t)
	s, err := Make[uint64](n)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if grown := after.HeapAlloc - before.HeapAlloc; after.HeapAlloc > before.HeapAlloc && grown > 1<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	grown := (pages(t) - had) * os.Getpagesize()
	if grown < n*8 {
		t.Errorf("%d bytes were mapped for %d", grown, n*8)
	}
	Free(s[:0])
	if left := (pages(t) - had) * os.Getpagesize(); left > n*8/2 {
		t.Errorf("%d bytes are still mapped", left)
	}
}

func TestTooMuchIsAnError(t *testing.T) {
	if s, err := Make[uint64](1 << 58); err == nil {
		Free(s)
		t.Error("2^61 bytes were given")
	}
}

func TestConcurrentUse(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for n := range 50 {
				s, err := Make[uint16](1 + n*g*97)
				if err != nil {
					t.Error(err)
					return
				}
				for i := range s {
					s[i] += uint16(g)
				}
				for i := range s {
					if s[i] != uint16(g) {
						t.Errorf("goroutine %d finds the bytes of another one", g)
						return
					}
				}
				Free(s)
			}
		})
	}
	wg.Wait()
}

// TestGrow: old elements stay, new ones are zero, and bytes are counted once.
func TestGrow(t *testing.T) {
	before := Mapped()
	var s []uint64
	for n := 100; n < 1_000_000; n = 3*n + 1 {
		old := len(s)
		var err error
		if s, err = Grow(s, n); err != nil || len(s) != n || Mapped() != before+int64(8*n) {
			t.Fatalf("%d numbers, %d bytes are mapped, %v; want %d", len(s), Mapped()-before, err, n)
		}
		for i, x := range s {
			if want := uint64(i + 1); i < old && x != want || i >= old && x != 0 {
				t.Fatalf("of %d numbers, %d before, number %d is %d", n, old, i, x)
			}
			s[i] = uint64(i + 1)
		}
	}
	Free(s)
	if n := Mapped() - before; n != 0 {
		t.Errorf("%d bytes are mapped after the array is freed", n)
	}
}
