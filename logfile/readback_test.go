package logfile

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/sample"

	"golang.org/x/sys/unix"
)

const tailSegments = 20

// tailsOnDisk returns a Store that was stopped with a tail of one sample in each segment, and opened again. Sample tailSegments+k follows in segment k.
func tailsOnDisk(t *testing.T) (*bed, *Logfile) {
	t.Helper()
	sizes := make([]uint32, 2*tailSegments)
	for i := range sizes {
		sizes[i] = uint32(1000 + 700*(i%tailSegments))
	}
	b := newBed(t, 2, 32768, 60, sizes)
	b.opts.Spare = 16
	b.open()
	l := b.begin(0, 0, tailSegments, 4, 4)
	for i := range uint32(tailSegments) {
		b.append(l, int(i), i)
	}
	b.close()
	b.open()
	return b, b.s.Logfiles()[0]
}

// heldReads makes reads hang until release is called, and counts them.
func heldReads(b *bed) (n *atomic.Int64, release func()) {
	held := make(chan struct{})
	n = new(atomic.Int64)
	blockio.Inject(b.opts.IO, func(_ int64, op *blockio.Op) blockio.Fault {
		if op.Buf == nil || op.Write {
			return blockio.Fault{}
		}
		n.Add(1)
		return blockio.Fault{Hold: held}
	})
	return n, func() { close(held); blockio.Inject(b.opts.IO, nil) }
}

// The number of tails being read at once is half the number of spare buffers, and each tail is read once. The tails then grow. A crash finds the short tails.
func TestTailsComeBackTogether(t *testing.T) {
	b, l := tailsOnDisk(t)
	n, release := heldReads(b)
	l.ReadTailsBack()
	if got := n.Load(); got != 8 {
		t.Errorf("%d reads in flight, want 8", got)
	}
	release()
	for seg := range tailSegments {
		b.append(l, seg, uint32(tailSegments+seg))
	}
	if got := b.s.Stats().Reads; got != tailSegments {
		t.Errorf("%d reads, want one for each tail", got)
	}
	c := b.crashed()
	c.open()
	for seg, got := range c.check(c.s.Logfiles()[0]) {
		if !slices.Equal(got, []sample.Index{uint32(seg)}) {
			t.Errorf("killed: segment %d has %v", seg, got)
		}
	}
	c.close()
	b.books()
	b.close()
	b.open()
	for seg, got := range b.check(b.s.Logfiles()[0]) {
		if !slices.Equal(got, []sample.Index{uint32(seg), uint32(tailSegments + seg)}) {
			t.Errorf("segment %d has %v", seg, got)
		}
	}
	b.close()
}

// A tail that was read back and has not grown stays in its place.
func TestTailsStayIfTheyDoNotGrow(t *testing.T) {
	b, l := tailsOnDisk(t)
	used := b.s.Used()
	l.ReadTailsBack()
	l.ReadTailsBack()
	b.append(l, 3, tailSegments+3)
	for seg := range tailSegments { // all tails are in buffers again
		if err := l.reopenTail(t.Context(), seg); err != nil {
			t.Fatal(err)
		}
	}
	if l.pool.idle() {
		t.Fatal("no tail is in a buffer")
	}
	s := b.s
	b.close()
	if got := s.Stats().Writes; got != 1 {
		t.Errorf("%d writes for one tail that has grown", got)
	}
	b.open()
	if got := b.s.Used(); got > used+1 {
		t.Errorf("%d places used, want %d as before", got, used)
	}
	for seg, got := range b.check(b.s.Logfiles()[0]) {
		want := []sample.Index{uint32(seg)}
		if seg == 3 {
			want = append(want, tailSegments+3)
		}
		if !slices.Equal(got, want) {
			t.Errorf("segment %d has %v", seg, got)
		}
	}
	b.books()
	b.close()
}

// Whatever happens while tails are being read back, buffers and places are returned, and no sample is lost.
func TestTailsOnTheirWay(t *testing.T) {
	cases := map[string]func(b *bed, l *Logfile, release func()) (gone int){
		"freed": func(b *bed, l *Logfile, release func()) int {
			for seg := range 5 {
				l.FreeSegment(seg)
			}
			release()
			return 5
		},
		"dropped": func(b *bed, l *Logfile, release func()) int {
			if err := b.s.Drop(0); err != nil {
				b.t.Error(err)
			}
			release()
			return tailSegments
		},
		"an append gives up": func(b *bed, l *Logfile, release func()) int {
			ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Millisecond)
			defer cancel()
			if _, err := l.Append(ctx, 4, tailSegments+4, b.content(tailSegments+4)); !isErr(err, context.DeadlineExceeded) {
				b.t.Errorf("an append that waits for its tail ended with %v", err)
			}
			release()
			if off := b.append(l, 4, tailSegments+4); off != b.format.pad(int(b.sizes[4])) {
				b.t.Errorf("the append continued at %d", off)
			}
			return 0
		},
		"closed": func(b *bed, l *Logfile, release func()) int {
			time.AfterFunc(10*time.Millisecond, release)
			return 0
		},
	}
	for name, during := range cases {
		t.Run(name, func(t *testing.T) {
			b, l := tailsOnDisk(t)
			_, release := heldReads(b)
			l.ReadTailsBack()
			gone := during(b, l, release)
			b.close()
			if len(b.losses()) > 0 {
				t.Errorf("lost %v", b.losses())
			}
			if have := b.stored(); len(have) < tailSegments-gone || gone > 0 && len(have) > tailSegments-gone {
				t.Errorf("%d samples were found, %d tails freed", len(have), gone)
			}
		})
	}
}

// A tail whose first read fails is read again by the append that needs it. One on a device that is quarantined meanwhile is a hole.
func TestTailsThatCannotComeBack(t *testing.T) {
	b, l := tailsOnDisk(t)
	failing(b.opts.IO, false, func(n int64) bool { return n == 0 })
	l.ReadTailsBack()
	for seg := range tailSegments {
		b.append(l, seg, uint32(tailSegments+seg))
	}
	if s := b.s.Stats(); s.Reads != tailSegments+1 || s.ReadErrors != 1 || s.Holes != 0 {
		t.Errorf("%d reads, %d errors, %d holes", s.Reads, s.ReadErrors, s.Holes)
	}
	blockio.Inject(b.opts.IO, nil)
	b.close()

	b, l = tailsOnDisk(t)
	_, release := heldReads(b)
	l.ReadTailsBack()
	b.s.devices[0].read.put(b.s.now(), unix.EIO)
	b.s.endWaitsOnQuarantined(b.s.devices[0], false, "the test says so")
	lost := 0
	for seg := range tailSegments {
		_, tail, _, short := l.tailOnDisk(seg)
		if !short || int(tail.place)%2 != 0 {
			continue
		}
		lost++
		if off := b.append(l, seg, uint32(tailSegments+seg)); off != uint64(b.format.Block) {
			t.Errorf("segment %d continued at %d", seg, off)
		}
	}
	release()
	if got := len(b.losses()); got != lost || lost == 0 {
		t.Errorf("lost %d, want %d", got, lost)
	}
	b.books()
	b.close()
}
