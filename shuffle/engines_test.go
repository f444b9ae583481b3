package shuffle

import (
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
)

// The generators give the values that their authors published.
func TestKnownAnswers(t *testing.T) {
	var m mt19937
	m.seed(5489)
	m.skip(9999)
	if got, want := m.uint32(), uint32(4123659995); got != want {
		t.Errorf("MT19937, seed 5489, 10,000th word: %d, want %d", got, want)
	}
	m.seedWords([]uint32{0x123, 0x234, 0x345, 0x456})
	if got, want := []uint32{m.uint32(), m.uint32(), m.uint32()}, []uint32{1067595299, 955945823, 477289528}; !slices.Equal(got, want) {
		t.Errorf("MT19937 seeded by words: %d, want %d", got, want)
	}
	if got, want := threefry([2]uint32{}, [2]uint32{}), [2]uint32{0x6b200159, 0x99ba4efe}; got != want {
		t.Errorf("threefry of zeros: %#x, want %#x", got, want)
	}
	ones := [2]uint32{0xffffffff, 0xffffffff}
	if got, want := threefry(ones, ones), [2]uint32{0x1cb996fc, 0xbb002be7}; got != want {
		t.Errorf("threefry of ones: %#x, want %#x", got, want)
	}
}

// Skipping n words, drawing n single words and drawing runs of n words leave a generator in the same state, at any position.
func TestSkipEqualsDraw(t *testing.T) {
	for _, before := range []int{0, 1, 600, 623, 624, 625} {
		for _, k := range []int{0, 1, 23, 24, 623, 624, 625, 1249, 5000} {
			var a, b, c mt19937
			a.seed(7)
			for range before {
				a.uint32()
			}
			b, c = a, a
			for range k {
				a.uint32()
			}
			b.skip(uint64(k))
			for left := k; left > 0; {
				left -= len(c.run(left))
			}
			if x, y, z := a.uint32(), b.uint32(), c.uint32(); x != y || x != z {
				t.Errorf("%d words after %d: drawn %d, skipped %d, in runs %d", k, before, x, y, z)
			}
		}
	}
}

func TestLittleWords(t *testing.T) {
	for text, want := range map[string][]uint32{
		"0":                    {0},
		"-1":                   {1},
		"4294967295":           {0xffffffff},
		"4294967296":           {0, 1},
		"18446744073709551616": {0, 0, 1},
		"1099511627779":        {3, 256},
	} {
		x, _ := new(big.Int).SetString(text, 10)
		if got := littleWords(x); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

// floorDiv gives Python's // where a plain division would round to another number.
func TestFloorDiv(t *testing.T) {
	for _, c := range []struct {
		x    uint64
		y    float64
		want uint64
	}{
		{1062, 0.1, 10619},
		{497, 0.1, 4969},
		{2013, 0.1, 20129},
		{927, 0.1, 9269},
		{3905, 0.1, 39049},
		{3529, 0.1, 35289},
		{3715, 0.1, 37149},
		{2968, 0.1, 29679},
		{0, 2.5, 0},
		{5, 2.5, 2},
		{7, 2.5, 2},
		{1099511627777, 0.3, 3665038759256},
	} {
		if got := floorDiv(c.x, c.y); got != c.want {
			t.Errorf("%d // %v: %d, want %d", c.x, c.y, got, c.want)
		}
	}
}

func TestRelease(t *testing.T) {
	for text, want := range map[string]torchRelease{
		"1.13.1": {insideOut: false, wide: 1 << 32},
		"2.5.1":  {insideOut: false, wide: 1 << 32},
		"2.6":    {insideOut: true, wide: 1 << 32},
		"2.7.0":  {insideOut: true, wide: 1 << 28},
		"2.15.0": newest,
	} {
		if got, err := parseRelease(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "2", "two.five", "2.", "-1.5", "999.1"} {
		if got, err := parseRelease(text); err == nil {
			t.Errorf("%q was accepted as a release: %+v", text, got)
		}
	}
	for _, c := range []struct {
		release string
		n       int
		draws   uint64
	}{
		{"2.15", 0, 0}, {"2.15", 1, 0}, {"2.15", 10, 9},
		{"2.15", insideOutFrom - 1, insideOutFrom - 2}, {"2.15", insideOutFrom, 2 * insideOutFrom},
		{"2.5", insideOutFrom, insideOutFrom - 1},
	} {
		r, err := parseRelease(c.release)
		if got := r.permuteDraws(c.n); got != c.draws || err != nil {
			t.Errorf("torch %s, randperm of %d: %d draws, want %d (%v)", c.release, c.n, got, c.draws, err)
		}
	}
}

const savedState = "testdata/torch-2.15.0-seed-42-after-625.state"

// Epochs that continue from a state that torch saved equal torch's.
func TestSavedState(t *testing.T) {
	r, err := New(Spec{Recipe: "torch.randperm", Samples: 10, Params: map[string]string{"state": savedState}})
	if err != nil {
		t.Fatal(err)
	}
	for epoch, want := range [][]uint32{{7, 6, 0, 5, 4, 3, 9, 1, 8, 2}, {3, 5, 2, 8, 9, 4, 7, 0, 1, 6}} {
		got, err := r.Global(epoch, nil)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("epoch %d: %v, want %v (%v)", epoch, got, want, err)
		}
	}
}

func TestBadState(t *testing.T) {
	good, err := os.ReadFile(savedState)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := loadTorchState(good); err != nil {
		t.Fatalf("the good state: %v", err)
	}
	with := func(at int, b byte) []byte {
		data := slices.Clone(good)
		data[at] = b
		return data
	}
	for name, data := range map[string][]byte{
		"empty":           nil,
		"short":           good[:len(good)-1],
		"long":            append(slices.Clone(good), 0),
		"left of zero":    make([]byte, torchStateSize),
		"left too large":  with(10, 1),
		"next elsewhere":  with(16, good[16]+1),
		"word of 33 bits": with(24+8*100+4, 1),
	} {
		if _, err := loadTorchState(data); err == nil {
			t.Errorf("%s: was accepted as a state", name)
		}
	}
	_, err = New(Spec{Recipe: "torch.randperm", Samples: 10, Seed: "1", Params: map[string]string{"state": savedState}})
	if err == nil || !strings.Contains(err.Error(), "not both") {
		t.Errorf("seed and state: %v", err)
	}
}

func FuzzState(f *testing.F) {
	good, err := os.ReadFile(savedState)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:5000])
	f.Add(make([]byte, torchStateSize))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := loadTorchState(data)
		if err != nil {
			return
		}
		before := g
		g.skip(1000)
		for range 1000 {
			before.uint32()
		}
		if x, y := g.uint32(), before.uint32(); x != y {
			t.Errorf("skipped %d, drawn %d", x, y)
		}
	})
}
