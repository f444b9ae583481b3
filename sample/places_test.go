package sample

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// inShards has every kind of place: parts in another order, far apart, empty at the end of a shard, and in a shard of an odd size.
var (
	shardA   = &Shard{Name: "a-000.tar", Size: 10_241, Version: 1_700_000_000_123_456_789}
	shardB   = &Shard{Name: "sub/b\n\xff.tar", Size: 3 << 32, Version: 1<<64 - 1}
	inShards = []Entry{
		{Name: "a-000.tar/x", Size: 7, Label: 1, Version: 9, Parts: []Part{{Ext: "jpg", Size: 4}, {Ext: "cls", Size: 3}}, Shard: shardA, Offsets: []uint64{1536, 512}},
		{Name: "a-000.tar/y", Size: 0, Label: -1, Version: 9, Parts: []Part{{Ext: "txt", Size: 0}}, Shard: shardA, Offsets: []uint64{10_240}},
		{Name: "sub/b/x", Size: 1<<32 - 1, Label: 0, Version: 8, Parts: []Part{{Ext: "jpg", Size: 1<<32 - 2}, {Ext: "", Size: 1}}, Shard: shardB, Offsets: []uint64{512, 2 << 32}},
		{Name: "sub/b/y", Size: 0, Version: 8, Parts: []Part{{Ext: "jpg", Size: 0}}, Shard: shardB, Offsets: []uint64{3 << 32}},
	}
)

func TestPlaces(t *testing.T) {
	m := openTemp(t, nil, inShards)
	checkManifest(t, m, nil, inShards)
	if want := []Shard{*shardA, *shardB}; !reflect.DeepEqual(m.Shards(), want) {
		t.Errorf("shards are %+v, want %+v", m.Shards(), want)
	}
	for i, want := range []int{0, 0, 1, 1} {
		if got := m.ShardOf(Index(i)); got != want {
			t.Errorf("sample %d is in shard %d, want %d", i, got, want)
		}
	}
	all, err := m.Entries()
	if err != nil || !reflect.DeepEqual(all, inShards) {
		t.Errorf("all: %+v, %v", all, err)
	}
	if m := openTemp(t, listingClasses, listing); m.Shards() != nil {
		t.Errorf("a listing without shards has %v", m.Shards())
	}
}

// Many shards of odd sizes.
func TestPlacesMany(t *testing.T) {
	var entries []Entry
	for s := range 300 {
		shard := &Shard{Name: fmt.Sprintf("%d", s), Size: uint64(512 + 100*512 + s%512), Version: uint64(s)}
		for i := range 100 {
			entries = append(entries, Entry{Name: fmt.Sprintf("%d/%d", s, i), Size: 3, Version: uint64(s), Parts: []Part{{Ext: "jpg", Size: 3}}, Shard: shard, Offsets: []uint64{uint64(512 + 512*i)}})
		}
	}
	checkManifest(t, openTemp(t, nil, entries), nil, entries)
}

func TestPlacesRefused(t *testing.T) {
	for what, change := range map[string]func(e []Entry){
		"without a shard":     func(e []Entry) { e[1].Shard = nil },
		"without parts":       func(e []Entry) { e[1].Parts, e[1].Offsets = nil, nil },
		"too few offsets":     func(e []Entry) { e[0].Offsets = e[0].Offsets[:1] },
		"no multiple of 512":  func(e []Entry) { e[0].Offsets = []uint64{1536, 513} },
		"at the beginning":    func(e []Entry) { e[0].Offsets = []uint64{1536, 0} },
		"behind the end":      func(e []Entry) { e[0].Offsets = []uint64{10_240, 512} },
		"a shard comes twice": func(e []Entry) { e[3].Shard = shardA },
		"too far apart": func(e []Entry) {
			e[3].Shard = &Shard{Name: "c", Size: 1 << 43}
			e[3].Parts, e[3].Offsets = []Part{{Ext: "a", Size: 0}, {Ext: "b", Size: 0}}, []uint64{512, 1 << 42}
		},
	} {
		entries := append([]Entry(nil), inShards...)
		change(entries)
		if _, err := WriteManifest(t.TempDir()+"/manifest", nil, entries); !errors.Is(err, ErrEntry) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Every byte of section 9 is held by its checksum; with a right checksum, wrong places are errors or stay in their shards.
func TestPlacesDamaged(t *testing.T) {
	good := parseHex(t, "testdata/manifest_v2.hex")
	h, err := decodeHeader(good[:headerSize(11)], uint64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	s := h.find(secPlaces)
	refused := 0
	for at := s.off; at < s.off+s.len; at++ {
		for bit := range 8 {
			b := append([]byte(nil), good...)
			b[at] ^= 1 << bit
			if _, err := decodeBytes(b); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d, bit %d: %v", at, bit, err)
			}
			reseal(b)
			m, err := decodeBytes(b)
			if err != nil {
				refused++
				continue
			}
			for i := range m.Len() {
				checkPlaceOf(t, m, Index(i))
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
	// The place of a section in another version.
	for version, sections := range map[byte]int{1: 11, 2: 10} {
		b := append([]byte(nil), good...)
		if sections == 10 {
			b = parseHex(t, "testdata/manifest_v1.hex")
		}
		b[8] = version
		reseal(b)
		if _, err := decodeBytes(b); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "one too many") {
			t.Errorf("version %d with %d sections: %v", version, sections, err)
		}
	}
}

// checkPlaceOf checks that a sample is in its shard.
func checkPlaceOf(t *testing.T, m *Manifest, i Index) {
	t.Helper()
	e := m.withName(i, "")
	if (e.Shard != nil) != (m.Shards() != nil) || len(e.Offsets) != len(e.Parts) && e.Shard != nil {
		t.Errorf("sample %d is at %+v", i, e)
	}
	for k, off := range e.Offsets {
		if off == 0 && !e.Shard.Records || off > e.Shard.Size || uint64(e.Parts[k].Size) > e.Shard.Size-off {
			t.Errorf("part %d of sample %d is at %d of %d bytes", k, i, off, e.Shard.Size)
		}
	}
}
