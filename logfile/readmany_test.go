package logfile

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
)

// readMany reads ranges and waits for them.
func readMany(t *testing.T, l *Logfile, ranges []Range) (data [][]byte, errs []error) {
	t.Helper()
	data, errs = make([][]byte, len(ranges)), make([]error, len(ranges))
	done := make(chan struct{}, len(ranges)+1)
	for i := range ranges {
		ranges[i].Buf = aligned(t, Span(ranges[i].Offset, max(ranges[i].Len, 1)))
		ranges[i].Done = func(d []byte, err error) { data[i], errs[i] = d, err; done <- struct{}{} }
	}
	l.ReadMany(ranges)
	for range ranges {
		<-done
	}
	if len(done) > 0 {
		t.Error("Done was called twice")
	}
	return data, errs
}

func TestReadMany(t *testing.T) {
	for _, dirs := range []int{1, 2} {
		b := newBed(t, dirs, 4096, 40, []uint32{9000, 100, 4096, 3000, 200, 700})
		b.open()
		l := b.begin(0, 0, 1, 40, 6)
		var offs []uint64
		for i := range uint32(5) {
			offs = append(offs, b.append(l, 0, i))
		}
		if err := l.WriteTails(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		offs = append(offs, b.append(l, 0, 5)) // the last block is a buffer again
		before := b.s.Stats()
		var ranges []Range
		for i := range uint32(6) {
			ranges = append(ranges, Range{Offset: offs[i], Len: int(b.sizes[i])})
		}
		ranges = append(ranges, Range{Offset: offs[1], Len: int(offs[3]-offs[1]) + 3000}) // samples 1 to 3 at once
		data, errs := readMany(t, l, ranges)
		for i, err := range errs {
			if err != nil {
				t.Fatalf("%d directories, range %d: %v", dirs, i, err)
			}
			if i < 6 && !bytes.Equal(data[i], b.content(uint32(i))) {
				t.Errorf("%d directories: sample %d has other bytes than were appended", dirs, i)
			}
		}
		for i := uint32(1); i <= 3; i++ {
			if at := offs[i] - offs[1]; !bytes.Equal(data[6][at:at+uint64(b.sizes[i])], b.content(i)) {
				t.Errorf("%d directories: sample %d in the larger read has other bytes than were appended", dirs, i)
			}
		}
		// Sample 0 is in blocks 0 to 2, sample 1 in 2, 2 in 2 and 3, 3 in 3, 4 in 3 and the buffer, 5 in the buffer, which needs no read.
		// On one device the blocks are adjacent and are read at once; on two they are not.
		after := b.s.Stats()
		reads, block := after.Reads-before.Reads, after.BlockReads-before.BlockReads
		if want := map[int]uint64{1: 6, 2: 3 + 1 + 2 + 1 + 1 + 2}[dirs]; reads != want || block != want {
			t.Errorf("%d directories: %d transfers, %d of them counted as read ahead; want %d", dirs, reads, block, want)
		}
		b.close()
	}
}

func TestReadManyFails(t *testing.T) {
	b := newBed(t, 2, 4096, 40, []uint32{9000, 100, 4096})
	b.open()
	defer b.close()
	l := b.begin(0, 0, 1, 40, 3)
	var offs []uint64
	for i := range uint32(3) {
		offs = append(offs, b.append(l, 0, i))
		b.flush(l) // so that each block is dealt to the next device
	}
	if err := l.WriteTails(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for nth := range int64(4) { // three blocks of the first sample, then the second one's
		failing(b.opts.IO, false, func(i int64) bool { return i == nth })
		_, errs := readMany(t, l, []Range{{Offset: 0, Len: 9000}, {Offset: offs[1], Len: 100}})
		for i, err := range errs {
			if bad := i == int(nth/3); isErr(err, unix.EIO) != bad || (err != nil) != bad {
				t.Errorf("transfer %d fails: range %d gives %v", nth, i, err)
			}
		}
	}
	failing(b.opts.IO, false, func(int64) bool { return false })
	l.FreeSegment(0)
	_, errs := readMany(t, l, []Range{{Offset: 0, Len: 9000}, {Segment: 1, Len: 1}, {Offset: 1 << 30, Len: 1}, {Len: 0}})
	for i, want := range []error{ErrFreed, nil, ErrHole, nil} {
		if errs[i] == nil || want != nil && !isErr(errs[i], want) {
			t.Errorf("range %d of a freed segment, or of none: %v", i, errs[i])
		}
	}
}
