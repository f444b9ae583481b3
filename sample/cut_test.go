package sample

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A sums file that is cut short while it is mapped makes its entries unknown, and is no signal that ends the process.
func TestSumsCutUnderTheMapping(t *testing.T) {
	const n = 10_000 // several pages of each column
	path := filepath.Join(t.TempDir(), "sums")
	s, err := OpenSums(path, Fingerprint{1}, n)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range Index(n) {
		s.Set(i, uint64(i))
	}
	if s.Broken() != nil || s.Known() != n {
		t.Fatalf("%d known, %v", s.Known(), s.Broken())
	}
	if err := os.Truncate(path, learntData); err != nil {
		t.Fatal(err)
	}
	if sum, known := s.Get(7); known || sum != 0 {
		t.Errorf("a sum that is gone is %d, known %v", sum, known)
	}
	s.Set(n-1, 5)
	s.Forget(3)
	if n := s.Known(); n != 0 {
		t.Errorf("%d sums are known of a file that is gone", n)
	}
	if err := s.Broken(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names %s", err, path)
	}
	defer func() {
		if recover() == nil {
			t.Error("an index out of range was taken for a fault of the file")
		}
	}()
	s.Get(n)
}

// Stored lengths are held in memory: what the log does goes on, and only the next open finds that they are gone.
func TestLengthsCutUnderTheMapping(t *testing.T) {
	const n = 10_000
	path := filepath.Join(t.TempDir(), "lengths")
	sizes := make([]uint32, n)
	for i := range sizes {
		sizes[i] = 100
	}
	l, err := OpenLengths(path, Fingerprint{1}, sizes)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Set(7, 50)
	if err := os.Truncate(path, learntData); err != nil {
		t.Fatal(err)
	}
	l.Set(n-1, 60)
	if got := l.All(); got[7] != 50 || got[n-1] != 60 || l.Get(7) != 50 {
		t.Errorf("got %d and %d, want 50 and 60", got[7], got[n-1])
	}
	if err := l.Broken(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names %s", err, path)
	}
}

// A large manifest that is cut short after it was opened still has what was verified; only names come from the file.
func TestManifestCutAfterOpening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifest")
	entries := syntheticEntries(2000)
	if _, err := WriteManifest(path, []string{"0"}, entries); err != nil {
		t.Fatal(err)
	}
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
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		if m.Size(Index(i)) != e.Size || m.Label(Index(i)) != e.Label || m.Version(Index(i)) != e.Version {
			t.Fatalf("sample %d differs", i)
		}
	}
	if _, err := m.Entry(1999); err == nil {
		t.Error("a name that is gone was read")
	}
}
