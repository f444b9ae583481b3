package reorder_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"lcache/internal/disk/blockio"
	"lcache/internal/testenv"
	"lcache/reorder"
	"lcache/sample"
)

// A scan is closed while the disk accepts no blocks for a moment, so that appends wait for write buffers in the middle of a sample. They are finished: no segment has a
// gap that would leave its last samples without room after the next start.
func TestCloseFinishesSamples(t *testing.T) {
	const n = 60
	b := newBed(t, spec{sizes: slices.Repeat([]uint32{block + block/2}, n), workers: 4})
	l, next, target := b.twoLogs(31)
	held, release := gate(t)
	writes := make(chan struct{}, 2*n)
	b.inject(true, func(int64, *blockio.Op) blockio.Fault { writes <- struct{}{}; return blockio.Fault{Hold: held} })
	for seg := range 2 {
		b.load(l, seg, target, reorder.Deliver)
	}
	for range spare {
		<-writes
	}
	for free := -1; free != b.Store.Free(); time.Sleep(soon) { // until appends wait for buffers, which nothing notifies of
		free = b.Store.Free()
	}
	b.closeWaiting(release)
	moved := 0
	for seg := range int(next.Log.Header().Segments) {
		end := uint64(0)
		next.Log.Arrivals(seg, func(_ int, i sample.Index, off uint64) bool {
			if off != end {
				t.Errorf("segment %d: sample %d begins at %d, the one before ends at %d", seg, i, off, end)
			}
			end = off + uint64(padded(b.Sizes[i]))
			moved++
			return true
		})
		if got := next.Log.Length(seg); got != end {
			t.Errorf("segment %d has %d bytes, and samples up to %d", seg, got, end)
		}
	}
	if moved == 0 || moved == n {
		t.Errorf("%d of %d samples were moved: want some", moved, n)
	}
}

// A sample that is being read from the source when the scan is closed is still appended.
func TestCloseKeepsSamplesFromTheSource(t *testing.T) {
	const n = 10
	b := newBed(t, spec{sizes: slices.Repeat([]uint32{500}, n), workers: 2})
	l, _ := b.line(0, permutation(n, 32))
	next, segment := b.line(1, permutation(n, 33))
	held, release := gate(t)
	reads := make(chan struct{}, n)
	b.Source.Before(func(context.Context, sample.Entry, []byte) error { reads <- struct{}{}; <-held; return nil })
	_, done := b.load(l, 0, b.aim(next, segment), reorder.Deliver)
	<-reads
	b.closeWaiting(release)
	b.wait(done)
	for name, times := range b.Source.Reads() {
		i := slices.IndexFunc(l.Layout.Order, func(i sample.Index) bool { return b.Name(i) == name })
		if index := l.Layout.Order[i]; times != 1 || !b.Locations.In(index, 1) {
			t.Errorf("sample %d was read %d times, and is in the next log: %v", index, times, b.Locations.In(index, 1))
		}
	}
}

// A scan is closed when the last sample of a segment becomes available, which a reader may take for the end of an epoch. Blocks whose samples were all appended are free.
// Otherwise the next start would find them, as if samples were left to move.
func TestCloseFreesAppendedBlocks(t *testing.T) {
	const n = 6
	whole := 0
	for round := range testenv.Pick[uint64](200, 40) {
		b := newBed(t, spec{sizes: slices.Repeat([]uint32{block + block/2}, n), workers: 2})
		l, _, target := b.twoLogs(100 + 2*round)
		b.load(l, 0, target, reorder.Deliver)
		for left := true; left; {
			changed := b.Staging.Changed()
			if left = !b.Staging.Present(last(l)); left {
				<-changed
			}
		}
		b.closePass()
		moved := true
		for _, i := range l.Layout.Members(0) {
			moved = moved && b.Locations.In(i, 1)
		}
		if !moved {
			continue
		}
		if whole++; l.Log.Gone(0) < l.Log.Blocks(0) {
			t.Fatalf("round %d: all samples were moved, and %d of %d blocks are free", round, l.Log.Gone(0), l.Log.Blocks(0))
		}
	}
	if whole == 0 {
		t.Error("no pass was closed that had moved all")
	}
}

// last is the sample of the first segment that arrived last.
func last(l *reorder.EpochLog) (found sample.Index) {
	l.Log.Arrivals(0, func(_ int, i sample.Index, _ uint64) bool { found = i; return true })
	return found
}
