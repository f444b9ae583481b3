package records

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// golden reads a file of testdata, which pyarrow has written.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// shape formats a table: label and parts of each row, with the bytes of a part.
func shape(t *testing.T, tb *Table, file []byte) string {
	t.Helper()
	inShard(t, tb, int64(len(file)))
	var all []string
	for i := range tb.Len() {
		key, label, cells := tb.Row(i, nil)
		var parts []string
		for _, c := range cells {
			parts = append(parts, fmt.Sprintf("%s=%q", tb.Parts()[c.Part], file[c.Off:c.Off+c.Size]))
		}
		all = append(all, fmt.Sprintf("%s%d(%s)", key, label, strings.Join(parts, " ")))
	}
	return strings.Join(all, " ")
}

func indexBytes(t testing.TB, f Format, file []byte) (*Table, error) {
	tb := NewTable(int64(len(file)))
	return tb, f.Index(t.Context(), memory{}, "x", memoryFile(file), tb)
}

func newArrowWith(t testing.TB, s Settings) Format {
	t.Helper()
	f, err := newArrow(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestArrow(t *testing.T) {
	for _, name := range []string{"stream.arrow", "file.arrow"} {
		file := golden(t, name)
		tb, err := indexBytes(t, newArrowWith(t, Settings{}), file)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := range 5 {
			row := fmt.Sprintf("%d(image=%q", i%2, strings.Repeat(fmt.Sprintf("%s/%d", name, i), 20))
			if i%3 == 0 {
				row += fmt.Sprintf(" image.path=%q", fmt.Sprint(i, ".png"))
			}
			ids := ""
			for k := range i {
				ids += string([]byte{byte(k), 0, 0, 0})
			}
			want = append(want, row+fmt.Sprintf(" ids=%q)", ids))
		}
		if got := shape(t, tb, file); got != strings.Join(want, " ") {
			t.Errorf("%s: %s\nwant %s", name, got, strings.Join(want, " "))
		}
		if fmt.Sprint(tb.Classes) != "[cat dog]" {
			t.Errorf("%s: classes %q", name, tb.Classes)
		}
	}
}

// TestArrowColumns: the chosen columns and labels, and errors about them.
func TestArrowColumns(t *testing.T) {
	for _, c := range []struct {
		file, want string
		set        Settings
	}{
		{"stream.arrow", "ids", Settings{Columns: []string{"ids"}}},
		{"stream.arrow", "image image.path", Settings{Columns: []string{"image"}}},
		{"stream.arrow", "image.path", Settings{Columns: []string{"image.path"}}},
		{"stream.arrow", "image image.path ids", Settings{Columns: []string{"ids", "image"}, LabelColumn: "label"}},
		{"views.arrow", "v f", Settings{LabelColumn: "n"}},
		{"stream.arrow", `its column "no": no`, Settings{Columns: []string{"no"}}},
		{"stream.arrow", `it has no column "ids" of integers for labels: choose --label-column of label`, Settings{LabelColumn: "ids"}},
		{"zstd.arrow", `its columns are compressed by ZSTD, so no range of the file has a row: give --stream to decode it once, front to back, or write it without compression, as datasets.save_to_disk does`, Settings{}},
	} {
		tb, err := indexBytes(t, newArrowWith(t, c.set), golden(t, c.file))
		got := strings.Join(tb.Parts(), " ")
		if err != nil {
			got = err.Error()
		}
		if got == `it has no column "no": it has image, image.path, ids` {
			got = `its column "no": no`
		}
		if got != c.want {
			t.Errorf("%s, %+v: %s, want %s", c.file, c.set, got, c.want)
		}
	}
}

// TestArrowMixed: shards with other columns are an error that names both.
func TestArrowMixed(t *testing.T) {
	f := newArrowWith(t, Settings{})
	for i, name := range []string{"stream.arrow", "file.arrow", "views.arrow"} {
		b := golden(t, name)
		err := f.Index(t.Context(), memory{}, name, memoryFile(b), NewTable(int64(len(b))))
		if (err != nil) != (i == 2) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), `its columns are v, f, but those of "stream.arrow" are image, image.path, ids with the labels label: choose`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestArrowCut: a file that ends too early is an error, or has whole batches less.
func TestArrowCut(t *testing.T) {
	for _, name := range []string{"stream.arrow", "file.arrow", "views.arrow"} {
		file := golden(t, name)
		whole, err := indexBytes(t, newArrowWith(t, Settings{}), file)
		if err != nil {
			t.Fatal(err)
		}
		shorter := 0
		for n := range len(file) {
			tb, err := indexBytes(t, newArrowWith(t, Settings{}), file[:n])
			if err == nil && tb.Len() < whole.Len() {
				shorter++
			}
			if err == nil && name == "file.arrow" {
				t.Errorf("%s: %d of %d bytes are taken for a file", name, n, len(file))
			}
		}
		if shorter > 4 {
			t.Errorf("%s: %d cut files were taken for whole ones", name, shorter)
		}
	}
}

// TestArrowEnd: what follows the last row is what the format says. A tail of zeros, as after a loss of power, is not taken for the end.
func TestArrowEnd(t *testing.T) {
	stream, file := golden(t, "stream.arrow"), golden(t, "file.arrow")
	rows := stream[:len(stream)-8] // without the mark of the end
	footer := len(file) - 10 - int(binary.LittleEndian.Uint32(file[len(file)-10:]))
	second := bytes.LastIndex(rows, []byte("\xff\xff\xff\xff")) // the last batch
	join := func(all ...[]byte) []byte { return bytes.Join(all, nil) }
	for what, c := range map[string]struct {
		file []byte
		rows int
		want string
	}{
		"a stream":                            {stream, 5, ""},
		"without a mark":                      {rows, 5, ""},
		"with the mark of old writers":        {join(rows, make([]byte, 4)), 5, ""},
		"with padding":                        {join(stream, make([]byte, 56)), 5, ""},
		"zeros for a mark":                    {join(rows, make([]byte, 68)), 5, ""},
		"something after the mark":            {join(stream, []byte("x")), 0, fmt.Sprintf("it is damaged at byte %d: its rows end there, and 1 bytes follow", len(rows))},
		"two streams":                         {join(stream, stream), 0, fmt.Sprintf("it is damaged at byte %d: its rows end there, and %d bytes follow", len(rows), len(stream))},
		"zeros for the last batch":            {join(rows[:second], make([]byte, len(stream)-second)), 0, fmt.Sprintf("it is damaged at byte %d: its rows end there, and %d bytes follow", second, len(stream)-second-4)},
		"zeros only":                          {make([]byte, 1000), 0, "it has no schema: it is not an Arrow file"},
		"a file":                              {file, 5, ""},
		"a file without a mark":               {join(file[:footer-8], file[footer:]), 5, ""},
		"a file with padding":                 {join(file[:footer], make([]byte, 8), file[footer:]), 5, ""},
		"a file without a footer":             {file[:footer], 0, fmt.Sprintf("it is damaged at byte %d: it ends without its footer", footer)},
		"a file without a footer and mark":    {file[:footer-8], 0, fmt.Sprintf("it is damaged at byte %d: it ends without its footer", footer-8)},
		"a file and a byte":                   {join(file, []byte{0}), 0, fmt.Sprintf("it is damaged at byte %d: it ends without its footer", len(file)+1)},
		"a file with zeros in front":          {join(file[:footer-8], make([]byte, 100), file[footer:]), 0, fmt.Sprintf("it is damaged at byte %d: its rows end there, and 96 bytes follow", footer-8)},
		"a file whose footer is too long":     {join(file[:len(file)-10], []byte("\xff\xff\xff\x7fARROW1")), 0, fmt.Sprintf("it is damaged at byte %d: its footer can't have 2147483647 bytes", len(file)-10)},
		"a file whose footer begins too soon": {join(file[:footer-300], file[footer:]), 0, "its metadata is damaged: copy or write it again (before byte "},
	} {
		tb, err := indexBytes(t, newArrowWith(t, Settings{}), c.file)
		if c.want == "" && (err != nil || tb.Len() != c.rows) || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%s: %d rows, %v\nwant %d, %s", what, tb.Len(), err, c.rows, c.want)
		}
	}
}

// TestArrowDamaged flips each bit of the metadata: an error, or rows in the file.
func TestArrowDamaged(t *testing.T) {
	for _, name := range []string{"stream.arrow", "views.arrow"} {
		file := golden(t, name)
		for at := range file {
			for bit := range 8 {
				b := bytes.Clone(file)
				b[at] ^= 1 << bit
				if tb, err := indexBytes(t, newArrowWith(t, Settings{}), b); err == nil {
					inShard(t, tb, int64(len(b)))
				}
			}
		}
	}
}

// TestArrowNotOne: other files are refused by what they are.
func TestArrowNotOne(t *testing.T) {
	for file, want := range map[string]string{
		"":                                 "it has 0 bytes: it is not an Arrow file, or its writer has not ended: write it again, or leave it out",
		"FEA1xxxxxxxx":                     "it is a Feather file of version 1",
		"PAR1xxxxxxxx":                     "it is a Parquet file: give parquet: and its path",
		"a text that is long enough":       "it is not an Arrow file: check the pattern",
		"ARROW1\x00\x00":                   "it is damaged at byte 8: it ends without its footer",
		"\xff\xff\xff\xff\x00\x00\x00\x00": "it has no schema: it is not an Arrow file",
		"\xff\xff\xff\xff\xf0\x00\x00\x00": "it is not an Arrow file, or it is truncated: check the pattern",
	} {
		if _, err := indexBytes(t, newArrowWith(t, Settings{}), []byte(file)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", file, err, want)
		}
	}
}

// folders is a folder in memory with wildcards at the end.
type folders struct{ memory }

func (f folders) Expand(pattern string) (names []string, err error) {
	before, _, wild := strings.Cut(pattern, "*")
	if !wild {
		return []string{pattern}, nil
	}
	for name := range f.memory {
		if strings.HasPrefix(name, before) && strings.HasSuffix(name, ".arrow") {
			names = append(names, name)
		}
	}
	return names, nil
}

func TestArrowFolders(t *testing.T) {
	for what, c := range map[string]struct {
		files         map[string]string
		pattern, want string
	}{
		"files":         {nil, "a.arrow", "[a.arrow]"},
		"saved":         {map[string]string{"d/state.json": `{"_data_files": [{"filename": "data-1.arrow"}, {"filename": "data-0.arrow"}]}`}, "d", "[d/data-1.arrow d/data-0.arrow]"},
		"a dict":        {map[string]string{"d/dataset_dict.json": `{"splits": ["train", "test"]}`}, "d", `folder "d" has the splits train, test: choose one, such as "arrow:…/d/train"`},
		"cached":        {map[string]string{"d/dataset_info.json": "{}", "d/x-train.arrow": "", "d/cache-1.arrow": ""}, "d", "[d/x-train.arrow]"},
		"cached splits": {map[string]string{"d/dataset_info.json": "{}", "d/x-train.arrow": "", "d/x-test-00000-of-00001.arrow": ""}, "d", `folder "d" has several splits: choose one by its files, such as "arrow:…/d/`},
		"wrong json":    {map[string]string{"d/state.json": "{"}, "d", `"d/state.json": unexpected EOF`},
		"reordered":     {map[string]string{"d/state.json": `{"_indices_data_files": [{"filename": "i"}]}`}, "d", `folder "d" has rows in another order`},
		"something":     {nil, "d", "[d]"},
	} {
		files := folders{memory{}}
		for name, text := range c.files {
			files.memory[name] = []byte(text)
		}
		names, err := newArrowWith(t, Settings{}).Shards(context.Background(), files, c.pattern)
		got := fmt.Sprint(names)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", what, got, c.want)
		}
	}
}

// FuzzArrow: any bytes give an error, or rows in the file, not more than it has bytes.
func FuzzArrow(f *testing.F) {
	for _, name := range []string{"stream.arrow", "file.arrow", "views.arrow", "zstd.arrow"} {
		f.Add(golden(f, name))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		tb, err := indexBytes(t, newArrowWith(t, Settings{}), file)
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("an error of several lines: %q", err)
		}
		if n := inShard(t, tb, int64(len(file))); n > len(file) {
			t.Errorf("%d rows in %d bytes", n, len(file))
		}
		decodeBytes(t, newArrowWith(t, Settings{}).(Decoder), file)
	})
}
