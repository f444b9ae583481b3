package logfile

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lcache/sample"

	"github.com/zeebo/xxh3"
)

// goldenBytes reads a golden dump back.
func goldenBytes(t testing.TB, name string) (out []byte) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "|")
		line, annotated, _ := strings.Cut(line, "#")
		words := strings.Fields(line)
		if annotated == "" && len(words) > 0 {
			words = words[1:] // the offset
		}
		b, err := hex.DecodeString(strings.Join(words, ""))
		if err != nil {
			t.Fatalf("%s: %q: %v", name, line, err)
		}
		out = append(out, b...)
	}
	if len(out) == 0 {
		t.Fatalf("%s holds no bytes", name)
	}
	return out
}

// FuzzFormat decodes any bytes as FORMAT, with a right checksum or not. Accepted bytes must equal encodeFormat's.
func FuzzFormat(f *testing.F) {
	f.Add(goldenBytes(f, "FORMAT.hex"), true)
	f.Add(goldenBytes(f, "FORMAT.hex"), false)
	f.Add(encodeFormat(Format{Block: maxBlock, Align: 64, UUID: [16]byte{1}, Places: maxPlaces}, 0, 1), true)
	f.Add([]byte(formatMagic), false)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) >= formatSize {
			b = slices.Clone(b)
			binary.LittleEndian.PutUint64(b[56:], xxh3.Hash(b[:56]))
		}
		got, dir, dirs, err := decodeFormat(b)
		if err != nil {
			return
		}
		if err := got.check(); err != nil || dir < 0 || dir >= dirs {
			t.Fatalf("%x gave %+v, directory %d of %d: %v", b, got, dir, dirs, err)
		}
		if again := encodeFormat(got, dir, dirs); !bytes.Equal(again, b) {
			t.Fatalf("%x was taken as %x", b, again)
		}
	})
}

// FuzzHeader does the same for the header of a journal, and holds it against a cache's geometry.
func FuzzHeader(f *testing.F) {
	format := Format{Block: 4096, Align: 64, UUID: [16]byte{1}, Places: 8}
	h := Header{Fingerprint: sample.Fingerprint{9}, Key: [16]byte{7}, Epoch: 3, Segments: 2, SegmentBlocks: 8, Align: 64, Block: 4096, Starts: []uint64{0, 5, 9}}
	f.Add(encodeHeader(&h, 17, format.seed()), true)
	f.Add(encodeHeader(&h, 17, format.seed()), false)
	f.Add(goldenBytes(f, "journal.hex"), true)
	f.Add(goldenBytes(f, "journal-packages.hex"), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		n, err := headerLength(b)
		if err != nil || n > len(b) {
			return
		}
		b = slices.Clone(b[:n])
		if seal {
			copy(b[n-checksumSize:], appendSum(b[:n-checksumSize], format.seed()))
		}
		got, gen, err := decodeHeader(b, format.seed())
		if err != nil {
			return
		}
		if len(got.Starts) != int(got.Segments)+1 {
			t.Fatalf("%d starts of %d segments", len(got.Starts), got.Segments)
		}
		if again := encodeHeader(got, gen, format.seed()); !bytes.Equal(again[:80], b[:80]) {
			t.Fatalf("%x was taken as %x", b, again)
		}
		if got.check(format) == nil && (int(got.Block) != format.Block || got.Segments == 0) {
			t.Fatalf("%+v fits nothing", got)
		}
	})
}

// recordInput is how FuzzRecover reads its bytes: 10 for the fields of a record, then as many as there are indices. Fields that are
// bytes are near each other, so that records meet; the checksum is always right.
func recordInput(b []byte, gen uint64, block int, seed uint64) (journal []byte) {
	for len(b) >= 10 {
		r := record{generation: gen + uint64(b[0]), epoch: uint32(b[1] >> 6), segment: uint32(b[1] & 7), sequence: uint32(b[2]), place: uint32(b[3]),
			at: uint32(b[4]&3) * 2048, used: uint32(b[5]) * uint32(block) / 64, first: uint32(b[6]) * uint32(block) / 64}
		if b[7]&15 == 1 {
			r.place, r.used = noPlace, 0
		}
		n := min(int(b[8]&7), len(b)-10)
		var indices []sample.Index
		for _, i := range b[10:][:n] {
			indices = append(indices, uint32(i)%20)
		}
		journal = appendRecord(journal, &r, indices, seed)
		journal = append(journal, make([]byte, b[9]&3)...) // a gap, of eight bytes or not
		b = b[10+n:]
	}
	return journal
}

// fuzzSizes are the sizes of the samples of a fuzzed cache.
var fuzzSizes = []uint32{64, 128, 4096, 5000, 0, 1, 2048, 64, 64, 640, 4032, 9000, 1984, 100, 300, 64, 64, 12288, 4095, 4097}

// fuzzJournals fuzzes the two journals of an open bed, which have their headers, and calls check with a cache that was opened over them. Its free list was checked by then.
func fuzzJournals(f *testing.F, b *bed, nums [2]int, check func(t *testing.T, c *bed)) {
	var heads [2][]byte
	for k, num := range nums {
		head, err := os.ReadFile(b.s.journalPath(num))
		if err != nil {
			f.Fatal(err)
		}
		heads[k] = head
	}
	b.close()
	f.Fuzz(func(t *testing.T, first, second []byte) {
		c := &bed{t: t, dirs: b.dirs, format: b.format, sizes: fuzzSizes, opts: b.opts, lost: map[sample.Index]int{}}
		for k, input := range [][]byte{first, second} {
			journal := slices.Concat(heads[k], recordInput(input, 2, b.format.Block, b.format.seed()))
			if err := os.WriteFile(b.s.journalPath(nums[k]), journal, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c.open()
		c.books()
		check(t, c)
		c.close()
	})
}

// FuzzRecover opens a cache over journals of valid records with any content. Whatever they contain, the cache opens, its free list is consistent, and
// listed samples can be read.
func FuzzRecover(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 64, 0, 0, 2, 0, 1, 2}, []byte{2, 0, 0, 0, 0, 64, 0, 0, 1, 0, 3})
	f.Add([]byte{1, 0, 0, 0, 0, 64, 0, 0, 1, 0, 3, 1, 0, 1, 1, 0, 64, 8, 0, 0, 0, 2, 0, 1, 1, 0, 0, 0, 1, 0, 0}, []byte{})
	f.Add(bytes.Repeat([]byte{7, 1, 1, 1, 2, 32, 0, 0, 1, 1, 4}, 5), bytes.Repeat([]byte{9, 1, 2, 1, 0, 32, 0, 1, 0, 0}, 3))
	b := newBed(f, 1, 4096, 16, fuzzSizes)
	b.open()
	for num := range 2 {
		b.begin(num, uint32(num), 8, 12, 16)
	}
	fuzzJournals(f, b, [2]int{0, 1}, func(t *testing.T, c *bed) {
		buf := aligned(t, Span(4095, 12288)+unit)
		for num, l := range c.s.Logfiles() {
			if l == nil {
				t.Fatalf("Logfile %d is gone, with a good header", num)
			}
			for seg := range int(l.Header().Segments) {
				l.Arrivals(seg, func(_ int, i sample.Index, off uint64) bool {
					if _, err := l.Read(t.Context(), seg, off, int(fuzzSizes[i]), buf); err != nil {
						t.Errorf("Logfile %d segment %d sample %d at %d is listed: %v", num, seg, i, off, err)
					}
					return true
				})
			}
		}
	})
}
