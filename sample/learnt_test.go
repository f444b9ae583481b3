package sample

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"testing"
)

// checkDamaged damages a learnt file of n entries in every way that a power cut or a rotten disk may: lost, exchanged, each bit flipped, and
// some more. What was in it reads as it was or as unknown, once the file is opened again.
func checkDamaged(t *testing.T, path string, n int, more map[string]func(b []byte), want map[Index]uint64, open func() (get func(i Index) (uint64, bool), done func())) {
	t.Helper()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	checks := len(good) - 4*n
	width := (checks - learntData) / n
	exchange := func(b []byte, at, width int) { // entries 0 and 3 of a column
		first := slices.Clone(b[at : at+width])
		copy(b[at:], b[at+3*width:at+4*width])
		copy(b[at+3*width:], first)
	}
	damage := map[string]func(b []byte){
		"all entries zero": func(b []byte) { clear(b[learntData:]) },
		"all entries ones": func(b []byte) { copy(b[learntData:], bytes.Repeat([]byte{0xFF}, len(b)-learntData)) },
		"column lost":      func(b []byte) { clear(b[learntData:checks]) },
		"checks lost":      func(b []byte) { clear(b[checks:]) },
		"entries 0 and 3 exchanged": func(b []byte) {
			exchange(b, learntData, width)
			exchange(b, checks, 4)
		},
	}
	for i := learntData; i < len(good); i++ {
		for bit := range 8 {
			damage[fmt.Sprintf("byte %d bit %d", i, bit)] = func(b []byte) { b[i] ^= 1 << bit }
		}
	}
	for name, do := range more {
		damage[name] = do
	}
	unknown := 0
	for name, do := range damage {
		b := bytes.Clone(good)
		do(b)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		get, done := open()
		for i := range Index(n) {
			got, known := get(i)
			if w, ok := want[i]; known && (!ok || got != w) {
				t.Errorf("%s: entry %d is %x, which was never set", name, i, got)
			} else if ok && !known {
				unknown++
			}
		}
		done()
	}
	if unknown < len(damage)/2 {
		t.Errorf("%d kinds of damage made only %d entries unknown", len(damage), unknown)
	}
}
