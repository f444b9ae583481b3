package sample

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// parseHex reads an annotated hex file: what stands behind "#" is for people.
func parseHex(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for n, line := range strings.Split(string(text), "\n") {
		digits, _, _ := strings.Cut(line, "#")
		part, err := hex.DecodeString(strings.Join(strings.Fields(digits), ""))
		if err != nil {
			t.Fatalf("%s:%d: %v", path, n+1, err)
		}
		b = append(b, part...)
	}
	return b
}

// annotator writes such a file.
type annotator struct {
	out  strings.Builder
	rest []byte
	at   int
}

func (a *annotator) title(format string, args ...any) {
	fmt.Fprintf(&a.out, "\n# "+format+"\n", args...)
}

func (a *annotator) take(n int, format string, args ...any) {
	for i := 0; i < n; i += 16 {
		note := ""
		if i == 0 {
			note = fmt.Sprintf("%4d  ", a.at) + fmt.Sprintf(format, args...)
		}
		fmt.Fprintln(&a.out, strings.TrimRight(fmt.Sprintf("%-48s# %s", fmt.Sprintf("% x", a.rest[i:min(i+16, n)]), note), " #"))
	}
	a.rest, a.at = a.rest[n:], a.at+n
}

func annotateManifest(b []byte, h header) string {
	a := &annotator{rest: b}
	fmt.Fprintf(&a.out, "# A manifest, version %d. Made by: go test ./sample -run Golden -update\n", h.version)
	a.title("fixed part")
	a.take(8, "magic")
	a.take(4, "version")
	a.take(4, "sections")
	for _, what := range []string{"samples", "classes", "bytes of all samples", "length of the file", "zero", "zero"} {
		a.take(8, "%s: %d", what, binary.LittleEndian.Uint64(a.rest))
	}
	for _, s := range h.table {
		a.title("table: %v", s)
		a.take(4, "id")
		a.take(4, "zero")
		a.take(8, "offset %d", s.off)
		a.take(8, "length %d", s.len)
		a.take(16, "xxh3-128")
	}
	a.title("header's xxh3-64")
	a.take(8, "")
	width := map[uint32]int{secSizes: 4, secLabels: 4, secVersions: 8, secNameHashes: 8, secPartStarts: 4, secParts: 8, secNameOffs: 8, secSums: 8}
	for _, s := range h.table {
		a.title("section: %v", s)
		a.take(int(s.off)-a.at, "padding")
		switch {
		case s.id == secPlaces && h.version == versionRecords:
			annotateRecordPlaces(a, int(h.samples))
		case s.id == secPlaces:
			annotatePlaces(a, int(h.samples), int(h.find(secParts).len/8))
		}
		for end := int(s.off + s.len); a.at < end; {
			n := width[s.id]
			if n == 0 {
				n = end - a.at
			}
			a.take(n, "")
		}
	}
	return a.out.String()
}

func annotatePlaces(a *annotator, samples, parts int) {
	for range samples {
		a.take(8, "position %d", binary.LittleEndian.Uint64(a.rest))
	}
	for range parts {
		a.take(4, "distance %d", binary.LittleEndian.Uint32(a.rest))
	}
	shards := binary.LittleEndian.Uint32(a.rest)
	a.take(4, "shards: %d", shards)
	for range shards {
		a.take(8, "size of a shard: %d", binary.LittleEndian.Uint64(a.rest))
		a.take(8, "its version")
	}
}

func annotateRecordPlaces(a *annotator, samples int) {
	next := func(what string) uint64 {
		v := binary.LittleEndian.Uint64(a.rest)
		a.take(8, "%s %d", what, int64(v))
		return v
	}
	shards, apart := next("shards:"), next("distances:")
	for range samples {
		next("position")
	}
	for range apart {
		next("distance")
	}
	for range shards {
		next("size of a shard:")
		a.take(8, "its version")
		next("its samples:")
	}
}

func TestGoldenManifest(t *testing.T) {
	checkGolden(t, "testdata/manifest_v1.hex", listingClasses, listing)
	checkGolden(t, "testdata/manifest_v2.hex", nil, inShards)
	checkGolden(t, "testdata/manifest_v4.hex", nil, records)
	checkGolden(t, "testdata/manifest_v4_sums.hex", nil, summed())
}

func checkGolden(t *testing.T, golden string, classes []string, listing []Entry) {
	t.Helper()
	path := writeTemp(t, classes, listing)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		h, err := readHeader(bytes.NewReader(got), uint64(len(got)))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(annotateManifest(got, h)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := parseHex(t, golden)
	if !bytes.Equal(got, want) {
		t.Errorf("the written file differs from %s (%d bytes, want %d): a new format needs a new version", golden, len(got), len(want))
	}
	m, err := decodeBytes(want)
	if err != nil {
		t.Fatal(err)
	}
	checkManifest(t, m, classes, listing)
}

func goldenSums(t *testing.T, path string) Fingerprint {
	t.Helper()
	fp := Fingerprint{0: 0x8c, 1: 0x1f, 15: 0xff}
	s, err := OpenSums(path, fp, 4)
	if err != nil {
		t.Fatal(err)
	}
	s.Set(0, Sum([]byte("zero")))
	s.Set(2, 0) // a sum may be 0
	s.Set(3, Sum([]byte("three")))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return fp
}

// The header's padding is left out of the golden file: 4 KiB of zeros.
func TestGoldenSums(t *testing.T) {
	const golden = "testdata/sums_v1.hex"
	path := filepath.Join(t.TempDir(), "sums")
	goldenSums(t, path)
	checkLearnt(t, path, golden, "Sums of four samples, version 1; the second is unknown.", "sum", 8)
}

// What a manifest of the same four samples would be stored as.
func TestGoldenLengths(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stored")
	l, err := OpenLengths(path, Fingerprint{0: 0x8c, 1: 0x1f, 15: 0xff}, []uint32{100, 5000, 77, 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	l.Set(0, 60)
	l.Set(2, 77)
	l.Set(3, 300_000)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	checkLearnt(t, path, "testdata/stored_v1.hex", "Stored lengths of four samples, version 1; the second is unknown.", "length", 4)
}

// checkLearnt compares a learnt file of four samples with its golden twin; width is that of its column.
func checkLearnt(t *testing.T, path, golden, what, column string, width int) {
	t.Helper()
	checkColumns(t, path, golden, what, learntColumn{column, width}, learntColumn{"check", 4})
}

type learntColumn struct {
	name  string
	width int
}

func checkColumns(t *testing.T, path, golden, what string, columns ...learntColumn) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(bytes.Trim(b[learntHeader:learntData], "\x00")) != 0 {
		t.Error("padding is not zero")
	}
	got := append(b[:learntHeader:learntHeader], b[learntData:]...)
	if *update {
		a := &annotator{rest: got}
		a.out.WriteString("# " + what + " Made by: go test ./sample -run Golden -update\n")
		a.title("header; zeros up to 4096 are left out here")
		a.take(8, "magic")
		a.take(4, "version")
		a.take(4, "zero")
		a.take(8, "samples")
		a.take(16, "fingerprint of the manifest")
		a.take(8, "xxh3-64 of the 40 bytes before")
		for _, c := range columns {
			a.title("%s", c.name)
			for range 4 {
				a.take(c.width, "")
			}
		}
		if err := os.WriteFile(golden, []byte(a.out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := parseHex(t, golden); !bytes.Equal(got, want) {
		t.Errorf("the written file differs from %s: a new format needs a new version", golden)
	}
}

// Any bytes, with and without right checksums: an error or a manifest that can be used and written again.
func FuzzManifest(f *testing.F) {
	f.Add(parseHex(f, "testdata/manifest_v1.hex"), true)
	f.Add(parseHex(f, "testdata/manifest_v1.hex"), false)
	small, err := os.ReadFile(writeTemp(f, []string{"c"}, []Entry{{Name: "a", Size: 1}}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(small, true)
	f.Add(small[:headerSize(7)], true)
	parts, err := os.ReadFile(writeTemp(f, nil, []Entry{
		{Name: "a/x", Size: 7, Parts: []Part{{Ext: "", Size: 0}, {Ext: "jpg", Size: 4}, {Ext: "seg\n.\xff", Size: 3}}},
		{Name: "b", Size: 2},
		{Name: "c", Size: 1, Parts: []Part{{Ext: "jpg", Size: 1}}},
	}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(parts, true)
	f.Add(parseHex(f, "testdata/manifest_v2.hex"), true)
	f.Add(parseHex(f, "testdata/manifest_v2.hex"), false)
	f.Add(parseHex(f, "testdata/manifest_v4.hex"), true)
	f.Add(parseHex(f, "testdata/manifest_v4.hex"), false)
	f.Add(parseHex(f, "testdata/manifest_v4_sums.hex"), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal {
			b = bytes.Clone(b)
			reseal(b)
		}
		m, err := decodeBytes(b)
		if err != nil {
			return
		}
		if m.Len() > len(b) || len(m.Classes()) > len(b) {
			t.Fatalf("%d samples and %d classes in %d bytes", m.Len(), len(m.Classes()), len(b))
		}
		total := uint64(0)
		for i := range m.Len() {
			if e, err := m.Entry(Index(i)); err == nil && NameHash(e.Name) != m.NameHash(Index(i)) {
				t.Errorf("name %d has another hash", i)
			}
			total += uint64(m.Size(Index(i)))
			checkPlaceOf(t, m, Index(i))
			whole := uint64(0)
			for _, p := range m.Parts(Index(i)) {
				whole += uint64(p.Size)
			}
			if m.Parts(Index(i)) != nil && whole != uint64(m.Size(Index(i))) {
				t.Errorf("parts of sample %d have %d bytes, it has %d", i, whole, m.Size(Index(i)))
			}
		}
		if total != m.Bytes() {
			t.Errorf("%d bytes, want %d", m.Bytes(), total)
		}
		m.Lookup("a")
		m.Verify()
	})
}

// The published value of xxh3-64 for no bytes: the identity of samples must not change with a library.
func TestSum(t *testing.T) {
	const empty = 0x2d06800538d394c2
	if Sum(nil) != empty || NameHash("") != empty {
		t.Errorf("the sum of nothing is %#x and %#x, want %#x", Sum(nil), NameHash(""), uint64(empty))
	}
	if b := []byte("cat/1.jpg"); Sum(b) != NameHash(string(b)) {
		t.Error("bytes and names are hashed differently")
	}
}
