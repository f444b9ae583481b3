package records

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// indexTables returns the tables of an index, with the shards' names.
func indexTables(t *testing.T, index []byte) (shards []string, tables []*Table, err error) {
	t.Helper()
	format, err := newRanges(Settings{})
	if err != nil {
		t.Fatal(err)
	}
	if shards, err = format.Shards(t.Context(), memory{"i": index}, "i"); err != nil {
		return nil, nil, err
	}
	for _, name := range shards {
		tb := NewTable(-1)
		if err := format.Index(t.Context(), nil, name, nil, tb); err != nil {
			return nil, nil, err
		}
		tables = append(tables, tb)
	}
	return shards, tables, nil
}

// TestBinaryIndex: an index that pyarrow wrote as Parquet or Arrow says the same as the text with the same rows.
func TestBinaryIndex(t *testing.T) {
	shards, want, err := indexTables(t, golden(t, "index.tsv"))
	if err != nil || len(want) != 2 || want[0].Len() != 2 || want[1].Len() != 2 {
		t.Fatalf("%v, %v", shards, err)
	}
	_, _, cells := want[0].Row(0, nil)
	if fmt.Sprint(cells) != "[{0 0 7 1} {1 7 3 18446744073709551615}]" {
		t.Errorf("%+v", cells)
	}
	for _, name := range []string{"index.parquet", "index-pages.parquet", "index-stream.arrow", "index-file.arrow"} {
		names, got, err := indexTables(t, golden(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !reflect.DeepEqual(names, shards) {
			t.Errorf("%s: shards %q, want %q", name, names, shards)
		}
		for s := range want {
			for i := range want[s].Len() {
				key, label, cells := want[s].Row(i, nil)
				gotKey, gotLabel, gotCells := got[s].Row(i, nil)
				if key != gotKey || label != gotLabel || !reflect.DeepEqual(cells, gotCells) || !reflect.DeepEqual(want[s].Parts(), got[s].Parts()) {
					t.Errorf("%s: shard %d, row %d: %q %d %v, want %q %d %v", name, s, i, gotKey, gotLabel, gotCells, key, label, cells)
				}
			}
		}
	}
}

// TestBinaryIndexCut: an index that ends too early is an error, unless an Arrow stream ends after a batch, as it may.
func TestBinaryIndexCut(t *testing.T) {
	for _, name := range []string{"index.parquet", "index-stream.arrow", "index-file.arrow"} {
		file := golden(t, name)
		whole := 0
		for n := 1; n < len(file); n++ {
			_, tables, err := indexTables(t, file[:n])
			if err == nil {
				whole++
				for _, tb := range tables {
					inShard(t, tb, 1<<60)
				}
			} else if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of several lines: %q", err)
			}
		}
		if most := map[string]int{"index.parquet": 0, "index-stream.arrow": 12, "index-file.arrow": 1000}[name]; whole > most {
			t.Errorf("%s: %d beginnings are taken for whole, at most %d", name, whole, most)
		}
	}
}

// TestIndexIntegers: integers of all widths, at their limits.
func TestIndexIntegers(t *testing.T) {
	for _, c := range []struct {
		column string
		bytes  []byte
		signed bool
		want   string
	}{
		{"offset", []byte{255, 255, 255, 255}, false, "4294967295"},
		{"offset", []byte{255, 255, 255, 255}, true, "its offset is -1, want an integer from 0 to 9223372036854775807"},
		{"offset", bytes.Repeat([]byte{255}, 8), false, "its offset is 18446744073709551615, want an integer from 0 to 9223372036854775807"},
		{"offset", []byte{200}, false, "200"},
		{"length", []byte{0, 0, 0, 0, 1, 0, 0, 0}, true, "its length is 4294967296, want an integer from 0 to 4294967295"},
		{"label", []byte{0, 128}, true, "-32768"},
		{"label", []byte{0, 0, 0, 128}, false, "its label is 2147483648, want an integer from -2147483648 to 2147483647"},
		{"xxh3", bytes.Repeat([]byte{255}, 8), false, "18446744073709551615"},
		{"xxh3", bytes.Repeat([]byte{255}, 8), true, "its xxh3 is -1, want an integer without a sign"},
	} {
		var row rangeRow
		got := ""
		if err := (indexColumn{name: c.column, signed: c.signed}).set(&row, c.bytes, false); err != nil {
			got = err.Error()
		} else {
			got = map[string]string{"offset": fmt.Sprint(row.off), "length": fmt.Sprint(row.size), "label": fmt.Sprint(row.label), "xxh3": fmt.Sprint(row.sum)}[c.column]
		}
		if got != c.want {
			t.Errorf("%s of %x: %s, want %s", c.column, c.bytes, got, c.want)
		}
	}
}

// TestIndexSums: checksums in a text.
func TestIndexSums(t *testing.T) {
	for line, want := range map[string]string{
		"a\t0\t4\t2d06800538d394c2": "",
		"a\t0\t4\t":                 "",
		"a\t0\t0\t2d06800538d394c2": "",
		"a\t0\t0\t0000000000000001": "index \"i\": line 2: its xxh3 is 0000000000000001, but that of a range without bytes is 2d06800538d394c2: correct the index",
		"a\t0\t4\t5":                `index "i": line 2: its xxh3 is "5", want 16 hexadecimal digits`,
		"a\t0\t4\t+d06800538d394c2": `index "i": line 2: its xxh3 is "+d06800538d394c2", want 16 hexadecimal digits`,
		"a\t0\t4":                   `index "i": line 2: it has fewer columns than the first line: "a\t0\t4"`,
	} {
		_, _, err := indexTables(t, []byte("shard\toffset\tlength\txxh3\n"+line+"\n"))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", line, got, want)
		}
	}
}

// FuzzBinaryIndex: any bytes give an error of one line, or rows that are bounded by the bytes.
func FuzzBinaryIndex(f *testing.F) {
	for _, name := range []string{"index.tsv", "index.parquet", "index-pages.parquet", "index-stream.arrow", "index-file.arrow", "plain.parquet", "stream.arrow"} {
		f.Add(golden(f, name))
	}
	f.Fuzz(func(t *testing.T, index []byte) {
		_, tables, err := indexTables(t, index)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("an error of several lines: %q", err)
		}
		rows := 0
		for _, tb := range tables {
			rows += inShard(t, tb, 1<<63-1)
		}
		if rows > 8*len(index)+1<<20 {
			t.Errorf("%d rows in %d bytes", rows, len(index))
		}
	})
}
