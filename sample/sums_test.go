package sample

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/zeebo/xxh3"
)

func openSums(t testing.TB, path string, fp Fingerprint, n int) *Sums {
	t.Helper()
	s, err := OpenSums(path, fp, n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeSums(t testing.TB, s *Sums) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSums(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sums")
	fp := Fingerprint{1, 2, 3}
	sumOf := func(i Index) uint64 { return Sum([]byte{byte(i)}) * uint64(i&1) } // every second sum is 0, which is a valid sum
	s := openSums(t, path, fp, 1000)
	if s.Len() != 1000 || s.Known() != 0 {
		t.Errorf("new: %d of %d known", s.Known(), s.Len())
	}
	for i := Index(0); i < 1000; i += 3 {
		s.Set(i, sumOf(i))
	}
	s.Forget(999)
	s.Forget(1)
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		for i := Index(0); i < 1000; i++ {
			sum, known := s.Get(i)
			if want := i%3 == 0 && i != 999; known != want || known && sum != sumOf(i) {
				t.Errorf("round %d: Get(%d) is %x, %v, want %v", round, i, sum, known, want)
			}
		}
		if s.Known() != 333 {
			t.Errorf("round %d: %d known, want 333", round, s.Known())
		}
		closeSums(t, s)
		s = openSums(t, path, fp, 1000)
	}
	closeSums(t, s)
	closeSums(t, openSums(t, filepath.Join(t.TempDir(), "none"), fp, 0))
}

// The check is a literal here; the reference program of the algorithm computed it.
func TestCheckIsXXH3(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		sum, i := r.Uint64(), Index(r.Uint32())
		b := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, sum), i)
		if got, want := checkOf(sum, i), max(1, uint32(xxh3.Hash(b))); got != want {
			t.Fatalf("check of %x at %d is %x, want %x", sum, i, got, want)
		}
	}
}

// The space is reserved before anything is mapped.
func TestSumsReserved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sums")
	closeSums(t, openSums(t, path, Fingerprint{}, 100_000))
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	if st.Size != sumsFile.size(100_000) || st.Blocks*512 < st.Size {
		t.Errorf("%d bytes with %d reserved, want %d", st.Size, st.Blocks*512, sumsFile.size(100_000))
	}
}

// After a power cut or on a bad disk, an entry reads as right or unknown.
func TestSumsDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sums")
	fp := goldenSums(t, path)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[Index]uint64{0: Sum([]byte("zero")), 2: 0, 3: Sum([]byte("three"))}
	damage := map[string]func(b []byte){
		"another sum": func(b []byte) { binary.LittleEndian.PutUint64(b[learntData:], Sum([]byte("other"))) },
	}
	checkDamaged(t, path, 4, damage, want, func() (get func(i Index) (uint64, bool), done func()) {
		s := openSums(t, path, fp, 4)
		return s.Get, func() { closeSums(t, s) }
	})
	for i := range learntHeader {
		b := bytes.Clone(good)
		b[i] ^= 0x10
		if err := sumsFile.checkHeader([learntHeader]byte(b), fp, 4, int64(len(b))); err == nil {
			t.Errorf("byte %d of the header flipped: no error", i)
		}
	}
}

func TestOpenSumsRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sums")
	fp := goldenSums(t, path)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := fp
	other[15]++
	newer := bytes.Clone(good)
	newer[8] = 2
	binary.LittleEndian.PutUint64(newer[learntHeader-8:], xxh3.Hash(newer[:learntHeader-8]))
	flipped := bytes.Clone(good)
	flipped[8] = 2
	tests := []struct {
		name  string
		bytes []byte
		fp    Fingerprint
		n     int
		want  error
		words string
	}{
		{"another manifest", good, other, 4, ErrOtherManifest, "8c1f0000"},
		{"another number", good, fp, 5, ErrCorrupt, "want 5"},
		{"newer version", newer, fp, 4, ErrVersion, "remove the file"},
		{"version flipped", flipped, fp, 4, ErrCorrupt, "checksum"},
		{"cut", good[:len(good)-1], fp, 4, ErrCorrupt, ""},
		{"zeros", make([]byte, len(good)), fp, 4, ErrCorrupt, "not a sums file"},
		{"no header", good[:10], fp, 4, ErrCorrupt, "read header"},
		{"empty", nil, fp, 4, ErrCorrupt, "read header"},
	}
	for _, tt := range tests {
		if err := os.WriteFile(path, tt.bytes, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := OpenSums(path, tt.fp, tt.n)
		if err == nil {
			closeSums(t, s)
			t.Errorf("%s: no error", tt.name)
		} else if tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v, want %v with %q", tt.name, err, tt.want, tt.words)
		}
	}
	if err := os.Symlink(path, path+".link"); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path + ".link", dir, dir + "/no/sums"} {
		if s, err := OpenSums(p, fp, 4); err == nil {
			closeSums(t, s)
			t.Errorf("OpenSums %s gave no error", p)
		}
	}
}

// Concurrent readers see one of the values that were set, or unknown.
func TestSumsConcurrent(t *testing.T) {
	s := openSums(t, filepath.Join(t.TempDir(), "sums"), Fingerprint{}, 4)
	defer closeSums(t, s)
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			for k := range 20_000 {
				s.Set(Index(k%4), uint64(k%4+1)*1_000_003<<g)
				if g == 0 && k%16 == 0 {
					s.Forget(Index(k % 4))
				}
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for k := range 20_000 {
				i := Index(k % 4)
				base := uint64(i+1) * 1_000_003
				if sum, known := s.Get(i); known && sum != base && sum != base<<1 && sum != base<<2 {
					t.Errorf("Get(%d) is %x, which was never set", i, sum)
				}
			}
		})
	}
	wg.Wait()
}

func TestRemap(t *testing.T) {
	old := []Entry{{Name: "same", Size: 1, Version: 1}, {Name: "resized", Size: 1, Version: 1}, {Name: "touched", Size: 1, Version: 1}, {Name: "gone", Size: 1, Version: 1}, {Name: "relabelled", Size: 0, Version: 1}, {Name: "moved", Size: 1, Version: 1}}
	now := []Entry{{Name: "moved", Size: 1, Version: 1}, {Name: "added", Size: 1, Version: 1}, {Name: "same", Size: 1, Version: 1}, {Name: "resized", Size: 2, Version: 1}, {Name: "touched", Size: 1, Version: 2}, {Name: "relabelled", Size: 0, Version: 1, Label: 7}}
	a, b := openTemp(t, nil, old), openTemp(t, nil, now)
	mapping, err := Remap(a, b)
	if want := []Index{2, None, None, None, 5, 0}; err != nil || fmt.Sprint(mapping) != fmt.Sprint(want) {
		t.Fatalf("mapping is %v, %v, want %v", mapping, err, want)
	}
	dir := t.TempDir()
	from, to := openSums(t, dir+"/old", a.Fingerprint(), a.Len()), openSums(t, dir+"/new", b.Fingerprint(), b.Len())
	defer closeSums(t, from)
	defer closeSums(t, to)
	for i := range old[:5] { // the last stays unknown
		from.Set(Index(i), uint64(100+i))
	}
	if n := from.CopyTo(to, mapping); n != 2 || to.Known() != 2 {
		t.Errorf("%d copied, %d known, want 2", n, to.Known())
	}
	for i, want := range map[Index]uint64{2: 100, 5: 104} {
		if sum, known := to.Get(i); !known || sum != want {
			t.Errorf("Get(%d) is %d, %v, want %d", i, sum, known, want)
		}
	}
	// A large listing, in another order: every sample is found.
	entries := many(5000)
	c := openTemp(t, nil, entries)
	back := make([]Entry, len(entries))
	for i, e := range entries {
		back[len(back)-1-i] = e
	}
	d := openTemp(t, nil, back)
	mapping, err = Remap(c, d)
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range mapping {
		if int(j) != len(entries)-1-i {
			t.Fatalf("sample %d is mapped to %d, want %d", i, j, len(entries)-1-i)
		}
	}
}

// Changes to sums that were opened read-only stay in memory, and no file is created.
func TestReadSumsLeavesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sums")
	if _, err := ReadSums(path, Fingerprint{1}, 3); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a missing file: %v", err)
	}
	s, err := OpenSums(path, Fingerprint{1}, 3)
	if err != nil {
		t.Fatal(err)
	}
	s.Set(0, 7)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := ReadSums(path, Fingerprint{1}, 3)
		if err != nil {
			t.Fatal(err)
		}
		if sum, known := s.Get(0); !known || sum != 7 || s.Known() != 1 {
			t.Errorf("sample 0: %d, %v; %d are known", sum, known, s.Known())
		}
		s.Forget(0)
		s.Set(1, 8)
		if sum, known := s.Get(1); !known || sum != 8 || s.Known() != 1 {
			t.Errorf("after a change in memory: %d, %v; %d are known", sum, known, s.Known())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
