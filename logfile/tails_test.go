package logfile

import (
	"fmt"
	"slices"
	"testing"

	"lcache/internal/disk/blockio"
	"lcache/sample"

	"golang.org/x/sys/unix"
)

// Many tails share few places; each place is free when its last tail is.
func TestTailsArePacked(t *testing.T) {
	const segments, w = 20, 32768
	sizes := make([]uint32, segments)
	bytes := 0
	for i := range sizes {
		sizes[i] = uint32(1000 + 900*i)
		bytes += roundUp(int(sizes[i]))
	}
	b := newBed(t, 2, w, 40, sizes)
	b.open()
	l := b.begin(0, 0, segments, 4, 4)
	for i := range uint32(segments) {
		b.append(l, int(i), i)
	}
	if err := l.WriteTails(t.Context()); err != nil {
		t.Fatal(err)
	}
	used := b.s.Used()
	if most := bytes/w + 2; used > most {
		t.Errorf("%d bytes of tails take %d places, want at most %d", bytes, used, most)
	}
	if !l.pool.idle() {
		t.Error("buffers were kept")
	}
	b.check(l)
	b.books()
	b.close()

	b.open()
	l = b.s.Logfiles()[0]
	if b.s.Used() != used {
		t.Errorf("after a restart %d places are used, before it %d", b.s.Used(), used)
	}
	got := b.check(l)
	for seg := range segments {
		if !slices.Equal(got[seg], []uint32{uint32(seg)}) {
			t.Errorf("segment %d: %v", seg, got[seg])
		}
		dst := aligned(t, int(roundUp(sizes[seg])))
		if err := readBlock(l, seg, 0, dst); err != nil || string(dst[:sizes[seg]]) != string(b.content(uint32(seg))) {
			t.Errorf("tail of segment %d read with its own length: %v", seg, err)
		}
	}
	for seg := range segments {
		l.FreeSegment(seg)
		b.books()
	}
	if b.s.Used() != 0 {
		t.Errorf("%d places are used although every segment is free", b.s.Used())
	}
	b.close()
}

// An append after a restart continues in the short block. A crash then finds either the short or the grown one.
func TestTailGrows(t *testing.T) {
	const w = 8192
	b := newBed(t, 1, w, 20, []uint32{100, 3000, 5000, 9000, 70})
	b.open()
	l := b.begin(0, 3, 1, 10, 10)
	want := []sample.Index{}
	for i := range uint32(5) {
		off := b.append(l, 0, i)
		want = append(want, i)
		if i > 0 && off != l.s.format.pad(int(b.sizes[i-1]))+offsetOf(l, i-1) {
			t.Errorf("sample %d at %d: not behind the one before", i, off)
		}
		c := b.crashed()
		c.open()
		got := c.check(c.s.Logfiles()[0])[0]
		if len(got) < int(i) && i < 3 || !slices.Equal(got, want[:len(got)]) {
			t.Errorf("killed after append %d: %v", i, got)
		}
		c.books()
		c.close()
		b.books()
		b.close()
		b.open()
		l = b.s.Logfiles()[0]
		if got := b.check(l)[0]; !slices.Equal(got, want) {
			t.Errorf("restarted after append %d: %v", i, got)
		}
	}
	if got, want := b.s.Used(), l.Blocks(0); got != want {
		t.Errorf("%d places used for %d blocks", got, want)
	}
	b.close()
}

func offsetOf(l *Logfile, index sample.Index) (at uint64) {
	l.Arrivals(0, func(_ int, i sample.Index, off uint64) bool { at = off; return i != index })
	return at
}

// Without a free place tails are lost and reported, and the budget holds.
func TestTailsWithoutPlace(t *testing.T) {
	b := newBed(t, 1, 4096, 2, []uint32{4096, 4096, 100, 200})
	b.open()
	l := b.begin(0, 0, 2, 4, 4)
	for i := range uint32(4) {
		b.append(l, int(i)%2, i)
	}
	b.books()
	b.close()
	if got := b.losses(); !equalCounts(got, map[sample.Index]int{2: 1, 3: 1}) {
		t.Errorf("%v reported lost, want samples 2 and 3", got)
	}
	b.open()
	if got := fmt.Sprint(b.check(b.s.Logfiles()[0])); got != "map[0:[0] 1:[1]]" {
		t.Errorf("after a restart: %v", got)
	}
	b.close()
}

func TestTailWritesFail(t *testing.T) {
	for fails := int64(1); fails <= 2; fails++ {
		b := newBed(t, 1, 8192, 8, []uint32{100, 200})
		b.open()
		l := b.begin(0, 0, 2, 4, 4)
		b.append(l, 0, 0)
		b.append(l, 1, 1)
		failing(b.opts.IO, true, func(n int64) bool { return n < fails })
		if err := l.WriteTails(t.Context()); err != nil {
			t.Fatal(err)
		}
		blockio.Inject(b.opts.IO, nil)
		got := b.check(l)
		if whole := fails == 1; whole != (len(got[0])+len(got[1]) == 2) || whole != (len(b.losses()) == 0) {
			t.Errorf("%d writes failed: %v, lost %v", fails, got, b.losses())
		}
		b.books()
		b.close()
	}
}

// A short block that can't be read back is a hole. The segment continues behind it.
func TestTailReadBackFails(t *testing.T) {
	b := newBed(t, 1, 8192, 8, []uint32{100, 200})
	b.open()
	b.append(b.begin(0, 0, 1, 4, 4), 0, 0)
	b.close()
	b.open()
	l := b.s.Logfiles()[0]
	blockio.Inject(b.opts.IO, func(_ int64, op *blockio.Op) blockio.Fault {
		if !op.Write {
			return blockio.Fault{Err: unix.EIO}
		}
		return blockio.Fault{}
	})
	if off := b.append(l, 0, 1); off != 8192 {
		t.Errorf("went on at %d", off)
	}
	blockio.Inject(b.opts.IO, nil)
	if got := b.check(l)[0]; !slices.Equal(got, []uint32{1}) || b.losses()[0] != 1 {
		t.Errorf("got %v, lost %v", got, b.losses())
	}
	b.books()
	b.close()
}
