package logfile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"lcache/sample"
)

func TestRoundTrip(t *testing.T) {
	for _, dirs := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d directories", dirs), func(t *testing.T) {
			const segments = 5
			b := newBed(t, dirs, 8192, 600, randomSizes(300, 8192, 3*8192, 1))
			b.open()
			l := b.begin(0, 1, segments, 400, 300)
			want := map[int][]sample.Index{}
			r := rand.New(rand.NewPCG(2, 2))
			for _, i := range r.Perm(300) {
				seg := r.IntN(segments)
				b.append(l, seg, uint32(i))
				want[seg] = append(want[seg], uint32(i))
			}
			compare(t, "before the restart", b.check(l), want)
			b.books()
			if err := l.Seal(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.close()

			b.open()
			l = b.s.Logfiles()[0]
			if l == nil || b.s.Logfiles()[1] != nil {
				t.Fatalf("recovered %v", b.s.Logfiles())
			}
			if h := l.Header(); h.Epoch != 1 || h.Key != [16]byte{7} || h.Segments != segments || h.SegmentBlocks != 400 || h.Block != 8192 {
				t.Errorf("header %+v", h)
			}
			compare(t, "after a clean stop", b.check(l), want)
			b.books()
			if st := b.s.Stats(); st.IgnoredBytes != 0 || st.IgnoredRecords != 0 || len(b.losses()) != 0 {
				t.Errorf("after a clean stop: %+v, lost %v", st, b.losses())
			}
			for seg := range segments {
				l.FreeSegment(seg)
			}
			if !l.Empty() || b.s.Free() != 600 {
				t.Errorf("all freed: empty %v, %d of 600 places free", l.Empty(), b.s.Free())
			}
			b.close()
		})
	}
}

func compare(t testing.TB, when string, got, want map[int][]sample.Index) {
	t.Helper()
	for seg := range want {
		if !slices.Equal(got[seg], want[seg]) {
			t.Errorf("%s: segment %d has %d samples, want %d:\n%v\n%v", when, seg, len(got[seg]), len(want[seg]), got[seg], want[seg])
		}
	}
}

// After any number of appends the process may be killed. What is found then is in order, right, and goes on growing.
func TestKilledAtEveryPoint(t *testing.T) {
	const n, segments = 24, 3
	b := newBed(t, 2, 4096, 64, randomSizes(n, 4096, 3*4096, 3))
	b.open()
	defer b.close()
	l := b.begin(1, 5, segments, 60, n/segments) // the arrival lists have room for no sample more
	full := map[int][]sample.Index{}
	for i := range uint32(n) {
		seg := int(i) % segments
		b.append(l, seg, i)
		full[seg] = append(full[seg], i)
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		whole := b.check(l) // the samples on disk and in buffers

		c := b.crashed()
		c.open()
		k := c.s.Logfiles()[1]
		got := c.check(k)
		for seg := range segments {
			if want := inFullBlocks(l, seg); !slices.Equal(got[seg], want) {
				t.Errorf("after %d appends: segment %d has %v, want %v of %v", i+1, seg, got[seg], want, whole[seg])
			}
		}
		c.books()
		// What was lost with the buffers is appended again, and it all fits: nothing dead takes up room in the lists.
		for seg := range segments {
			for _, i := range full[seg] {
				if !slices.Contains(got[seg], i) {
					c.append(k, seg, i)
				}
			}
		}
		c.close()
		c.open()
		for seg, again := range c.check(c.s.Logfiles()[1]) {
			slices.Sort(again)
			if !slices.Equal(again, full[seg]) {
				t.Errorf("after %d appends and a repair: segment %d has %v, want %v", i+1, seg, again, full[seg])
			}
		}
		c.books()
		c.close()
	}
}

// inFullBlocks lists the samples of a segment that are in full blocks.
func inFullBlocks(l *Logfile, seg int) (out []sample.Index) {
	w := uint64(l.head.Block)
	limit := l.Length(seg) / w * w
	l.Arrivals(seg, func(_ int, i sample.Index, off uint64) bool {
		if off+l.s.format.pad(int(l.s.sizes[i])) <= limit {
			out = append(out, i)
		}
		return true
	})
	return out
}

func TestConcurrentAppends(t *testing.T) {
	const n, segments, workers = 800, 7, 6
	b := newBed(t, 2, 4096, 1200, randomSizes(n, 4096, 9000, 4))
	b.open()
	l := b.begin(0, 0, segments, 400, n)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				seg := i * 7919 % segments
				off, err := l.Append(t.Context(), seg, uint32(i), b.content(uint32(i)))
				if err != nil {
					t.Error(err)
					return
				}
				buf := aligned(t, Span(off, int(b.sizes[i])))
				if got, err := l.Read(t.Context(), seg, off, int(b.sizes[i]), buf); err != nil || string(got) != string(b.content(uint32(i))) {
					t.Errorf("sample %d read while others append: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, list := range b.check(l) {
		total += len(list)
	}
	if total != n {
		t.Errorf("%d samples, want %d", total, n)
	}
	b.books()
	b.close()
}

func TestAppendRefuses(t *testing.T) {
	b := newBed(t, 1, 4096, 8, []uint32{100, 0, 9000, 100, 100})
	b.open()
	defer b.close()
	l := b.begin(0, 0, 2, 2, 2)
	ctx := t.Context()
	tests := []struct {
		name  string
		seg   int
		index uint32
		data  []byte
		want  error
	}{
		{"segment below", -1, 0, make([]byte, 100), nil},
		{"segment above", 2, 0, make([]byte, 100), nil},
		{"index", 0, 5, make([]byte, 100), nil},
		{"length", 0, 0, make([]byte, 99), nil},
		{"no bytes", 0, 1, nil, nil},
		{"string full", 0, 2, make([]byte, 9000), ErrFull},
	}
	for _, tt := range tests {
		if _, err := l.Append(ctx, tt.seg, tt.index, tt.data); err == nil || tt.want != nil && !isErr(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
	b.append(l, 0, 0)
	b.append(l, 0, 3)
	if _, err := l.Append(ctx, 0, 4, make([]byte, 100)); !isErr(err, ErrFull) {
		t.Errorf("arrival list full: got %v", err)
	}
	if got := b.check(l); !slices.Equal(got[0], []uint32{0, 3}) {
		t.Errorf("refused appends left %v", got)
	}
	if err := b.s.Drop(0); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(ctx, 0, 0, make([]byte, 100)); !isErr(err, ErrClosed) {
		t.Errorf("append after drop: %v", err)
	}
	if b.s.Free() != 8 {
		t.Errorf("%d of 8 places free after drop", b.s.Free())
	}
}

func TestAppendHonoursContext(t *testing.T) {
	b := newBed(t, 1, 4096, 2, randomSizes(40, 4096, 4096, 9))
	b.opts.Spare = 2
	for i := range b.sizes {
		b.sizes[i] = 4096
	}
	b.open()
	defer b.close()
	l := b.begin(0, 0, 1, 40, 40)
	for i := range uint32(5) { // two places and three buffers
		b.append(l, 0, i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := l.Append(ctx, 0, 5, b.content(5))
		ended <- err
	}()
	cancel()
	if err := <-ended; !isErr(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := l.FreeBlocks(0, 2); err != nil { // now the waiting blocks get their places
		t.Fatal(err)
	}
	b.append(l, 0, 6)
	if got, want := b.check(l)[0], []uint32{2, 3, 4, 6}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A sample whose append was given up half-way does not look whole, now or after a crash.
func TestAppendGivenUpHalfWay(t *testing.T) {
	b := newBed(t, 1, 4096, 2, []uint32{4096, 4096, 4096, 3 * 4096, 4096})
	b.opts.Spare = 2
	b.open()
	l := b.begin(0, 0, 1, 40, 40)
	for i := range uint32(3) {
		b.append(l, 0, i)
	}
	// Two of three buffers are back, the third one waits for a place.
	if err := b.s.transfers.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Append(ctx, 0, 3, b.content(3)); !isErr(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	l.FreeBlocks(0, 2)
	b.append(l, 0, 4)
	if got, want := b.check(l)[0], []uint32{2, 4}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	b.close()
	b.open()
	if got := b.check(b.s.Logfiles()[0])[0]; slices.Contains(got, 3) {
		t.Errorf("after a restart: %v", got)
	}
	b.close()
}

func TestFreeListIsFIFO(t *testing.T) {
	l := newFreeList(5, 1, 1, func(p uint32) bool { return p == 2 })
	var got []uint32
	pop := func() { p, _ := l.tryTake(); got = append(got, p) }
	pop()
	pop()
	l.release(0, noPlace)
	l.share(1, 2)
	l.release(1)
	pop()
	l.release(1)
	for range 3 {
		pop()
	}
	if want := []uint32{0, 1, 3, 4, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	f := &blockWrite{avoid: noPlace}
	if l.take(f) || f.place != noPlace {
		t.Errorf("an empty list gave %d", f.place)
	}
	if ready := l.release(3); len(ready) != 1 || ready[0] != f || f.place != 3 || l.len() != 0 {
		t.Errorf("a freed place made %v ready, want the waiting write", ready)
	}
}

func TestBeginAndDrop(t *testing.T) {
	b := newBed(t, 1, 4096, 16, []uint32{4096, 4096})
	b.open()
	defer b.close()
	l := b.begin(0, 0, 1, 4, 4)
	b.append(l, 0, 0)
	if _, err := b.s.Begin(0, Header{Segments: 1, SegmentBlocks: 1}, []uint64{0, 1}); err == nil {
		t.Error("began over a logfile that holds blocks")
	}
	bad := []struct {
		slot   int
		h      Header
		starts []uint64
	}{
		{2, Header{Segments: 1, SegmentBlocks: 1}, []uint64{0, 1}},
		{1, Header{Segments: 0, SegmentBlocks: 1}, []uint64{0}},
		{1, Header{Segments: 1, SegmentBlocks: 0}, []uint64{0, 1}},
		{1, Header{Segments: 1, SegmentBlocks: 1}, []uint64{0}},
		{1, Header{Segments: 1, SegmentBlocks: 1}, []uint64{2, 1}},
		{1, Header{Segments: 1, SegmentBlocks: 1, Block: 8192, Align: 64}, []uint64{0, 1}},
	}
	for _, tt := range bad {
		if _, err := b.s.Begin(tt.slot, tt.h, tt.starts); err == nil {
			t.Errorf("began %+v in slot %d with starts %v", tt.h, tt.slot, tt.starts)
		}
	}
	l.FreeSegment(0)
	first := &l.Buffers()[0]
	if again := b.begin(0, 1, 1, 4, 4); &again.Buffers()[0] != first {
		t.Error("the slot's buffers were not used again")
	}
	larger := b.begin(0, 2, 9, 4, 4)
	if len(larger.Buffers()) != (9+4)*4096 {
		t.Errorf("%d bytes of buffers", len(larger.Buffers()))
	}
	if err := b.s.Drop(0); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.s.journalPath(0)); !os.IsNotExist(err) {
		t.Errorf("the dropped logfile's journal: %v", err)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	if dir := os.Getenv("LOGFILE_TEST_LOCK"); dir != "" {
		_, err := Lock(dir)
		fmt.Println(err)
		os.Exit(0)
	}
	dir := t.TempDir()
	lock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := (&BusyError{Dir: dir, Pid: os.Getpid()}).Error()
	if _, err := Lock(dir); err == nil || err.Error() != want {
		t.Errorf("second lock in this process: %v", err)
	}
	child := exec.Command(os.Args[0], "-test.run=^TestSecondProcessIsRefused$")
	child.Env = append(os.Environ(), "LOGFILE_TEST_LOCK="+dir)
	if out, err := child.CombinedOutput(); err != nil || string(out) != want+"\n" {
		t.Errorf("second process: %q, %v; want %q", out, err, want)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if lock, err = Lock(dir); err != nil {
		t.Fatalf("after the holder has gone: %v", err)
	}
	lock.Close()
	if err := os.Remove(filepath.Join(dir, "LOCK")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(dir, "LOCK")); err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(dir); err == nil {
		t.Error("followed a link")
	}
}
