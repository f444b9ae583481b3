package sample

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"testing"
)

func openLengths(t testing.TB, path string, fp Fingerprint, sizes []uint32) *Lengths {
	t.Helper()
	l, err := OpenLengths(path, fp, sizes)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closeLengths(t testing.TB, l *Lengths) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLengths(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stored")
	fp := Fingerprint{4, 5}
	sizes := make([]uint32, 1000)
	for i := range sizes {
		sizes[i] = uint32(10 + i)
	}
	l := openLengths(t, path, fp, sizes)
	for i := Index(0); i < 1000; i += 3 {
		l.Set(i, 1+i)
	}
	l.Forget(999)
	for round := range 2 {
		for i := Index(0); i < 1000; i++ {
			want := uint32(0)
			if i%3 == 0 && i != 999 {
				want = 1 + i
			}
			if got := l.Get(i); got != want || l.All()[i] != want {
				t.Errorf("round %d: Get(%d) is %d, All has %d, want %d", round, i, got, l.All()[i], want)
			}
		}
		closeLengths(t, l)
		l = openLengths(t, path, fp, sizes)
	}
	closeLengths(t, l)
	if _, err := OpenLengths(path, Fingerprint{6}, sizes); !errors.Is(err, ErrOtherManifest) {
		t.Errorf("of another manifest: %v, want ErrOtherManifest", err)
	}
	if _, err := OpenLengths(path, fp, sizes[1:]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("of another number of samples: %v, want ErrCorrupt", err)
	}
	if _, err := OpenSums(path, fp, len(sizes)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("opened as sums: %v, want ErrCorrupt", err)
	}
}

// Whatever a power cut or a rotten disk makes of entries: right or unknown, once the file is opened again.
func TestLengthsDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stored")
	fp := Fingerprint{7}
	sizes := []uint32{100, 5000, 77, 1 << 20}
	want := map[Index]uint64{0: 60, 2: 77, 3: 300_000}
	l := openLengths(t, path, fp, sizes)
	for i, n := range want {
		l.Set(i, uint32(n))
	}
	closeLengths(t, l)
	damage := map[string]func(b []byte){
		"longer than the sample": func(b []byte) { // sound, but of a sample that has shrunk
			binary.LittleEndian.PutUint32(b[learntData:], 101)
			binary.LittleEndian.PutUint32(b[learntData+4*4:], lengthCheck(101, 0))
		},
	}
	checkDamaged(t, path, 4, damage, want, func() (get func(i Index) (uint64, bool), done func()) {
		l := openLengths(t, path, fp, sizes)
		return func(i Index) (uint64, bool) { return uint64(l.Get(i)), l.Get(i) != 0 }, func() { closeLengths(t, l) }
	})
}
