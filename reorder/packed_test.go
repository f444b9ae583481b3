package reorder_test

import (
	"slices"
	"testing"

	"lcache/internal/disk/blockio"
	"lcache/reorder"
	"lcache/sample"
)

// packedSizes has samples that cross block boundaries. Some of them take several blocks: up to eight, uncompressed.
func packedSizes(n int, seed uint64) []uint32 {
	sizes := randomSizes(n, seed)
	for i := range sizes {
		if i%10 == 3 || i%10 == 4 {
			sizes[i] = 5*block + uint32(i)*64
		}
	}
	return sizes
}

// A late block is read to scratch memory. Samples that were published in the slot meanwhile stay right, and the memory is returned.
func TestPackedLateBlock(t *testing.T) {
	const n = 40
	for nth := range int64(6) {
		b := newBed(t, spec{sizes: packedSizes(n, 40), workers: 2, slots: 1, packed: true, scratch: 8, scan: reorder.Options{BlockTimeout: soon}})
		l, next, target := b.twoLogs(40)
		held, release := gate(t)
		b.inject(false, func(k int64, op *blockio.Op) blockio.Fault {
			if k != nth {
				return blockio.Fault{}
			}
			return blockio.Fault{Hold: held, Flip: 1 + 8*100}
		})
		_, done := b.load(l, 0, target, reorder.Deliver)
		b.wait(done)
		members := slices.Clone(l.Layout.Members(0))
		b.holds(slices.DeleteFunc(slices.Clone(members), func(i sample.Index) bool { return !b.Staging.Present(i) }))
		release()
		blockio.Inject(b.io, nil)
		for b.reclaim(l) == 0 {
		}
		for seg := 1; seg < int(l.Log.Header().Segments); seg++ { // the last load needs all scratch memory
			_, done := b.load(l, seg, target, reorder.Deliver)
			b.wait(done)
		}
		b.inLog(1, next.Layout.Order)
	}
}

// A disk that does not answer delays the load and the scan only until it answers. Samples come from the source meanwhile.
func TestPackedDiskHangs(t *testing.T) {
	const n = 60
	b := newBed(t, spec{sizes: packedSizes(n, 44), workers: 2, slots: 1, packed: true, scan: reorder.Options{BlockTimeout: soon}})
	l, next, target := b.twoLogs(44)
	answer := b.hangDisk(t)
	_, done := b.load(l, 0, target, reorder.Deliver)
	b.wait(done)
	members := slices.Clone(l.Layout.Members(0))
	b.holds(slices.DeleteFunc(slices.Clone(members), func(i sample.Index) bool { return !b.Staging.Present(i) }))
	answer()
	before := len(b.Source.Reads())
	if before == 0 || before > n/2 {
		t.Errorf("%d samples came from the source while the disk hung", before)
	}
	for seg := 1; seg < int(l.Log.Header().Segments); seg++ {
		for b.reclaim(l) == 0 {
		}
		_, done := b.load(l, seg, target, reorder.Deliver)
		b.wait(done)
	}
	b.inLog(1, next.Layout.Order)
}
