package sample

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
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
	want := []uint32{60, 0, 77, 300_000}
	l := openLengths(t, path, fp, sizes)
	for i, n := range want {
		if n > 0 {
			l.Set(Index(i), n)
		}
	}
	closeLengths(t, l)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lengths, checks := learntData, learntData+4*4
	damage := map[string]func(b []byte){
		"all entries zero": func(b []byte) { clear(b[learntData:]) },
		"all entries ones": func(b []byte) { copy(b[learntData:], bytes.Repeat([]byte{0xFF}, len(b)-learntData)) },
		"lengths lost":     func(b []byte) { clear(b[lengths:checks]) },
		"checks lost":      func(b []byte) { clear(b[checks:]) },
		"entries swapped": func(b []byte) {
			copy(b[lengths:], good[lengths+12:lengths+16])
			copy(b[checks:], good[checks+12:checks+16])
		},
		"longer than the sample": func(b []byte) { // sound, but of a sample that has shrunk
			binary.LittleEndian.PutUint32(b[lengths:], 101)
			binary.LittleEndian.PutUint32(b[checks:], lengthCheck(101, 0))
		},
	}
	for i := learntData; i < len(good); i++ {
		for bit := range 8 {
			damage[fmt.Sprintf("byte %d bit %d", i, bit)] = func(b []byte) { b[i] ^= 1 << bit }
		}
	}
	unknown := 0
	for name, do := range damage {
		b := bytes.Clone(good)
		do(b)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		l := openLengths(t, path, fp, sizes)
		for i, w := range want {
			got := l.Get(Index(i))
			if got != 0 && got != w {
				t.Errorf("%s: Get(%d) is %d, which was never set", name, i, got)
			}
			if got == 0 && w != 0 {
				unknown++
			}
		}
		closeLengths(t, l)
	}
	if unknown < len(damage)/2 {
		t.Errorf("%d kinds of damage made only %d entries unknown", len(damage), unknown)
	}
}
