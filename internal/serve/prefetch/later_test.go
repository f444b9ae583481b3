package prefetch_test

import (
	"slices"
	"sync/atomic"
	"testing"

	"lcache/chunker"
	"lcache/internal/serve/fetch"
	"lcache/internal/serve/prefetch"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// laterBed is a leftBed with 60 chunks of one sample each. Memory has room for 16 samples, and a slot for as many.
// Copies for later chunks may take half of the memory.
func laterBed(t *testing.T, passing bool) *leftBed {
	t.Helper()
	var order [][]sample.Index
	for i := range 60 {
		order = append(order, []sample.Index{sample.Index(i)})
	}
	b := newLeftBed(t, slices.Repeat([]uint32{3000}, 60), fetch.Options{Jobs: 4}, staging.Options{Slots: 1, SlotBytes: 16 * 4096, SideBytes: 1 << 16, MissBytes: 16 * room}, prefetch.Options{},
		map[int][][]sample.Index{0: order})
	b.passing = passing
	return b
}

// begins requests the first chunk. It waits until the rank's read-ahead is complete and the last later chunk is
// noted.
func (b *leftBed) begins(ahead int) {
	b.t.Helper()
	b.ask(0, 0)
	b.until(func() bool { return b.r.Ready(chunker.JobRank{}) >= ahead })
	b.waitFor("the last chunk is noted", func() bool { return !b.passing || len(b.passes(59)) > 0 })
}

// passes puts samples into the slot, and then reuses the slot. It returns the samples that were copied.
func (b *leftBed) passes(indices ...sample.Index) (copied []sample.Index) {
	b.t.Helper()
	slot, ok := b.Staging.Acquire(staging.Segment{Log: 7})
	if !ok {
		b.t.Fatal("no slot is free")
	}
	for k, i := range indices {
		at := b.Staging.Slot(slot)[k*4096:]
		copy(at, b.Content(i))
		b.Staging.Publish(i, b.Staging.OffsetOf(at), sample.FromLog)
	}
	b.Staging.Ready(slot)
	members := func(f func(sample.Index)) {
		for _, i := range indices {
			f(i)
		}
	}
	var kept prefetch.Kept
	b.Staging.Reclaim(func(staging.Segment) bool { return true }, func(_ staging.Segment, gone func(sample.Index)) {
		kept = b.r.KeepFromSlot(members)
		clear(b.Staging.Slot(slot)) // as the next load would
		members(gone)
	})
	kept.Restore(b.Staging)
	for _, i := range indices {
		if b.Staging.Present(i) {
			copied = append(copied, i)
		}
		b.r.LeftSlot(i)
	}
	return copied
}

// readToEnd requests the chunks from one on, and returns all samples read from the source.
func (b *leftBed) readToEnd(from int) (read []sample.Index) {
	b.t.Helper()
	for batch := from; batch < 60; batch++ {
		b.ask(0, batch)
	}
	for i := range sample.Index(60) {
		if slices.Contains(b.Source.Order(), b.Name(i)) {
			read = append(read, i)
		}
	}
	if got := len(b.Source.Order()); got != len(read) {
		b.t.Errorf("%d reads of %d samples: one was read twice", got, len(read))
	}
	return read
}

// Samples that the scan loads for another job are kept for chunks that the rank will reach later. They are not read
// for these chunks.
func TestKeptForLater(t *testing.T) {
	b := laterBed(t, true)
	b.begins(8)
	passed := []sample.Index{20, 21, 35, 58}
	if got := b.passes(passed...); !slices.Equal(got, passed) {
		t.Errorf("%v were copied, want %v", got, passed)
	}
	if got := b.passes(1, 20); !slices.Contains(got, 20) {
		t.Errorf("after the samples were in a slot again, %v are present", got)
	}
	read := b.readToEnd(1)
	if slices.ContainsFunc(passed, func(i sample.Index) bool { return slices.Contains(read, i) }) || len(read) != 55 {
		t.Errorf("%v were read, want all but %v and 59", read, passed)
	}
}

// If no scan loads samples for another job, all memory is for the next reads.
func TestNoLaterCopiesWithoutAScan(t *testing.T) {
	b := laterBed(t, false)
	b.begins(16)
	if got := b.passes(30, 40); got != nil {
		t.Errorf("%v were copied", got)
	}
	if read := b.readToEnd(1); len(read) != 60 {
		t.Errorf("%d samples were read, want all 60", len(read))
	}
}

// Copies take half of the memory. Those needed first stay, whatever the order in which they arrive.
func TestLaterCopiesThatAreNeededFirst(t *testing.T) {
	for name, order := range map[string]func([]sample.Index){"first first": func([]sample.Index) {}, "last first": slices.Reverse[[]sample.Index]} {
		t.Run(name, func(t *testing.T) {
			b := laterBed(t, true)
			b.begins(8)
			var all []sample.Index
			for i := sample.Index(20); i < 60; i++ {
				all = append(all, i)
			}
			order(all)
			for some := range slices.Chunk(all, 8) {
				b.passes(some...)
			}
			var there []sample.Index
			for i := range sample.Index(60) {
				if i >= 20 && b.Staging.Present(i) {
					there = append(there, i)
				}
			}
			if len(there) != 16 || there[0] != 20 || there[15] != 35 {
				t.Errorf("%v are there, want 20 to 35", there)
			}
			if read := b.readToEnd(1); len(read) > 46 { // a rank's share of memory depends on its pace, and may become a little smaller
				t.Errorf("%d samples were read, want 44, or one or two more", len(read))
			}
		})
	}
}

// Copies are freed when the rank's order changes, when the rank is forgotten, and when a request has no memory.
func TestLaterCopiesAreFreed(t *testing.T) {
	for name, free := range map[string]func(*leftBed){
		"the order changes": func(b *leftBed) { b.r.Changed(chunker.JobRank{}, 0) },
		"the rank sleeps":   func(b *leftBed) { b.r.Forget(chunker.JobRank{}) },
		"the rank jumps":    func(b *leftBed) { b.r.Asked(chunker.Position{Epoch: 5}) },
	} {
		t.Run(name, func(t *testing.T) {
			b := laterBed(t, true)
			b.begins(8)
			if got := b.passes(40, 50); len(got) != 2 {
				t.Fatalf("%v were copied, want two", got)
			}
			free(b)
			if b.present(40) || b.present(50) {
				t.Error("a copy is there still")
			}
		})
	}
}

// A rank that reads nothing ahead because the scan serves it lends its part of the memory for copies.
func TestIdleRanksLendMemoryForCopies(t *testing.T) {
	var order [][]sample.Index
	for i := range 60 {
		order = append(order, []sample.Index{sample.Index(i)})
	}
	b := newLeftBed(t, slices.Repeat([]uint32{3000}, 60), fetch.Options{Jobs: 4}, staging.Options{Slots: 1, SlotBytes: 16 * 4096, SideBytes: 1 << 16, MissBytes: 32 * room}, prefetch.Options{},
		map[int][][]sample.Index{0: order, 1: nil})
	b.passing = true
	b.r.Asked(chunker.Position{Rank: 1}) // it has no chunk, because another producer serves it
	b.begins(8)
	var all []sample.Index
	for i := sample.Index(12); i < 60; i++ {
		all = append(all, i)
	}
	count := func() (n int) {
		for _, i := range all {
			if b.Staging.Present(i) {
				n++
			}
		}
		return n
	}
	for some := range slices.Chunk(all, 8) {
		b.passes(some...)
	}
	const half = 24 // copies that half of the rank's share has room for: its share is three quarters of the memory, because the other rank takes nothing
	if n := count(); n <= half {
		t.Errorf("%d copies, want more than %d", n, half)
	}
}

// Chunks that are only noted are looked up with Later. Chunk is called only for chunks that are listed.
func TestNotedChunksAreNotListed(t *testing.T) {
	var order [][]sample.Index
	for i := range 60 {
		order = append(order, []sample.Index{sample.Index(i)})
	}
	var listed, noted atomic.Int64 // the last batch looked up
	var b *leftBed
	b = newLeftBed(t, slices.Repeat([]uint32{3000}, 60), fetch.Options{Jobs: 4}, staging.Options{Slots: 1, SlotBytes: 16 * 4096, SideBytes: 1 << 16, MissBytes: 16 * room},
		prefetch.Options{Later: func(at chunker.Position) (prefetch.Upcoming, bool) {
			noted.Store(max(noted.Load(), int64(at.Batch)))
			return b.chunk(at)
		}}, map[int][][]sample.Index{0: order})
	b.passing = true
	b.listed = &listed
	b.begins(8)
	if l, n := listed.Load(), noted.Load(); l > 20 || n != 59 {
		t.Errorf("chunks to %d were listed and to %d noted, want few and to 59", l, n)
	}
}
