package sample

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// records has every kind of place of a record: at the first byte, at the last, empty, without parts at the beginning and in the middle, in
// descending order, far apart, and over another one.
var (
	recordsA = &Shard{Name: "a-000.arrow", Size: 1001, Version: 1_700_000_000_123_456_789, Records: true}
	recordsB = &Shard{Name: "sub/b\n\xff", Size: 3 << 40, Version: 1<<64 - 1, Records: true}
	recordsC = &Shard{Name: "c", Size: 0, Version: 3, Records: true}
	records  = []Entry{
		{Name: "a-000.arrow/0", Label: 1, Version: 9, Shard: recordsA},
		{Name: "a-000.arrow/1", Size: 1001, Version: 9, Parts: []Part{{Ext: "image", Size: 1}, {Ext: "text", Size: 1000}}, Shard: recordsA, Offsets: []uint64{1000, 0}},
		{Name: "a-000.arrow/2", Version: 9, Shard: recordsA},
		{Name: "a-000.arrow/3", Size: 10, Version: 9, Parts: []Part{{Ext: "image", Size: 3}, {Ext: "text", Size: 7}}, Shard: recordsA, Offsets: []uint64{0, 0}},
		{Name: "sub/b/x", Size: 1<<32 - 1, Version: 8, Parts: []Part{{Ext: "", Size: 1<<32 - 1}}, Shard: recordsB, Offsets: []uint64{2 << 40}},
		{Name: "sub/b/y", Size: 0, Version: 8, Parts: []Part{{Ext: "", Size: 0}}, Shard: recordsB, Offsets: []uint64{3 << 40}},
		{Name: "c/0", Label: -7, Version: 7, Shard: recordsC},
		{Name: "c/1", Version: 7, Parts: []Part{{Ext: "text", Size: 0}}, Shard: recordsC, Offsets: []uint64{0}},
	}
)

func TestRecordPlaces(t *testing.T) {
	m := openTemp(t, nil, records)
	checkManifest(t, m, nil, records)
	if want := []Shard{*recordsA, *recordsB, *recordsC}; !reflect.DeepEqual(m.Shards(), want) {
		t.Errorf("shards are %+v, want %+v", m.Shards(), want)
	}
	for i, want := range []int{0, 0, 0, 0, 1, 1, 2, 2} {
		if got := m.ShardOf(Index(i)); got != want {
			t.Errorf("sample %d is in shard %d, want %d", i, got, want)
		}
	}
	all, err := m.Entries()
	if err != nil || !reflect.DeepEqual(all, records) {
		t.Errorf("all: %+v, %v", all, err)
	}
	if from, to := m.Span(1); from != 1000 || to != 2001 {
		t.Errorf("the first part of sample 1 begins at %d, and with as many bytes as all parts have it ends at %d", from, to)
	}
}

func TestRecordPlacesRefused(t *testing.T) {
	for what, change := range map[string]func(e []Entry){
		"without a shard":       func(e []Entry) { e[1].Shard = nil },
		"bytes without parts":   func(e []Entry) { e[0].Size = 1 },
		"too few offsets":       func(e []Entry) { e[1].Offsets = e[1].Offsets[:1] },
		"offsets without parts": func(e []Entry) { e[0].Offsets = []uint64{1} },
		"beyond the end":        func(e []Entry) { e[1].Offsets = []uint64{1001, 0} },
		"far beyond the end":    func(e []Entry) { e[1].Offsets = []uint64{1<<64 - 1, 0} },
		"longer than the shard": func(e []Entry) {
			e[3].Parts, e[3].Size = []Part{{Ext: "image", Size: 3}, {Ext: "text", Size: 1002}}, 1005
		},
		"a shard comes twice":    func(e []Entry) { e[6].Shard = recordsA },
		"a tar among other ones": func(e []Entry) { e[6].Shard, e[7].Shard = shardA, shardA },
		"impossible sizes": func(e []Entry) {
			e[6].Shard = &Shard{Name: "d", Size: 1<<63 - 1, Records: true}
			e[7].Shard = e[6].Shard
		},
	} {
		entries := append([]Entry(nil), records...)
		change(entries)
		if _, err := WriteManifest(t.TempDir()+"/manifest", nil, entries); !errors.Is(err, ErrEntry) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestRecordPlacesDamaged flips each bit of section 9. Its checksum shows it. With a right checksum, wrong places are errors or stay in their shards.
func TestRecordPlacesDamaged(t *testing.T) {
	good := parseHex(t, "testdata/manifest_v4.hex")
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
				if shard := m.ShardOf(Index(i)); shard < 0 || shard >= len(m.Shards()) {
					t.Fatalf("byte %d, bit %d: sample %d is in shard %d", at, bit, i, shard)
				}
			}
		}
	}
	if refused < 500 {
		t.Errorf("only %d files were refused", refused)
	}
}

// TestVersionsOfPlaces gives a manifest the version of another one: the section of one version is not read as that of another.
func TestVersionsOfPlaces(t *testing.T) {
	for file, version := range map[string]byte{"manifest_v2.hex": 4, "manifest_v4.hex": 2, "manifest_v1.hex": 4} {
		b := parseHex(t, "testdata/"+file)
		b[8] = version
		reseal(b)
		if _, err := decodeBytes(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s as version %d: %v", file, version, err)
		}
	}
	for file, version := range map[string]byte{"manifest_packed.hex": 5, "manifest_v5.hex": 3} {
		b := parseHex(t, "testdata/"+file)
		b[8] = version
		resealPacked(b)
		if err := tryPacked(b); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "in a packed one of version") {
			t.Errorf("%s as version %d: %v", file, version, err)
		}
	}
}

// TestPackedRecords: numbered rows of many shards take few bytes in the packed form, which has a version of its own.
func TestPackedRecords(t *testing.T) {
	var list []Entry
	for s := range 20 {
		shard := &Shard{Name: fmt.Sprintf("data-%05d-of-00020.arrow", s), Size: 1 << 30, Version: 5, Records: true}
		for i := range 1000 {
			at := uint64(i * 16_000)
			list = append(list, Entry{Name: fmt.Sprintf("%s/%d", shard.Name, i), Size: 16_005, Version: 5, Shard: shard, Parts: []Part{{Ext: "image", Size: 16_000}, {Ext: "path", Size: 5}}, Offsets: []uint64{at, 900_000_000 + uint64(5*i)}})
		}
	}
	path, plain := packedTemp(t, nil, list)
	b, err := os.ReadFile(path)
	if err != nil || !isPacked(b) || b[8] != 5 {
		t.Fatalf("version %d, %v", b[8], err)
	}
	each := float64(len(b)) / float64(len(list))
	t.Logf("%.2f bytes a sample, plain %.1f", each, float64(len(plain))/float64(len(list)))
	if each > 3 {
		t.Errorf("%.1f bytes a sample", each)
	}
}

// TestRemapRecords: an index outside of the shard can move a record, which then has other bytes although its shard is the same.
func TestRemapRecords(t *testing.T) {
	list := func(shard string, name string, offsets ...uint64) *Manifest {
		s := &Shard{Name: shard, Size: 10_000, Version: 7, Records: true}
		e := Entry{Name: name, Size: uint32(10 * len(offsets)), Version: 7, Shard: s, Offsets: offsets}
		for k := range offsets {
			e.Parts = append(e.Parts, Part{Ext: fmt.Sprint(k), Size: 10})
		}
		return openTemp(t, nil, []Entry{{Name: "first", Size: 3, Version: 7, Shard: s, Parts: []Part{{Ext: "0", Size: 3}}, Offsets: []uint64{0}}, e})
	}
	old := list("a", "x", 100, 500)
	for name, c := range map[string]struct {
		now  *Manifest
		want Index
	}{
		"the same":            {list("a", "x", 100, 500), 1},
		"moved":               {list("a", "x", 101, 500), None},
		"another distance":    {list("a", "x", 100, 510), None},
		"of another shard":    {list("b", "x", 100, 500), None},
		"fewer parts":         {list("a", "x", 100), None},
		"under another name":  {list("a", "y", 100, 500), None},
		"at the same in tars": {openTemp(t, nil, []Entry{{Name: "x", Size: 20, Version: 7, Shard: &Shard{Name: "a", Size: 10_000, Version: 7}, Parts: []Part{{Ext: "0", Size: 10}, {Ext: "1", Size: 10}}, Offsets: []uint64{512, 1024}}}), None},
	} {
		got, err := Remap(old, c.now)
		if err != nil || got[1] != c.want {
			t.Errorf("%s: %v, %v; want %d", name, got, err, c.want)
		}
	}
}

// TestOldVersionsStay: the golden files of the versions before open as before.
func TestOldVersionsStay(t *testing.T) {
	for file, version := range map[string]uint32{"manifest_v1.hex": 1, "manifest_v2.hex": 2} {
		path := filepath.Join(t.TempDir(), "manifest")
		if err := os.WriteFile(path, parseHex(t, "testdata/"+file), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := OpenManifest(path)
		if err != nil {
			t.Fatal(err)
		}
		if m.head.version != version || m.places.records {
			t.Errorf("%s has version %d", file, m.head.version)
		}
		m.Close()
	}
}
