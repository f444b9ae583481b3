package metaindex_test

import (
	"slices"
	"testing"

	"lcache/chunker"
	"lcache/metaindex"
	"lcache/sample"
)

// ragged deals positions to two ranks, the second of which has one batch fewer.
type ragged [][][]uint64

func (d ragged) Batches(rank int) int { return len(d[rank]) }

func (d ragged) Positions(rank, batch int, dst []uint64) []uint64 {
	return append(dst[:0], d[rank][batch]...)
}

func TestListOfCMs(t *testing.T) {
	sizes := []uint32{100, 0, 7, 1000, 50, 3}
	chunks := &chunker.Chunks{
		Global: []sample.Index{3, 0, 2, 1, 5, 0},
		Split:  ragged{{{0, 1}, {3}, {5}}, {{2, 3}, {4, 4}}},
	}
	l := newLocations(t, len(sizes), 8)
	for _, i := range []sample.Index{0, 2, 5} {
		l.Set(i, l.At(0, 1, 8*uint64(i)))
	}
	list, err := metaindex.NewList(chunks, []int{0, 1}, sizes, l)
	if err != nil {
		t.Fatal(err)
	}
	defer list.Free()
	want := []metaindex.CM{
		{Offset: 0, Size: 1100, Cached: false, Content: []sample.Index{3, 0}},
		{Offset: 1100, Size: 7, Cached: true, Content: []sample.Index{2, 1}}, // an empty sample is always there
		{Offset: 1107, Size: 0, Cached: true, Content: []sample.Index{1}},
		{Offset: 1107, Size: 6, Cached: true, Content: []sample.Index{5, 5}},
		{Offset: 1113, Size: 100, Cached: true, Content: []sample.Index{0}},
		{Offset: 1213, Size: 0, Cached: true}, // the second rank has no third batch
	}
	if list.Len() != len(want) || list.Bytes() != 1213 || list.Largest() != 1100 {
		t.Errorf("%d chunks of %d bytes, the largest of %d; want %d, 1213 and 1100", list.Len(), list.Bytes(), list.Largest(), len(want))
	}
	var buf []sample.Index
	for cid := range want {
		got := list.CM(cid, buf)
		if got.CID != uint64(cid) || got.Offset != want[cid].Offset || got.Size != want[cid].Size || got.Cached != want[cid].Cached || !slices.Equal(got.Content, want[cid].Content) {
			t.Errorf("CM %d is %+v, want %+v", cid, got, want[cid])
		}
		buf = got.Content
	}
	// Cached is of this moment, the rest of the list is not.
	l.Set(3, l.At(1, 0, 0))
	l.Clear(2, l.Get(2))
	if !list.CM(0, nil).Cached || list.CM(1, nil).Cached {
		t.Error("Cached does not follow the places")
	}
}

func TestListOfOneRankAmongMany(t *testing.T) {
	chunks := &chunker.Chunks{Global: []sample.Index{0, 1, 2}, Split: ragged{{{0}}, {{2}, {1}}}}
	l := newLocations(t, 3, 8)
	list, err := metaindex.NewList(chunks, []int{1}, []uint32{1, 2, 4}, l)
	if err != nil {
		t.Fatal(err)
	}
	defer list.Free()
	if list.Len() != 2 || list.Bytes() != 6 || list.CM(1, nil).Offset != 4 {
		t.Errorf("%d chunks of %d bytes, the second at %d; want 2 of 6, at 4", list.Len(), list.Bytes(), list.CM(1, nil).Offset)
	}
	none, err := metaindex.NewList(chunks, nil, []uint32{1, 2, 4}, l)
	if err != nil {
		t.Fatal(err)
	}
	if none.Len() != 0 || none.Bytes() != 0 || none.Largest() != 0 {
		t.Errorf("without ranks: %d chunks of %d bytes", none.Len(), none.Bytes())
	}
	none.Free()
}
