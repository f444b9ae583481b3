package prefetch_test

import (
	"slices"
	"testing"

	"lcache/chunker"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/prefetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// TestSlotsAskedBack: when the ring gives slots back, samples that were read ahead into them are freed at once, not
// when ranks reach them. Samples that a rank requests then are read.
func TestSlotsAskedBack(t *testing.T) {
	const n, slots = 60, 10
	var order [][]sample.Index
	for i := range n {
		order = append(order, []sample.Index{sample.Index(i)})
	}
	b := newLeftBed(t, slices.Repeat([]uint32{3000}, n), fetch.Options{Jobs: 4}, staging.Options{Lent: true, Slots: slots, SlotBytes: 4 * room, MissBytes: 4 * room, SideBytes: 2 * room},
		prefetch.Options{}, map[int][][]sample.Index{0: order})
	b.r.Asked(chunker.Position{})
	b.until(func() bool { return b.present(30) })
	b.Staging.ReturnSlots()
	b.r.UseSide()
	b.until(func() bool { return b.Staging.SlotsBack() >= slots-2 }) // the rank's next samples are kept
	for i := range sample.Index(n) {
		at := chunker.Position{Batch: int(i)}
		b.r.Asked(at)
		b.until(func() bool { return b.present(i) })
		b.Staging.Release(b.take(i))
		b.r.Delivered(at)
	}
	b.until(func() bool { return b.Staging.SlotsBack() == slots }) // a worker may still hold a sample that it has just published
}

// TestOthersQueue: a sample that waits for memory only for a later chunk is not reported as coming, because a request
// would wait until that chunk is needed.
func TestOthersQueue(t *testing.T) {
	b := missBed(t, 20, 4, 1)
	b.r.Asked(chunker.Position{})
	b.until(func() bool { return b.present(0, 1, 2, 3) })
	h := b.take(0)
	b.r.Delivered(chunker.Position{})
	b.waitFor("a sample is listed that has no memory until a client releases the first one", func() bool { return b.r.Listed(4) })
	if _, queued := b.r.Look(chunker.Position{Batch: 4}, 4); !queued {
		t.Error("a sample that waits for memory is not called coming for its own chunk")
	}
	if reading, queued := b.r.Look(chunker.Position{}, 4); reading || queued {
		t.Error("it is called coming for a chunk that does not want it")
	}
	b.Staging.Release(h)
	b.until(func() bool { return b.present(4) })
}
