package blockio

import (
	"errors"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestRegisteredRegions(t *testing.T) {
	base := make([]byte, 64)
	set := func(int, []byte) error { return nil }
	var m memory
	defer m.drop()
	for _, r := range [][2]int{{32, 48}, {0, 16}, {16, 32}} { // adjoining, out of order
		if err := m.add(base[r[0]:r[1]], set); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		lo, hi, index int
		ok            bool
	}{
		{0, 16, 1, true}, {3, 4, 1, true}, {16, 32, 2, true}, {32, 48, 0, true}, {40, 48, 0, true},
		{8, 24, 0, false}, {40, 49, 0, false}, {48, 64, 0, false},
	} {
		if i, ok := m.find(base[c.lo:c.hi]); ok != c.ok || i != c.index && ok {
			t.Errorf("find %d to %d: got %d, %t; want %d, %t", c.lo, c.hi, i, ok, c.index, c.ok)
		}
	}
	for _, r := range [][2]int{{0, 64}, {8, 9}, {47, 64}, {0, 16}} {
		if err := m.add(base[r[0]:r[1]], set); err != errOverlap {
			t.Errorf("add %d to %d: got %v, want %v", r[0], r[1], err, errOverlap)
		}
	}
	if err := m.remove(base[:32], set); err != nil {
		t.Fatal(err)
	}
	if _, ok := m.find(base[:4]); ok {
		t.Error("memory was found after it was removed")
	}
	if _, ok := m.find(base[32:48]); !ok {
		t.Error("memory was removed with its neighbour")
	}
	if err := m.add(base[48:], func(i int, _ []byte) error {
		if i != 1 {
			t.Errorf("index %d is used, want the free 1", i)
		}
		return unix.ENOMEM
	}); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("got %v, want ENOMEM", err)
	}
	if _, ok := m.find(base[48:]); ok {
		t.Error("memory was found that could not be registered")
	}
}

func TestRegionsAreCutIntoUnits(t *testing.T) {
	// Addresses only: the bytes are not accessed.
	mem, err := unix.Mmap(-1, 0, 2*maxUnit+4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Skipf("no address space for the test: %v", err)
	}
	defer unix.Munmap(mem)
	var sizes []int
	var m memory
	defer m.drop()
	if err := m.add(mem, func(_ int, unit []byte) error { sizes = append(sizes, len(unit)); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(sizes) != 3 || sizes[0] != maxUnit || sizes[1] != maxUnit || sizes[2] != 4096 {
		t.Errorf("units of %d bytes", sizes)
	}
	if _, ok := m.find(mem[maxUnit-4096:][:8192]); ok {
		t.Error("a buffer across two units was found in one")
	}
	if i, ok := m.find(mem[2*maxUnit:]); !ok || i != 2 {
		t.Errorf("the last unit is %d, %t; want 2", i, ok)
	}
}

func TestBacklogKeepsDepth(t *testing.T) {
	kicks := 0
	b := newBacklog(2, 2)
	b.kick = func(int) { kicks++ }
	f := &File{path: "f", users: 1}
	var ops []*Op
	for range 5 {
		ops = append(ops, &Op{File: f, Done: func(*Op, error) {}})
	}
	b.add(ops)
	take := func(want *Op) {
		t.Helper()
		if got := b.takeLocked(); got != want {
			t.Fatalf("took %p, want %p", got, want)
		}
	}
	take(ops[0])
	take(ops[1])
	take(nil) // at depth
	b.giveBack(ops[0])
	take(ops[0]) // goes first, and takes no additional room
	take(nil)
	b.finish(ops[1], nil)
	take(ops[2])
	take(nil)
	if kicks != 3 { // add, giveBack, finish
		t.Errorf("%d kicks, want 3", kicks)
	}
	defer func() {
		if recover() == nil {
			t.Error("an operation in flight could be submitted again")
		}
	}()
	b.add(ops[2:3])
}

// One file never has more than its share in flight, files take turns, and other files use what one does not need.
func TestBacklogSharesDepth(t *testing.T) {
	b := newBacklog(5, 3)
	b.kick = func(int) {}
	slow, other := &File{path: "slow", users: 1}, &File{path: "other", users: 1}
	var ops []*Op
	for i := range 12 {
		ops = append(ops, &Op{File: []*File{slow, other}[i/6], Done: func(*Op, error) {}})
	}
	b.add(ops)
	var got []*Op
	for op := b.takeLocked(); op != nil; op = b.takeLocked() {
		got = append(got, op)
	}
	if want := []*Op{ops[0], ops[6], ops[1], ops[7], ops[2]}; !slices.Equal(got, want) {
		t.Fatalf("took %v, want the files in turn up to the depth", got)
	}
	b.finish(ops[6], nil)
	b.finish(ops[7], nil)
	for i := 8; i < 12; i += 2 { // the slow file has its three; the rest belongs to the other file
		for _, want := range []*Op{ops[i], ops[i+1], nil} {
			if got := b.takeLocked(); got != want {
				t.Fatalf("took %v, want %v", got, want)
			}
		}
		b.finish(ops[i], nil)
		b.finish(ops[i+1], nil)
	}
	if n := b.takeableLocked(); n != 0 {
		t.Errorf("%d operations can be taken while the slow file is at its part", n)
	}
	b.finish(ops[0], nil)
	if got := b.takeLocked(); got != ops[3] {
		t.Errorf("took %v, want the slow file's next", got)
	}
}

// A write does not wait behind reads, because each direction has a separate depth.
func TestBacklogWritesPassReads(t *testing.T) {
	b := newBacklog(2, 2)
	b.kick = func(int) {}
	f := &File{path: "f", users: 1}
	var ops []*Op
	for i := range 8 {
		ops = append(ops, &Op{File: f, Write: i >= 4, sync: i == 7, Done: func(*Op, error) {}})
	}
	b.add(ops)
	if n := b.takeableLocked(); n != 4 {
		t.Errorf("%d operations can be taken, want two of each direction", n)
	}
	for _, want := range []*Op{ops[4], ops[5], ops[0], ops[1], nil} {
		if got := b.takeLocked(); got != want {
			t.Fatalf("took %v, want %v", got, want)
		}
	}
	b.finish(ops[0], nil)
	b.finish(ops[4], nil)
	for _, want := range []*Op{ops[6], ops[2], nil} {
		if got := b.takeLocked(); got != want {
			t.Fatalf("took %v, want %v: an operation makes room for one of its own direction", got, want)
		}
	}
	b.finish(ops[5], nil)
	if got := b.takeLocked(); got != ops[7] {
		t.Errorf("took %v, want the sync, in its turn among the writes", got)
	}
}

func TestAlloc(t *testing.T) {
	for _, n := range []int{1, 4096, 5000, hugePage, hugePage + 1} {
		b, err := Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) != n || uintptr(unsafe.Pointer(&b[0]))%4096 != 0 || b[n-1] != 0 {
			t.Errorf("%d bytes: got %d at %p", n, len(b), &b[0])
		}
		if err := Free(b); err != nil {
			t.Errorf("free %d bytes: %v", n, err)
		}
	}
	for _, n := range []int{0, -1} {
		if _, err := Alloc(n); err == nil {
			t.Errorf("%d bytes were allocated", n)
		}
	}
	if err := Free(nil); err != nil {
		t.Error(err)
	}
}
