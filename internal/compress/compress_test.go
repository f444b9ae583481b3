package compress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"lcache/internal/testenv"
	"lcache/sample"
)

const align = 64

// text returns n bytes that compress to about a half.
func text(r *rand.Rand, n int) []byte {
	words := []string{"sample ", "segment ", "the ", "log ", "of ", "epoch ", "\n", "reorder "}
	b := make([]byte, 0, n+64)
	for len(b) < n {
		b = append(b, words[r.IntN(len(words))]...)
		b = fmt.Append(b, r.IntN(1000))
	}
	return b[:n]
}

// noise is n bytes that don't compress. Nobody else knows them before it returns: the race detector need not look at each.
//
//go:norace
func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func newForm(t testing.TB, room uint64, data [][]byte) (*Form, *sample.Lengths) {
	t.Helper()
	sizes := make([]uint32, len(data))
	for i := range data {
		sizes[i] = uint32(len(data[i]))
	}
	l, err := sample.OpenLengths(filepath.Join(t.TempDir(), "stored"), sample.Fingerprint{1}, sizes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return New(sizes, l, align, room, 16<<20), l
}

// lengths are sample sizes around the limits.
var edges = []int{1, 2, 12, 13, 63, 64, 65, 127, 128, 129, 1000, 4095, 4096, 4097, 65535, 65536, 65537, 300_000, 3 << 20}

func TestPackUnpack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var data [][]byte
	for _, n := range edges {
		data = append(data, text(r, n), noise(r, n), make([]byte, n))
	}
	f, _ := newForm(t, 1<<40, data)
	var used uint64
	packed := 0
	for i, plain := range data {
		var stored []byte
		err := f.Pack(context.Background(), sample.Index(i), plain, func(b []byte) error { stored = bytes.Clone(b); return nil })
		if err != nil {
			t.Fatalf("pack %d bytes: %v", len(plain), err)
		}
		used += padded(uint32(len(stored)), align)
		switch saved := padded(uint32(len(plain)), align) - padded(uint32(len(stored)), align); {
		case f.Length(sample.Index(i)) != len(stored):
			t.Errorf("length of %d bytes is %d, stored are %d", len(plain), f.Length(sample.Index(i)), len(stored))
		case f.Packed(sample.Index(i)) != (len(stored) != len(plain)):
			t.Errorf("%d bytes stored as %d: packed is %v", len(plain), len(stored), f.Packed(sample.Index(i)))
		case len(stored) == len(plain) && !bytes.Equal(stored, plain):
			t.Errorf("%d bytes stored raw are others", len(plain))
		case len(stored) != len(plain) && saved < align:
			t.Errorf("%d bytes packed to %d, which saves less than a unit", len(plain), len(stored))
		case len(stored) != len(plain):
			packed++
		}
		// Only the destination may be written: its neighbours in a slot are being read.
		room := bytes.Repeat([]byte{0xA5}, len(plain)+200)
		if err := f.Unpack(sample.Index(i), stored, room[100:100+len(plain)]); err != nil {
			t.Fatalf("unpack %d bytes: %v", len(plain), err)
		}
		if !bytes.Equal(room[100:100+len(plain)], plain) {
			t.Errorf("%d bytes come back as others", len(plain))
		}
		for k, b := range room {
			if (k < 100 || k >= 100+len(plain)) && b != 0xA5 {
				t.Fatalf("unpacking %d bytes wrote outside of them, at offset %d", len(plain), k-100)
			}
		}
	}
	if f.Used() != used {
		t.Errorf("used %d, want %d", f.Used(), used)
	}
	if packed < len(edges) {
		t.Errorf("only %d of %d samples are packed", packed, len(data))
	}
}

// A sample is compressed in the same way again. Other bytes are refused until its length is forgotten.
func TestPackAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	first, other := text(r, 5000), noise(r, 5000)
	f, _ := newForm(t, 1<<40, [][]byte{first, first})
	pack := func(b []byte) (stored []byte, err error) {
		err = f.Pack(context.Background(), 0, b, func(s []byte) error { stored = bytes.Clone(s); return nil })
		return stored, err
	}
	want, err := pack(first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pack(other); !errors.Is(err, ErrLength) {
		t.Errorf("other bytes: %v, want ErrLength", err)
	}
	if got, err := pack(first); err != nil || !bytes.Equal(got, want) {
		t.Errorf("packed again: %d bytes, %v, want the same %d", len(got), err, len(want))
	}
	f.Forget(0)
	if f.Used() != 0 || f.Length(0) != 0 {
		t.Errorf("forgotten: used %d, length %d, want 0", f.Used(), f.Length(0))
	}
	if got, err := pack(other); err != nil || !bytes.Equal(got, other) || f.Length(0) != 5000 {
		t.Errorf("other bytes after Forget: %d bytes, %v", len(got), err)
	}
	broken := errors.New("broken")
	if err := f.Pack(context.Background(), 1, first, func([]byte) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("put's error: %v", err)
	}
}

// Samples that exceed the room are refused, and later small ones still fit. After a restart the count is the same.
func TestRoom(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	data := [][]byte{noise(r, 1000), noise(r, 2000), noise(r, 900), noise(r, 100)}
	f, l := newForm(t, 2100, data)
	put := func([]byte) error { return nil }
	for i, want := range []error{nil, ErrRoom, nil, ErrRoom} { // 1024 and 960 fit
		if err := f.Pack(context.Background(), sample.Index(i), data[i], put); !errors.Is(err, want) {
			t.Errorf("sample %d: %v, want %v", i, err, want)
		}
	}
	if f.Used() != 1984 || f.Refused() != 2 || f.Length(1) != 0 {
		t.Errorf("used %d, refused %d, length of a refused one %d", f.Used(), f.Refused(), f.Length(1))
	}
	if again := New([]uint32{1000, 2000, 900, 100}, l, align, 2100, 16<<20); again.Used() != f.Used() {
		t.Errorf("used %d after a restart, want %d", again.Used(), f.Used())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range cap(f.packers) {
		<-f.packers
	}
	if err := f.Pack(ctx, 1, data[1], put); !errors.Is(err, context.Canceled) {
		t.Errorf("without a packer: %v, want the context's error", err)
	}
}

// Samples over the limit are stored as they are, however well they compress. Samples that were compressed under
// another limit stay compressed, with the same length. Samples that were stored as they are stay so under a higher
// limit.
func TestHuge(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 1))
	data := [][]byte{text(r, 5000), text(r, 5000), text(r, 4000), noise(r, 5000), text(r, 5000)}
	before, l := newForm(t, 1<<40, data)
	sizes := []uint32{5000, 5000, 4000, 5000, 5000}
	pack := func(f *Form, i sample.Index) (stored []byte) {
		t.Helper()
		if err := f.Pack(context.Background(), i, data[i], func(s []byte) error { stored = bytes.Clone(s); return nil }); err != nil {
			t.Fatalf("sample %d: %v", i, err)
		}
		return stored
	}
	old := pack(before, 0)
	f := New(sizes, l, align, 1<<40, 4000)
	if f.LargestPacked() != 5000 {
		t.Errorf("the largest packed sample has %d bytes: one of 5000 was packed before", f.LargestPacked())
	}
	if got := pack(f, 0); !bytes.Equal(got, old) || len(old) >= 5000 || f.IsHuge(0) {
		t.Errorf("packed again: got %d bytes, want the same %d bytes", len(got), len(old))
	}
	for i, want := range map[sample.Index]struct{ whole, huge bool }{1: {true, true}, 2: {false, false}, 3: {true, true}} {
		got := pack(f, i)
		if whole := bytes.Equal(got, data[i]); whole != want.whole || f.IsHuge(i) != want.huge || f.Packed(i) == want.whole {
			t.Errorf("sample %d is stored as it is: %v, huge: %v; want %+v", i, whole, f.IsHuge(i), want)
		}
	}
	if f.IsHuge(4) {
		t.Error("a sample that is not stored yet is huge")
	}
	f.Forget(0)
	if f.LargestPacked() != 4000 {
		t.Errorf("the largest packed sample has %d bytes, want 4000", f.LargestPacked())
	}
	used := f.Used()
	again := New(sizes, l, align, 1<<40, 1<<20)
	if got := pack(again, 1); !bytes.Equal(got, data[1]) || again.Packed(1) || again.IsHuge(1) || again.Used() != used {
		t.Errorf("a sample stored uncompressed: got %d bytes, want its plain bytes", len(got))
	}
	if full := New(sizes, l, align, used, 4000); !errors.Is(full.Pack(context.Background(), 4, data[4], func([]byte) error { return nil }), ErrRoom) || full.Refused() != 1 {
		t.Error("a huge sample is stored beyond the room")
	}
}

func TestTrial(t *testing.T) {
	testenv.WithoutRace(t)
	r := rand.New(rand.NewPCG(7, 8))
	for _, c := range []struct {
		name   string
		make   func(i int) []byte
		lo, hi float64 // saves
	}{
		{"text", func(int) []byte { return text(r, 500+r.IntN(20_000)) }, 0.3, 0.8},
		{"noise", func(int) []byte { return noise(r, 500+r.IntN(20_000)) }, 0, 0},
		{"both", func(i int) []byte {
			if i%2 == 0 {
				return text(r, 500+r.IntN(20_000))
			}
			return noise(r, 500+r.IntN(20_000))
		}, 0.1, 0.45},
	} {
		t.Run(c.name, func(t *testing.T) {
			const n = 2000
			trial := Trial{Align: align}
			var p packer
			var plain, stored uint64
			for i := range n {
				b := c.make(i)
				if i%10 == 0 || i%10 == 5 {
					trial.Add(b)
				}
				x := padded(uint32(len(b)), align)
				plain += x
				if s, ok := p.pack(b, align); ok {
					x = padded(uint32(len(s)), align)
				}
				stored += x
			}
			if s := trial.Saves(); s < c.lo || s > c.hi {
				t.Errorf("saves %.3f, want %.2f to %.2f", s, c.lo, c.hi)
			}
			if est := trial.Stored(plain, n); est < stored || est > plain || float64(est) > 1.25*float64(stored) {
				t.Errorf("estimated %d for %d stored and %d plain bytes", est, stored, plain)
			}
		})
	}
	var none, one Trial
	one.Align = align
	one.Add(make([]byte, 10_000))
	if none.Saves() != 0 || none.Stored(5000, 10) != 5000 || one.Stored(5000, 10) != 5000 {
		t.Error("want no estimate from no sample, or from one of ten")
	}
	if all := one.Stored(padded(10_000, align), 1); all > 200 {
		t.Errorf("the only sample takes %d bytes: it was seen", all)
	}
}

// FuzzUnpack: whatever bytes a disk returns, Unpack does not panic and writes only to the destination. Compressed
// bytes unpack to the original.
func FuzzUnpack(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{100, 1000, 70_000} {
		var p packer
		s, ok := p.pack(text(r, n), 8)
		if !ok {
			f.Fatalf("%d bytes of text don't pack", n)
		}
		f.Add(s, n)
		f.Add(s[:len(s)/2], n)
		f.Add(append(bytes.Clone(s), 1), n)
		f.Add(noise(r, n), n)
	}
	f.Add([]byte{}, 0)
	f.Add([]byte{0x1f, 0, 1, 0, 255, 255, 255}, 1000)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		if n < 0 || n > 1<<20 {
			t.Skip("no size of a test")
		}
		room := bytes.Repeat([]byte{0x5A}, n+128)
		err := unpack(data, room[64:64+n])
		for k, b := range room {
			if (k < 64 || k >= 64+n) && b != 0x5A {
				t.Fatalf("wrote outside of the destination, at offset %d", k-64)
			}
		}
		if err != nil && !errors.Is(err, errCorrupt) {
			t.Errorf("an error of another class: %v", err)
		}
		if err == nil { // any bytes give the same result each time, whatever was in the destination
			again := noise(rand.New(rand.NewPCG(1, 1)), n)
			if e := unpack(data, again); e != nil || !bytes.Equal(again, room[64:64+n]) {
				t.Errorf("packed and unpacked again: other bytes, %v", e)
			}
		}
		var p packer
		if s, ok := p.pack(data, 8); ok {
			back := make([]byte, len(data))
			if err := unpack(s, back); err != nil || !bytes.Equal(back, data) {
				t.Errorf("%d bytes packed to %d come back as others: %v", len(data), len(s), err)
			}
		}
	})
}
