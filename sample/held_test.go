package sample

import (
	"os"
	"testing"
)

// When the disk of the cache failed, names could not be read any more, and without them nothing from the source.
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

// Both ways of opening give the same.
func TestManifestInPart(t *testing.T) {
	path := writeTemp(t, listingClasses, listing)
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
	if err := m.Verify(); err != nil {
		t.Error(err)
	}
	for i, want := range listing {
		if got, err := m.Entry(Index(i)); err != nil || got.Name != want.Name || got.Size != want.Size {
			t.Errorf("sample %d: %+v, %v, want %+v", i, got, err, want)
		}
	}
}
