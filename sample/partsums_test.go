package sample

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"lcache/internal/disk/offheap"
)

// summed are records with checksums of some parts.
func summed() []Entry {
	list := append([]Entry(nil), records...)
	for i, sums := range map[int][]uint64{1: {Sum([]byte("image")), 1<<64 - 1}, 3: {0, 7}, 5: {Sum(nil)}} {
		list[i].Parts = append([]Part(nil), list[i].Parts...)
		for k, sum := range sums {
			list[i].Parts[k].Sum = sum
		}
	}
	return list
}

// TestPartSums: checksums of parts are read as they were written, plain and packed, and a listing without them has the bytes that it had before.
func TestPartSums(t *testing.T) {
	list := summed()
	m := openTemp(t, nil, list)
	checkManifest(t, m, nil, list)
	if without := openTemp(t, nil, records); without.partSums != nil || without.head.find(secSums).off != 0 || without.Fingerprint() == m.Fingerprint() {
		t.Errorf("a listing without checksums has the section, or both have one fingerprint")
	}
	path := writeTemp(t, nil, list)
	plain, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := pack(plain)
	if err != nil || b[8] != versionPackedRecords {
		t.Fatal(err)
	}
	back, err := unpack(b)
	if err != nil || !bytes.Equal(back, plain) {
		t.Errorf("%d bytes, %v", len(back), err)
	}
	offheap.Free(back)
}

func TestPartSumsRefused(t *testing.T) {
	for what, e := range map[string]Entry{
		"a file":   {Name: "a", Size: 1, Parts: []Part{{Ext: "x", Size: 1, Sum: 5}}},
		"of a tar": {Name: "a", Size: 1, Parts: []Part{{Ext: "x", Size: 1, Sum: 5}}, Shard: shardA, Offsets: []uint64{512}},
	} {
		if _, err := WriteManifest(t.TempDir()+"/manifest", nil, []Entry{e}); !errors.Is(err, ErrEntry) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestPartSumsDamaged flips each bit of the section and of its row in the table.
func TestPartSumsDamaged(t *testing.T) {
	good := parseHex(t, "testdata/manifest_v4_sums.hex")
	h, err := decodeHeader(good[:headerSize(12)], uint64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	s := h.find(secSums)
	row := uint64(fixedSize)
	for _, one := range h.table {
		if one.id == secSums {
			break
		}
		row += rowSize
	}
	for _, r := range [][2]uint64{{s.off, s.off + s.len}, {row, row + rowSize}} {
		for at := r[0]; at < r[1]; at++ {
			for bit := range 8 {
				b := bytes.Clone(good)
				b[at] ^= 1 << bit
				if _, err := decodeBytes(b); !errors.Is(err, ErrCorrupt) {
					t.Fatalf("byte %d, bit %d: %v", at, bit, err)
				}
				if reseal(b); at < s.off {
					if err := errors.Join(tryOpen(b)); err != nil && !errors.Is(err, ErrCorrupt) {
						t.Fatalf("byte %d, bit %d, sealed: %v", at, bit, err)
					}
				}
			}
		}
	}
	b := bytes.Clone(good) // no checksum is known
	clear(b[s.off : s.off+s.len])
	reseal(b)
	if _, err := decodeBytes(b); !errors.Is(err, ErrCorrupt) {
		t.Errorf("without a checksum: %v", err)
	}
	b = bytes.Clone(good) // in a version that does not have them
	b[8] = versionShards
	reseal(b)
	if _, err := decodeBytes(b); !errors.Is(err, ErrCorrupt) {
		t.Errorf("as version 2: %v", err)
	}
}

// TestRemapSums: a sample that gets a checksum, or another one, is read again. One that loses it stays.
func TestRemapSums(t *testing.T) {
	list := func(sum uint64) *Manifest {
		e := records[3]
		e.Parts = append([]Part(nil), e.Parts...)
		e.Parts[1].Sum = sum
		return openTemp(t, nil, []Entry{e})
	}
	for _, c := range []struct {
		before, now uint64
		want        Index
	}{{0, 0, 0}, {5, 5, 0}, {5, 0, 0}, {0, 5, None}, {5, 6, None}} {
		got, err := Remap(list(c.before), list(c.now))
		if err != nil || got[0] != c.want {
			t.Errorf("%d, then %d: %v, %v", c.before, c.now, got, err)
		}
	}
}
