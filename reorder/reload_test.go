package reorder_test

import (
	"slices"
	"testing"

	"lcache/chunker"
	"lcache/internal/serve/staging"
	"lcache/reorder"
	"lcache/sample"
)

// reloads begins a target for segments that were loaded into slots without one, and has the scan append them from there.
func (b *bed) reloads(l *reorder.EpochLog, slots []int, target *reorder.EpochLog) {
	b.t.Helper()
	before := l.ID
	b.lines++
	l.ID = b.lines
	for seg, slot := range slots {
		done := make(chan struct{})
		if !b.scan.IsLoaded(slot, l, seg) || !b.Staging.Reload(slot, staging.Segment{Log: before, Segment: seg}, l.Owner(seg)) {
			b.t.Fatalf("segment %d is not in slot %d", seg, slot)
		}
		b.scan.Reload(slot, l, seg, target, func() { close(done) })
		b.wait(done)
	}
}

// TestReload: segments that were loaded without a target are appended from the slots once a target exists. The disk is not read, samples that clients hold stay where they are, and
// the old blocks are freed.
func TestReload(t *testing.T) {
	const n = 120
	b := newBed(t, spec{sizes: randomSizes(n, 8), workers: 3, slots: 2})
	l, next, target := b.twoLogs(8)
	var slots []int
	for seg := range 2 {
		slot, done := b.load(l, seg, nil, reorder.Deliver)
		b.wait(done)
		slots = append(slots, slot)
		b.under = append(b.under, begun{seg, done})
	}
	first := slices.Clone(l.Layout.Members(0))
	before := b.holds(first)
	reads, verified := b.Store.Stats().BlockReads, b.scan.Stats.Verified.Load()
	b.reloads(l, slots, target)
	if got := b.Store.Stats().BlockReads - reads; got != 0 {
		t.Errorf("%d blocks were read although their segments are in slots", got)
	}
	members := append(first, l.Layout.Members(1)...)
	if got := b.scan.Stats.Verified.Load() - verified; got != int64(len(members)) {
		t.Errorf("%d samples were verified before they were appended, want %d", got, len(members))
	}
	if after := b.holds(first); !slices.Equal(after, before) {
		t.Error("samples have other locations than before")
	}
	b.inLog(next.Log.Num(), members)
	for seg := range 2 {
		if gone, all := l.Log.Gone(seg), l.Log.Blocks(seg); gone != all {
			t.Errorf("segment %d: %d of %d blocks are free", seg, gone, all)
		}
	}
	b.under = nil
	for seg := 2; seg < int(l.Log.Header().Segments); seg++ {
		_, done := b.load(l, seg, target, reorder.Drain)
		b.wait(done)
	}
	b.inLog(next.Log.Num(), next.Layout.Order)
	if !l.Log.Empty() || len(b.Source.Reads()) != 0 {
		t.Errorf("the old Logfile is empty: %v, want true; %d reads from the source, want none", l.Log.Empty(), len(b.Source.Reads()))
	}
}

// TestReloadOfOtherBytes: bytes in a slot that do not match their sample's checksum are not appended. The sample is read from its location, and nothing is written into the slot, because clients may read it.
func TestReloadOfOtherBytes(t *testing.T) {
	const n = 60
	b := newBed(t, spec{sizes: randomSizes(n, 9), workers: 2, slots: 1})
	l, next, target := b.twoLogs(9)
	slot, done := b.load(l, 0, nil, reorder.Deliver)
	b.wait(done)
	bad := slices.IndexFunc(l.Layout.Members(0), func(i sample.Index) bool { return b.Sizes[i] > 0 })
	index := l.Layout.Members(0)[bad]
	off, _ := b.Staging.SlotOffset(index)
	b.Staging.Slice(off, 1)[0] ^= 1
	b.reloads(l, []int{slot}, target)
	if b.Staging.Slice(off, 1)[0] ^= 1; !b.Locations.In(index, next.Log.Num()) {
		t.Error("the sample was not appended")
	}
	b.holds(l.Layout.Members(0)) // all other bytes are unchanged
	b.inLog(next.Log.Num(), l.Layout.Members(0))
}

// TestIsLoaded: a slot does not hold a loaded segment if a sample is missing, has moved elsewhere, or was unpacked into the slot.
func TestIsLoaded(t *testing.T) {
	for _, c := range []struct {
		name   string
		packed bool
		spoil  func(b *bed, l *reorder.EpochLog)
		want   bool
	}{
		{"whole", false, func(*bed, *reorder.EpochLog) {}, true},
		{"moved", false, func(b *bed, l *reorder.EpochLog) { b.Staging.Publish(l.Layout.Members(0)[0], 0, sample.FromLog) }, false},
		{"another order", false, func(_ *bed, l *reorder.EpochLog) { l.Layout = nil }, false},
		{"a sample more", false, func(_ *bed, l *reorder.EpochLog) {
			l.Layout = &chunker.EpochLayout{Order: l.Layout.Order, Used: l.Layout.Used, Starts: append([]uint64{0, l.Layout.Starts[1] + 1}, l.Layout.Starts[2:]...)}
		}, false},
		{"packed", true, func(*bed, *reorder.EpochLog) {}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := spec{sizes: randomSizes(60, 10), workers: 2, slots: 2}
			if c.packed {
				s = spec{sizes: packedSizes(60, 10), workers: 2, slots: 2, packed: true}
			}
			b := newBed(t, s)
			l, _, _ := b.twoLogs(10)
			other, ok := b.Staging.Acquire(staging.Segment{Log: 1 << 40}) // slot 0, for a sample that has moved elsewhere
			slot, done := b.load(l, 0, nil, reorder.Deliver)
			b.wait(done)
			c.spoil(b, l)
			if got := b.scan.IsLoaded(slot, l, 0); got != c.want || !ok {
				t.Errorf("%v, want %v", got, c.want)
			}
			b.Staging.Ready(other)
		})
	}
}
