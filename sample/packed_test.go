package sample

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"lcache/internal/disk/durable"
	"lcache/internal/disk/durable/durabletest"
	"lcache/internal/disk/offheap"
	"lcache/internal/testenv"
)

// packedTemp writes a listing packed, and returns the path and the plain form that is written of the same listing.
func packedTemp(t testing.TB, classes []string, entries []Entry) (path string, plain []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "manifest")
	print, err := WritePacked(path, classes, Entries(entries))
	if err != nil {
		t.Fatal(err)
	}
	other := writeTemp(t, classes, entries)
	if plain, err = os.ReadFile(other); err != nil {
		t.Fatal(err)
	}
	m, err := OpenManifest(other)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Fingerprint() != print {
		t.Errorf("the packed form has the fingerprint %v, the plain one %v", print, m.Fingerprint())
	}
	return path, plain
}

// grouped are samples with parts, whose numbers have every width.
func grouped(n int) []Entry {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	list := make([]Entry, n)
	for i := range list {
		a, b := r.Uint32N(1<<20), r.Uint32N(300)
		list[i] = Entry{Name: fmt.Sprintf("%x", r.Uint64()) + strings.Repeat("x", r.IntN(9)) + fmt.Sprint(i), Size: a + b, Label: int32(r.Uint32()), Version: r.Uint64(), Parts: []Part{{Ext: "jpg", Size: a}, {Ext: "json", Size: b}}}
	}
	return list
}

// TestPackedRoundTrip: a packed manifest has the entries of its listing, unpacks to the bytes of the plain one, and is not larger.
func TestPackedRoundTrip(t *testing.T) {
	testenv.WithoutRace(t)
	for _, tt := range roundTrips {
		t.Run(tt.name, func(t *testing.T) {
			path, plain := packedTemp(t, tt.classes, tt.entries)
			m, err := OpenManifest(path)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			checkManifest(t, m, tt.classes, tt.entries)
			if !bytes.Equal(m.plain, plain) || m.PlainBytes() != uint64(len(plain)) {
				t.Errorf("%d bytes unpacked, which are not the %d of the plain form", len(m.plain), len(plain))
			}
			b, err := os.ReadFile(path)
			if err != nil || uint64(len(b)) != m.FileBytes() || len(b) > len(plain) {
				t.Errorf("the file has %d bytes, %d are said; the plain one has %d; %v", len(b), m.FileBytes(), len(plain), err)
			}
			again, err := pack(plain)
			if err != nil || !bytes.Equal(again, b) && isPacked(b) {
				t.Errorf("packed twice it has other bytes, %v", err)
			}
			t.Logf("%d bytes of %d", len(b), len(plain))
		})
	}
}

// TestPackedIsSmall tests the typical sizes of the packed form. Names are numbered, or random digits; times of change are random within a second of each other.
func TestPackedIsSmall(t *testing.T) {
	testenv.WithoutRace(t)
	const n = 20_000
	r := rand.New(rand.NewPCG(7, 7))
	for _, tt := range []struct {
		name string
		most float64 // bytes a sample
		of   func(i int) string
	}{
		{"numbered", 8, func(i int) string { return fmt.Sprintf("category-%04d/img_%08d.jpg", i/1000, i) }},
		{"random", 22, func(int) string {
			return fmt.Sprintf("%x/%010x%014x.jpg", r.IntN(16), r.Uint64N(1<<40), r.Uint64N(1<<56))
		}},
	} {
		list := make([]Entry, n)
		for i := range list {
			list[i] = Entry{Name: tt.of(i), Size: 4096, Label: int32(i / 1000), Version: uint64(1_760_000_000e9 + int64(i)*4e6 + r.Int64N(4e6))}
		}
		path, plain := packedTemp(t, nil, list)
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		each := float64(st.Size()) / n
		t.Logf("%s: %.1f bytes a sample, plain %.1f", tt.name, each, float64(len(plain))/n)
		if each > tt.most {
			t.Errorf("%s: %.1f bytes a sample, want at most %.0f", tt.name, each, tt.most)
		}
	}
}

// tryPacked opens bytes as a manifest, packed or not, and reads all of it.
func tryPacked(b []byte) error {
	if !isPacked(b) {
		return errors.Join(tryOpen(b))
	}
	plain, err := unpack(b)
	if err != nil {
		return err
	}
	defer offheap.Free(plain)
	return errors.Join(tryOpen(plain))
}

// openPacked does the same with a file.
func openPacked(t testing.TB, b []byte) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := OpenManifest(path)
	if err != nil {
		return err
	}
	return errors.Join(m.Verify(), m.Close())
}

// resealPacked makes the checksum of changed packed bytes right again.
func resealPacked(b []byte) {
	if len(b) >= packedFixed+sumSize {
		binary.LittleEndian.PutUint64(b[len(b)-sumSize:], xxh3.Hash(b[:len(b)-sumSize]))
	}
}

// TestPackedEveryByteFlipped: no byte of a packed manifest may change, nor may one be missing or one too many.
func TestPackedEveryByteFlipped(t *testing.T) {
	good, err := pack(parseHex(t, "testdata/manifest_v1.hex"))
	if err != nil {
		t.Fatal(err)
	}
	if err := openPacked(t, good); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		for _, flip := range []byte{1, 0x80, 0xFF} {
			b := bytes.Clone(good)
			b[i] ^= flip
			if err := tryPacked(b); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Errorf("byte %d ^ %#x: %v", i, flip, err)
			}
		}
	}
	for n := range good {
		if err := tryPacked(good[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	if err := tryPacked(append(bytes.Clone(good), 0)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("one byte longer: %v", err)
	}
	for _, n := range []int{0, 1, packedFixed, len(good) / 2, len(good) - 1} { // as a file too
		if err := openPacked(t, good[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("file cut to %d bytes: %v", n, err)
		}
	}
}

// TestPackedHostile sets every 4-byte field of a packed manifest to hostile numbers, with a right checksum: an error that says it is damaged, or the same manifest.
func TestPackedHostile(t *testing.T) {
	plain := parseHex(t, "testdata/manifest_v2.hex")
	good, err := pack(plain)
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := 0; i+4 <= len(good)-sumSize; i++ {
		for _, v := range []uint32{0, 1, 2, 3, 4, 0x7fffffff, 0x80000000, 0xffffffff} {
			b := bytes.Clone(good)
			binary.LittleEndian.PutUint32(b[i:], v)
			resealPacked(b)
			got, err := unpack(b)
			if err == nil && !bytes.Equal(got, plain) {
				_, err = decodeBytes(got)
			}
			if offheap.Free(got); err != nil {
				refused++
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
					t.Errorf("field at %d = %#x: %v", i, v, err)
				}
			}
		}
	}
	if refused < 100 {
		t.Errorf("only %d hostile files were refused", refused)
	}
}

// TestPackedClaimsTooMuch: a small file that claims many bytes is refused before memory is allocated for them.
func TestPackedClaimsTooMuch(t *testing.T) {
	good, err := pack(parseHex(t, "testdata/manifest_v1.hex"))
	if err != nil {
		t.Fatal(err)
	}
	for _, plain := range []uint64{0, 63, uint64(len(good))*mostRatio + mostRatio, heldBytes, heldBytes + 1, 1 << 40, 1<<64 - 1} {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint64(b[16:], plain)
		resealPacked(b)
		if allocated := testing.AllocsPerRun(1, func() { _, err = unpack(b) }); !errors.Is(err, ErrCorrupt) || allocated > 50 {
			t.Errorf("a claim of %d bytes: %v, %v allocations", plain, err, allocated)
		}
	}
	b := append(bytes.Clone(good), make([]byte, heldBytes)...) // longer than any file that may be packed
	if err := openPacked(t, b); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a file of %d bytes: %v", len(b), err)
	}
}

// TestPackedInPacked: a packed manifest may contain only a plain one.
func TestPackedInPacked(t *testing.T) {
	good, err := pack(parseHex(t, "testdata/manifest_v1.hex"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pack(good); !errors.Is(err, ErrCorrupt) {
		t.Errorf("packed twice: %v", err)
	}
}

// TestPackedTooLarge: a manifest that is too large for memory is written plain.
func TestPackedTooLarge(t *testing.T) {
	path, plain := packedTemp(t, nil, many(2000))
	for _, limit := range []int{0, 1, headerSize(7), len(plain) - 1} {
		err := durable.Replace(path, func(v *durable.Version) error {
			_, err := encodePacked(v, nil, Entries(many(2000)), limit)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, plain) {
			t.Errorf("with room for %d bytes the file has %d, want the %d of the plain form; %v", limit, len(b), len(plain), err)
		}
	}
}

// TestRewrite turns an open manifest from plain to packed and back, and cuts the power at every step: the file is a whole plain or packed one. After a failed step, the file is the one before.
func TestRewrite(t *testing.T) {
	entries := many(3000)
	path, plain := packedTemp(t, nil, entries)
	packed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := OpenManifest(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if again, err := m.Pack(); err != nil || !bytes.Equal(again, packed) {
		t.Fatalf("%d bytes packed, want %d; %v", len(again), len(packed), err)
	}
	is := func(path string, want ...[]byte) {
		t.Helper()
		b, err := os.ReadFile(path)
		for _, w := range want {
			if bytes.Equal(b, w) {
				return
			}
		}
		t.Errorf("the file has %d bytes, %v", len(b), err)
	}
	disk, r := durabletest.New(), rand.New(rand.NewPCG(3, 4))
	for _, tt := range []struct{ form, before, after []byte }{{packed, packed, packed}, {nil, packed, plain}, {nil, plain, plain}, {packed, plain, packed}} {
		for n := 0; ; n++ {
			step := 0
			err := m.rewrite(path, tt.form, func(durable.Change) error {
				if step++; step > n {
					return errors.New("no more")
				}
				return nil
			})
			if err == nil {
				break
			}
			is(path, tt.before, tt.after) // the rename may have been done
			if err := os.WriteFile(path, tt.before, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		is(path, tt.after)
		if m.FileBytes() != uint64(len(tt.after)) {
			t.Errorf("FileBytes is %d, the file has %d bytes", m.FileBytes(), len(tt.after))
		}
	}
	var images []durabletest.Image
	disk.Step = func() { images = append(images, disk.Crash(r, 0.5)) }
	dir := filepath.Dir(path)
	if _, err := writeManifest(path, nil, Entries(entries), false, disk.Trace); err != nil {
		t.Fatal(err)
	}
	images, m.fileBytes = nil, uint64(len(plain))
	if err := m.rewrite(path, packed, disk.Trace); err != nil {
		t.Fatal(err)
	}
	disk.Locked(disk.Step)
	for _, image := range images {
		root := t.TempDir()
		image.Write(t, dir, root)
		is(filepath.Join(root, "manifest"), plain, packed)
	}
	if len(images) < 5 {
		t.Errorf("only %d crashes", len(images))
	}
	checkManifest(t, m, nil, entries)
}

// TestPackOnlyIfItPays: a small manifest has no packed form, and neither has one whose names stay on disk.
func TestPackOnlyIfItPays(t *testing.T) {
	path := writeTemp(t, listingClasses, listing)
	m, err := OpenManifest(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if b, err := m.Pack(); b != nil || err != nil {
		t.Errorf("a manifest of %d bytes is packed into %d, %v", m.PlainBytes(), len(b), err)
	}
	f, size, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	large, err := readManifest(f, uint64(size))
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	if b, err := large.Pack(); b != nil || err != nil || large.Rewrite(path, nil) != nil {
		t.Errorf("a manifest that is not held is packed into %d bytes, %v", len(b), err)
	}
	if large.FileBytes() != uint64(size) || m.FileBytes() != uint64(size) {
		t.Errorf("FileBytes is %d and %d, the file has %d bytes", large.FileBytes(), m.FileBytes(), size)
	}
}

// TestGoldenPacked: the file in testdata unpacks to the plain golden file, byte for byte. A file packed today may differ, because the compressor may change, but must unpack to the same bytes.
func TestGoldenPacked(t *testing.T) {
	for golden, of := range map[string]string{"manifest_packed.hex": "manifest_v1.hex", "manifest_v5.hex": "manifest_v4.hex"} {
		checkGoldenPacked(t, "testdata/"+golden, of)
	}
}

func checkGoldenPacked(t *testing.T, golden, of string) {
	t.Helper()
	plain := parseHex(t, "testdata/"+of)
	now, err := pack(plain)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(annotatePacked(t, of, now)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range [][]byte{parseHex(t, golden), now} {
		got, err := unpack(b)
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d packed bytes unpack to %d, want %d; %v", len(b), len(got), len(plain), err)
		}
		offheap.Free(got)
	}
}

func annotatePacked(t *testing.T, of string, b []byte) string {
	h, rows, _, err := decodePacked(b)
	if err != nil {
		t.Fatal(err)
	}
	a := &annotator{rest: b}
	fmt.Fprintf(&a.out, "# The packed form of %s. Made by: go test ./sample -run Golden -update\n", of)
	a.title("fixed part")
	a.take(8, "magic")
	a.take(4, "version")
	a.take(4, "sections")
	a.take(8, "bytes of the plain form: %d", h.length)
	a.take(8, "length of the file: %d", len(b))
	for i, s := range h.table {
		a.title("row: %v", s)
		a.take(4, "way: %d", rows[packedRow*i])
		a.take(4, "length: %d", rows[packedRow*i+4])
	}
	a.title("header of the plain form")
	a.take(headerSize(len(h.table)), "as it is")
	for i, s := range h.table {
		a.title("section: %v", s)
		a.take(int(binary.LittleEndian.Uint32(rows[packedRow*i+4:])), "packed")
	}
	a.title("xxh3-64 of all before it")
	a.take(8, "")
	return a.out.String()
}

// FuzzPacked: any bytes, with a right checksum or not, give an error, or unpack to at most their possible length. The unpacked bytes are refused, or are a manifest that stays the same when it is packed and unpacked again.
func FuzzPacked(f *testing.F) {
	for _, name := range []string{"testdata/manifest_v1.hex", "testdata/manifest_v2.hex", "testdata/manifest_v4.hex", "testdata/manifest_v4_sums.hex"} {
		b, err := pack(parseHex(f, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, true)
		f.Add(b, false)
		f.Add(b[:packedFixed+packedRow], true)
	}
	f.Add(parseHex(f, "testdata/manifest_packed.hex"), true)
	f.Add(parseHex(f, "testdata/manifest_v5.hex"), true)
	for _, entries := range [][]Entry{many(300), grouped(50)} {
		_, plain := packedTemp(f, []string{"c"}, entries)
		b, err := pack(plain)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		b = bytes.Clone(b)
		if len(b) >= packedFixed {
			binary.LittleEndian.PutUint64(b[24:], uint64(len(b)))
		}
		if seal {
			resealPacked(b)
		}
		plain, err := unpack(b)
		if err != nil {
			if plain != nil {
				t.Error("unpack returned bytes and an error")
			}
			return
		}
		defer offheap.Free(plain)
		if len(plain) > heldBytes || len(plain)/mostRatio > len(b) {
			t.Fatalf("%d bytes unpack to %d", len(b), len(plain))
		}
		if _, err := decodeBytes(plain); err != nil {
			return
		}
		again, err := pack(plain)
		if err != nil {
			t.Fatal(err)
		}
		back, err := unpack(again)
		defer offheap.Free(back)
		if same := bytes.Equal(back, plain); err != nil || !same {
			t.Errorf("the same after it was packed again: %v, want true; %v", same, err)
		}
	})
}
