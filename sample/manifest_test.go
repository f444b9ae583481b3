package sample

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// listing is the content of the golden file: every kind of entry in the format.
var (
	listingClasses = []string{"cat", "", "d\xffg"}
	listing        = []Entry{
		{Name: "cat/1.jpg", Size: 0, Label: 0, Version: 0},
		{Name: "cat/\n\xff", Size: 1<<32 - 1, Label: 0, Version: 1<<64 - 1},
		{Name: "d\xffg/a", Size: 7, Label: 2, Version: 1_700_000_000_123_456_789, Parts: []Part{{Ext: "jpg", Size: 4}, {Ext: "json", Size: 3}}},
		{Name: "x", Size: 5, Label: -1, Version: 1, Parts: []Part{{Ext: "json", Size: 0}, {Ext: "", Size: 5}}},
	}
)

func writeTemp(t testing.TB, classes []string, entries []Entry) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest")
	if _, err := WriteManifest(path, classes, entries); err != nil {
		t.Fatal(err)
	}
	return path
}

func openTemp(t testing.TB, classes []string, entries []Entry) *Manifest {
	t.Helper()
	m, err := OpenManifest(writeTemp(t, classes, entries))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// checkManifest holds everything an open manifest says against the listing.
func checkManifest(t *testing.T, m *Manifest, classes []string, entries []Entry) {
	t.Helper()
	if m.Len() != len(entries) || len(m.Sizes()) != len(entries) || len(m.Labels()) != len(entries) || len(m.NameHashes()) != len(entries) {
		t.Fatalf("%d samples, want %d", m.Len(), len(entries))
	}
	if !slices.Equal(m.Classes(), classes) {
		t.Errorf("classes are %q, want %q", m.Classes(), classes)
	}
	total := uint64(0)
	for i, want := range entries {
		i := Index(i)
		got, err := m.Entry(i)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("sample %d is %+v, %v, want %+v", i, got, err, want)
		}
		if m.Size(i) != want.Size || m.Label(i) != want.Label || m.Version(i) != want.Version || m.NameHash(i) != NameHash(want.Name) ||
			m.Sizes()[i] != want.Size || m.Labels()[i] != want.Label || m.NameHashes()[i] != NameHash(want.Name) {
			t.Errorf("sample %d: columns differ from %+v", i, want)
		}
		if j, found, err := m.Lookup(want.Name); j != i || !found || err != nil {
			t.Errorf("Lookup %q is %d, %v, %v, want %d", want.Name, j, found, err, i)
		}
		total += uint64(want.Size)
	}
	if m.Bytes() != total {
		t.Errorf("%d bytes, want %d", m.Bytes(), total)
	}
	for _, name := range []string{"", "no", "cat/1.jp", "cat/1.jpg\x00"} {
		if _, found, err := m.Lookup(name); found || err != nil {
			t.Errorf("Lookup %q found one, %v", name, err)
		}
	}
	if err := m.Verify(); err != nil {
		t.Error(err)
	}
}

func many(n int) []Entry {
	list := make([]Entry, n)
	for i := range list {
		list[i] = Entry{Name: fmt.Sprintf("class%d/%d", i%10, i), Size: uint32(i * 31), Label: int32(i % 10), Version: uint64(i)}
	}
	return list
}

// roundTrips are listings that a manifest must give back.
var roundTrips = []struct {
	name    string
	classes []string
	entries []Entry
}{
	{"empty", nil, nil},
	{"classes only", []string{"a", "b"}, nil},
	{"one", nil, []Entry{{Name: "x", Size: 1}}},
	{"all kinds", listingClasses, listing},
	{"in shards", nil, inShards},
	{"records", nil, records},
	{"records, each with one part", nil, records[4:7]},
	{"records without parts", nil, records[6:7]},
	{"longest name", []string{strings.Repeat("c", MaxName)}, []Entry{{Name: strings.Repeat("n", MaxName)}, {Name: strings.Repeat("n", MaxName-1)}}},
	{"many", []string{"0"}, many(20_000)}, // more than one buffer of the writer, one window of the reader
	{"random, with parts", []string{"0"}, grouped(3000)},
}

func TestManifestRoundTrip(t *testing.T) {
	for _, tt := range roundTrips {
		t.Run(tt.name, func(t *testing.T) {
			checkManifest(t, openTemp(t, tt.classes, tt.entries), tt.classes, tt.entries)
		})
	}
}

func TestManifestPortable(t *testing.T) {
	a, b := writeTemp(t, listingClasses, listing), writeTemp(t, listingClasses, listing)
	x, err1 := os.ReadFile(a)
	y, err2 := os.ReadFile(b)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x, y) {
		t.Error("one listing written twice gave two files")
	}
	if bytes.Contains(x, []byte(filepath.Dir(a))) {
		t.Error("the file contains its own path")
	}
}

// Each thing that a listing says changes the fingerprint; what WriteManifest says is what OpenManifest says.
func TestFingerprint(t *testing.T) {
	base := Entry{Name: "a", Size: 8, Label: 1, Version: 2}
	part := func(p ...Part) Entry { e := base; e.Parts = p; return e }
	variants := [][]Entry{
		{base}, {base, {Name: "b"}}, {{Name: "b"}, base},
		{{Name: "A", Size: 8, Label: 1, Version: 2}}, {{Name: "a", Size: 9, Label: 1, Version: 2}}, {{Name: "a", Size: 8, Label: 0, Version: 2}}, {{Name: "a", Size: 8, Label: 1, Version: 3}},
		{part(Part{Ext: "x", Size: 8})}, {part(Part{Ext: "y", Size: 8})}, {part(Part{Ext: "x", Size: 7}, Part{Ext: "x", Size: 1})}, {part(Part{Ext: "x", Size: 1}, Part{Ext: "x", Size: 7})},
	}
	seen := make(map[Fingerprint]int)
	for i, entries := range variants {
		for j, classes := range [][]string{nil, {"c"}, {"c", ""}} {
			path := filepath.Join(t.TempDir(), "manifest")
			fp, err := WriteManifest(path, classes, entries)
			if err != nil {
				t.Fatal(err)
			}
			m, err := OpenManifest(path)
			if err != nil {
				t.Fatal(err)
			}
			if m.Fingerprint() != fp {
				t.Errorf("opened, it is %v, written it was %v", m.Fingerprint(), fp)
			}
			m.Close()
			if k, twice := seen[fp]; twice {
				t.Errorf("listings %d and %d have the same fingerprint", k, 10*i+j)
			}
			seen[fp] = 10*i + j
		}
	}
	fp := Fingerprint{0x8c, 0x1f, 0x02, 0xaa, 15: 1}
	if fp.Short() != "8c1f02aa" || fp.String() != "8c1f02aa000000000000000000000001" {
		t.Errorf("fingerprint prints as %s and %s", fp.Short(), fp)
	}
}

func TestManifestRefuses(t *testing.T) {
	tests := []struct {
		name    string
		classes []string
		entries []Entry
		want    string
	}{
		{"no name", nil, []Entry{{Name: ""}}, "has 0 bytes"},
		{"long name", nil, []Entry{{Name: strings.Repeat("n", MaxName+1)}}, "rename it"},
		{"long class", []string{strings.Repeat("n", MaxName+1)}, nil, "rename it"},
		{"long extension", nil, []Entry{{Name: "a", Parts: []Part{{Ext: strings.Repeat("n", MaxName+1)}}}}, "rename it"},
		{"name twice", nil, []Entry{{Name: "a"}, {Name: "b"}, {Name: "a"}}, "samples 0 and 2 have the same name"},
		{"no parts", nil, []Entry{{Name: "a", Parts: []Part{}}}, "0 parts"},
		{"parts too small", nil, []Entry{{Name: "a", Size: 3, Parts: []Part{{Ext: "x", Size: 1}, {Ext: "y", Size: 1}}}}, "have 2 bytes"},
		{"parts wrap around", nil, []Entry{{Name: "a", Size: 1, Parts: []Part{{Ext: "x", Size: 1<<32 - 1}, {Ext: "y", Size: 2}}}}, "have 4294967297 bytes"},
	}
	path := writeTemp(t, listingClasses, listing)
	for _, tt := range tests {
		_, err := WriteManifest(path, tt.classes, tt.entries)
		if !errors.Is(err, ErrEntry) || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 1000 {
			t.Errorf("%s: %.500v, want %q", tt.name, err, tt.want)
		}
	}
	m, err := OpenManifest(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	checkManifest(t, m, listingClasses, listing) // a rejected write leaves the old manifest
}

func TestOpenManifestRefusesLinks(t *testing.T) {
	path := writeTemp(t, nil, listing)
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{link, filepath.Dir(path), path + ".no"} {
		if m, err := OpenManifest(p); err == nil {
			m.Close()
			t.Errorf("OpenManifest %s gave no error", p)
		}
	}
	// A link planted under the temporary name is not written through either.
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Symlink(target, path+".new"); err != nil {
		t.Fatal(err)
	}
	if _, err := WriteManifest(path, nil, listing); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(target); err == nil {
		t.Error("WriteManifest wrote through a link")
	}
}

func TestHashIndex(t *testing.T) {
	for _, n := range []int{0, 1, 2, 7, 8, 9, 1000} {
		hashes := make([]uint64, n)
		for i := range hashes {
			hashes[i] = NameHash(fmt.Sprint(i / 3)) // each three times
		}
		if n > 8 {
			hashes[4], hashes[5] = 0, 1<<64-1 // the ends of the table
		}
		x := newHashIndex(hashes)
		for i, h := range hashes {
			var want []Index
			for j := range hashes {
				if hashes[j] == h {
					want = append(want, Index(j))
				}
			}
			if got := slices.Collect(x.candidates(h)); !slices.Equal(got, want) {
				t.Errorf("%d hashes: candidates of %d are %v, want %v", n, i, got, want)
			}
		}
		if got := slices.Collect(x.candidates(12345)); len(got) > 0 {
			t.Errorf("%d hashes: candidates of an absent one are %v", n, got)
		}
	}
}
