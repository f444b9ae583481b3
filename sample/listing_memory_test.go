package sample

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// numbered is a listing that takes no memory.
type numbered int

func (n numbered) Len() int       { return int(n) }
func (n numbered) At(i int) Entry { return Entry{Name: digits[i], Size: 10, Version: uint64(i)} }

// digits are names that were made before, so that they don't count.
var digits = func() (list [100_000]string) {
	for i := range list {
		list[i] = "a/" + strconv.Itoa(i)
	}
	return list
}()

// TestWriteListingMakesNoGarbage: a listing of many millions leaves little room for anything else. So the memory for writing a manifest is outside the heap, and is released.
func TestWriteListingMakesNoGarbage(t *testing.T) {
	allocated := func(samples int) uint64 {
		var before, after runtime.MemStats
		path := filepath.Join(t.TempDir(), "manifest")
		runtime.ReadMemStats(&before)
		if _, err := WriteListing(path, nil, numbered(samples)); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	const few, many, most = 20_000, 100_000, 18 // the name that is read back takes 8, with the race detector 16; an index of names on the heap would be 12 more
	each := float64(allocated(many)-allocated(few)) / (many - few)
	if t.Logf("%.1f bytes are allocated for each sample", each); each > most {
		t.Errorf("%.1f bytes are allocated for each sample, want at most %d", each, most)
	}
}

// TestLeastBytes: the bound holds, and is near, for samples with and without parts and in shards.
func TestLeastBytes(t *testing.T) {
	shard := &Shard{Name: "s", Size: 1 << 40, Records: true}
	for what, make := range map[string]func(i int) Entry{
		"files": func(i int) Entry { return Entry{Name: fmt.Sprintf("class/%d.jpg", i), Size: 9} },
		"records": func(i int) Entry {
			return Entry{Name: fmt.Sprintf("s/%d", i), Size: 9, Shard: shard, Parts: []Part{{Ext: "data", Size: 9}}, Offsets: []uint64{uint64(9 * i)}}
		},
	} {
		var entries []Entry
		for i := range 10_000 {
			entries = append(entries, make(i))
		}
		m := openTemp(t, nil, entries)
		if least := LeastBytes(Entries(entries)); least > m.PlainBytes() || least < m.PlainBytes()*4/5 {
			t.Errorf("%s: at least %d bytes, it has %d", what, least, m.PlainBytes())
		}
	}
}
