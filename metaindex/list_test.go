package metaindex_test

import (
	"slices"
	"testing"

	"lcache/metaindex"
	"lcache/sample"
)

// dealt is a rank's chunks as a list of lists.
func dealt(chunks ...[]sample.Index) (int, func(int) ([]sample.Index, bool)) {
	return len(chunks), func(batch int) ([]sample.Index, bool) {
		if batch < 0 || batch >= len(chunks) {
			return nil, false
		}
		return chunks[batch], true
	}
}

func TestListOfCMs(t *testing.T) {
	sizes := []uint32{100, 0, 7, 1000, 50, 3}
	l := newLocations(t, len(sizes), 8)
	for _, i := range []sample.Index{0, 2, 5} {
		l.Set(i, l.At(0, 1, 8*uint64(i)))
	}
	n, chunk := dealt([]sample.Index{3, 0}, []sample.Index{2, 1}, []sample.Index{1}, []sample.Index{5, 5}, nil)
	list := metaindex.NewList(n, chunk, sizes, l)
	want := []metaindex.CM{
		{Offset: 0, Size: 1100, Cached: false, Content: []sample.Index{3, 0}},
		{Offset: 1100, Size: 7, Cached: true, Content: []sample.Index{2, 1}}, // an empty sample is always there
		{Offset: 1107, Size: 0, Cached: true, Content: []sample.Index{1}},
		{Offset: 1107, Size: 6, Cached: true, Content: []sample.Index{5, 5}},
		{Offset: 1113, Size: 0, Cached: true},
	}
	if list.Len() != len(want) || list.Bytes() != 1113 || list.Largest() != 1100 || list.Offset(chunk, len(want)) != 1113 {
		t.Errorf("%d chunks of %d bytes, the largest of %d; want %d, 1113 and 1100", list.Len(), list.Bytes(), list.Largest(), len(want))
	}
	for cid := range want {
		got := list.CM(chunk, cid)
		if got.CID != uint64(cid) || got.Offset != want[cid].Offset || got.Size != want[cid].Size || got.Cached != want[cid].Cached || !slices.Equal(got.Content, want[cid].Content) {
			t.Errorf("CM %d is %+v, want %+v", cid, got, want[cid])
		}
	}
	// Cached is the current state; the other fields are not.
	l.Set(3, l.At(1, 0, 0))
	l.Clear(2, l.Get(2))
	if !list.CM(chunk, 0).Cached || list.CM(chunk, 1).Cached {
		t.Error("Cached does not follow the places")
	}
	if none := metaindex.NewList(0, chunk, sizes, l); none.Len() != 0 || none.Bytes() != 0 || none.Largest() != 0 || none.Offset(chunk, 0) != 0 {
		t.Errorf("without chunks: %d of %d bytes", none.Len(), none.Bytes())
	}
}

// A list of very many chunks keeps the offsets of some of them only.
func TestListOfManyChunks(t *testing.T) {
	const batches = 200_001
	sizes := []uint32{3, 5, 11}
	chunks := func(batch int) ([]sample.Index, bool) {
		return []sample.Index{sample.Index(batch % 3)}, batch < batches
	}
	list := metaindex.NewList(batches, chunks, sizes, nil)
	off := uint64(0)
	for batch := range batches {
		if got := list.Offset(chunks, batch); got != off {
			t.Fatalf("chunk %d begins at %d, want %d", batch, got, off)
		}
		off += uint64(sizes[batch%3])
	}
	if list.Bytes() != off || list.CM(chunks, batches-1).Cached {
		t.Errorf("%d bytes, want %d, and none cached", list.Bytes(), off)
	}
}
