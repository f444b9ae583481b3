package records

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

func newParquetWith(t testing.TB, s Settings) Format {
	t.Helper()
	f, err := newParquet(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestParquet: rows of files that pyarrow wrote, plain and with dictionaries, in pages of both versions.
func TestParquet(t *testing.T) {
	for _, name := range []string{"plain.parquet", "dictionary.parquet"} {
		file := golden(t, name)
		tb, err := indexBytes(t, newParquetWith(t, Settings{}), file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var want []string
		for i := range 9 {
			row := fmt.Sprintf("%d(image=%q", i%2, strings.Repeat(fmt.Sprintf("%s/%d", name, i), 20))
			if i%3 == 0 {
				row += fmt.Sprintf(" image.path=%q", fmt.Sprint(i, ".png"))
			}
			want = append(want, row+")")
		}
		if got := shape(t, tb, file); got != strings.Join(want, " ") {
			t.Errorf("%s: %s\nwant %s", name, got, strings.Join(want, " "))
		}
		if fmt.Sprint(tb.Classes) != "[cat dog]" || len(tb.Left) != 1 || !strings.HasPrefix(tb.Left[0], "ids (its values are lists") {
			t.Errorf("%s: classes %q, left %q", name, tb.Classes, tb.Left)
		}
	}
}

func TestParquetColumns(t *testing.T) {
	for _, c := range []struct {
		file, want string
		set        Settings
	}{
		{"plain.parquet", "image image.path", Settings{Columns: []string{"image"}}},
		{"plain.parquet", "image.path", Settings{Columns: []string{"image.path"}, LabelColumn: "label"}},
		{"plain.parquet", `its column "ids" can't be served: its values are lists: give --stream to decode it, or write Arrow files (save_to_disk), which have them as ranges`, Settings{Columns: []string{"ids"}}},
		{"plain.parquet", `it has no column "no": it has image, image.path, ids`, Settings{Columns: []string{"no"}}},
		{"snappy.parquet", `no column of it can be served as it is (its column "image" can't: it is compressed by SNAPPY: give --stream to decode it once, front to back, or write it with compression NONE, as datasets 4.6 and later write images)`, Settings{}},
		{"snappy.parquet", `its column "image" can't be served: it is compressed by SNAPPY: give --stream to decode it once, front to back, or write it with compression NONE, as datasets 4.6 and later write images`, Settings{Columns: []string{"image"}}},
		{"stream.arrow", "it is not a Parquet file: check the pattern", Settings{}},
	} {
		tb, err := indexBytes(t, newParquetWith(t, c.set), golden(t, c.file))
		got := strings.Join(tb.Parts(), " ")
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s, %+v: %s\nwant %s", c.file, c.set, got, c.want)
		}
	}
}

// TestParquetCut: a file that ends too early is an error, wherever.
func TestParquetCut(t *testing.T) {
	for _, name := range []string{"plain.parquet", "dictionary.parquet"} {
		file := golden(t, name)
		for n := range len(file) {
			if tb, err := indexBytes(t, newParquetWith(t, Settings{}), file[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes gave %d rows", name, n, len(file), tb.Len())
			}
		}
	}
}

// TestParquetDamaged flips a bit of each byte: an error, or rows in the file.
func TestParquetDamaged(t *testing.T) {
	for _, name := range []string{"plain.parquet", "dictionary.parquet"} {
		file := golden(t, name)
		for at := range file {
			b := bytes.Clone(file)
			b[at] ^= 1 << (at % 8)
			if tb, err := indexBytes(t, newParquetWith(t, Settings{}), b); err == nil {
				inShard(t, tb, int64(len(b)))
			}
		}
	}
}

// FuzzParquet: any bytes give an error, or rows in the file, not many more than it has bits.
func FuzzParquet(f *testing.F) {
	for _, name := range []string{"plain.parquet", "dictionary.parquet", "snappy.parquet"} {
		f.Add(golden(f, name))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		tb, err := indexBytes(t, newParquetWith(t, Settings{}), file)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("an error of several lines: %q", err)
		}
		if n := inShard(t, tb, int64(len(file))); n > 8*len(file)+1<<20 {
			t.Errorf("%d rows in %d bytes", n, len(file))
		}
		decodeBytes(t, newParquetWith(t, Settings{}).(Decoder), file)
	})
}

// FuzzParquetFooter fuzzes the footer alone, which a change of one byte in a file rarely reaches.
func FuzzParquetFooter(f *testing.F) {
	for _, name := range []string{"plain.parquet", "dictionary.parquet"} {
		b := golden(f, name)
		n := int(binary.LittleEndian.Uint32(b[len(b)-8:]))
		f.Add(b[len(b)-8-n : len(b)-8])
	}
	whole := golden(f, "plain.parquet")
	f.Fuzz(func(t *testing.T, footer []byte) {
		file := append(bytes.Clone(whole), footer...)
		file = binary.LittleEndian.AppendUint32(file, uint32(len(footer)))
		file = append(file, "PAR1"...)
		if tb, err := indexBytes(t, newParquetWith(t, Settings{}), file); err == nil {
			inShard(t, tb, int64(len(file)))
		}
	})
}

// FuzzLevels: any bytes as levels and as deltas end.
func FuzzLevels(f *testing.F) {
	f.Add([]byte{6, 1, 3, 0xff, 0}, 1)
	f.Add([]byte{128, 1, 4, 3, 2, 2, 0, 0, 0, 0}, 2)
	f.Fuzz(func(t *testing.T, b []byte, width int) {
		h := &hybrid{b: b, width: width & 31}
		for range 100_000 {
			if v, ok := h.next(); !ok {
				break
			} else if h.width < 8 && h.run == 0 && h.packed > 0 && v >= 1<<h.width {
				t.Fatalf("%d in %d bits", v, h.width)
			}
		}
		d := newDeltas(b)
		for range 100_000 {
			if _, ok := d.next(); !ok {
				break
			}
		}
	})
}

// TestParquetMaps: maps and lists of structs are left out, and lists of numbers beside them are decoded.
func TestParquetMaps(t *testing.T) {
	file := golden(t, "maps.parquet")
	const lists = "it has lists of something else than numbers"
	tb, out, err := decodeBytes(t, newParquetWith(t, Settings{}).(Decoder), file)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("[m (%s) n (%s) s (%s)]", lists, lists, lists); fmt.Sprint(tb.Left) != want {
		t.Errorf("left out: %s, want %s", tb.Left, want)
	}
	if got, want := shape(t, tb, out), `0(ids="\x01\x00\x00\x00\x02\x00\x00\x00") 0(ids="") 0() 0(ids="\x03\x00\x00\x00")`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	for _, name := range []string{"m", "n", "s"} {
		_, _, err := decodeBytes(t, newParquetWith(t, Settings{Columns: []string{name}}).(Decoder), file)
		if want := fmt.Sprintf("its column %q can't be served: %s", name, lists); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
