package sample

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// If a sums file is truncated while it is mapped, its entries become unknown, and no signal ends the process.
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

// Where a part of the file is gone, only that part is unknown, however many entries are gone through at once.
func TestSumsCutInTheMiddle(t *testing.T) {
	const n, left = 10_000, 1000 // one file keeps the sums of `left` samples and no check; the other keeps all sums and `left` checks
	dir := t.TempDir()
	open := func(name string) *Sums {
		s := openSums(t, filepath.Join(dir, name), Fingerprint{1}, n)
		t.Cleanup(func() { s.Close() })
		return s
	}
	mapping := make([]Index, n)
	for i := range mapping {
		mapping[i] = n - 1 - Index(i)
	}
	whole := open("whole")
	for i := range Index(n) {
		whole.Set(i, uint64(i))
	}
	page := func(at int) int { return (at + os.Getpagesize() - 1) / os.Getpagesize() * os.Getpagesize() }
	for _, size := range []int{page(learntData + 8*left), page(learntData + 8*n + 4*left)} {
		s := open("cut")
		if n := whole.CopyTo(s, mapping); n != s.Len() {
			t.Fatalf("%d sums copied", n)
		}
		known := max(0, size-learntData-8*n) / 4 // the last page of the file stays whole in memory
		if err := os.Truncate(s.path, int64(size)); err != nil {
			t.Fatal(err)
		}
		if got := s.Known(); got != min(n, known) {
			t.Errorf("cut to %d bytes: %d sums are known, want %d", size, got, known)
		}
		other := open("other")
		if got := s.CopyTo(other, mapping); got != known || other.Known() != known || s.Broken() == nil || other.Broken() != nil {
			t.Errorf("cut to %d bytes: %d sums copied, %d arrived, want %d; %v, %v", size, got, other.Known(), known, s.Broken(), other.Broken())
		}
		for i := range Index(known) {
			if sum, ok := other.Get(n - 1 - i); !ok || sum != uint64(n-1-i) {
				t.Fatalf("cut to %d bytes: sum %d is %d, %v", size, n-1-i, sum, ok)
			}
		}
		if got := whole.CopyTo(s, mapping); got != n || s.Known() != known || whole.Broken() != nil {
			t.Errorf("into a file that is cut: %d sums copied, %d are known, want %d and %d", got, s.Known(), n, known)
		}
		for _, name := range []string{"cut", "other"} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Compressed lengths are held in memory: the log continues, and only the next open finds that they are gone.
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
