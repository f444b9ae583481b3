package sample

import (
	"os"
	"testing"
)

// When the disk of the cache failed, names could no longer be read, and without names no sample from the source.
func TestNamesOutliveTheFile(t *testing.T) {
	path := writeTemp(t, listingClasses, listing)
	m, err := OpenManifest(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := os.Truncate(path, 0); err != nil { // as good as a disk that answers nothing: a mapping of it would be fatal now
		t.Fatal(err)
	}
	for i, want := range listing {
		got, err := m.Entry(Index(i))
		if err != nil || got.Name != want.Name || got.Size != want.Size || got.Label != want.Label {
			t.Errorf("sample %d: %+v, %v, want %+v", i, got, err, want)
		}
	}
	if err := m.Verify(); err != nil {
		t.Error(err)
	}
}

// A large manifest is held in memory, except for its names. Both ways of opening give the same. After the file is truncated, the verified parts are still available.
func TestManifestInPart(t *testing.T) {
	for _, entries := range [][]Entry{listing, syntheticEntries(2000)} {
		path := writeTemp(t, listingClasses, entries)
		f, size, err := openRegular(path, os.O_RDONLY)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		m, err := readManifest(f, uint64(size))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		checkManifest(t, m, listingClasses, entries)
		if err := m.Verify(); err != nil {
			t.Error(err)
		}
		if err := os.Truncate(path, 100); err != nil {
			t.Fatal(err)
		}
		for i, e := range entries {
			if m.Size(Index(i)) != e.Size || m.Label(Index(i)) != e.Label || m.Version(Index(i)) != e.Version {
				t.Fatalf("sample %d differs", i)
			}
		}
		if _, err := m.Entry(Index(len(entries) - 1)); err == nil {
			t.Error("a name that is gone was read")
		}
	}
}
