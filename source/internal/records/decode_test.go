package records

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// decodeBytes decodes a file, up to some MiB, and checks that all samples are inside the decoded bytes.
func decodeBytes(t *testing.T, f Decoder, file []byte) (*Table, []byte, error) {
	t.Helper()
	tb, out := NewTable(-1), &limitedWriter{}
	err := f.Decode(t.Context(), "x", memoryFile(file), tb, out)
	if err != nil && strings.Contains(err.Error(), "\n") {
		t.Errorf("an error of several lines: %q", err)
	}
	if err == nil {
		inShard(t, tb, int64(out.Len()))
		if tb.End() > int64(out.Len()) {
			t.Errorf("samples end at %d of %d", tb.End(), out.Len())
		}
	}
	return tb, out.Bytes(), err
}

var errLimited = errors.New("enough")

type limitedWriter struct{ bytes.Buffer }

func (w *limitedWriter) Write(b []byte) (int, error) {
	if w.Len()+len(b) > 16<<20 {
		return 0, errLimited
	}
	return w.Buffer.Write(b)
}

// TestDecode compares decoded rows with what make.py wrote.
func TestDecode(t *testing.T) {
	for name, f := range map[string]Format{"snappy.parquet": newParquetWith(t, Settings{}), "plain.parquet": newParquetWith(t, Settings{}),
		"dictionary.parquet": newParquetWith(t, Settings{}), "zstd.arrow": newArrowWith(t, Settings{}), "file.arrow": newArrowWith(t, Settings{})} {
		tb, out, err := decodeBytes(t, f.(Decoder), golden(t, name))
		if err != nil || tb.Len() < 5 {
			t.Fatalf("%s: %d rows: %v", name, tb.Len(), err)
		}
		if classes := strings.Join(tb.Classes, " "); classes != "cat dog" {
			t.Errorf("%s: classes %s", name, classes)
		}
		for i := range tb.Len() {
			_, label, cells := tb.Row(i, nil)
			got := map[string]string{}
			for _, c := range cells {
				got[tb.Parts()[c.Part]] = string(out[c.Off:][:c.Size])
			}
			want := map[string]string{"image": strings.Repeat(fmt.Sprintf("%s/%d", name, i), 20), "ids": ""}
			if i%3 == 0 {
				want["image.path"] = fmt.Sprintf("%d.png", i)
			}
			for v := range i {
				want["ids"] += string(binary.LittleEndian.AppendUint32(nil, uint32(v)))
			}
			if int(label) != i%2 || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: row %d: label %d, %q, want %q", name, i, label, got, want)
			}
		}
	}
}

// TestDecodeDamaged cuts files, and flips a bit of each byte: an error, or samples inside the decoded bytes.
func TestDecodeDamaged(t *testing.T) {
	for name, f := range map[string]func() Format{"snappy.parquet": func() Format { return newParquetWith(t, Settings{}) }, "zstd.arrow": func() Format { return newArrowWith(t, Settings{}) }} {
		file := golden(t, name)
		for at := range file {
			b := bytes.Clone(file)
			b[at] ^= 1 << (at % 8)
			decodeBytes(t, f().(Decoder), b)
		}
		for n := 0; n < len(file)-8; n += 3 { // a stream of Arrow may lack its mark of the end
			if _, _, err := decodeBytes(t, f().(Decoder), file[:n]); err == nil && name != "zstd.arrow" {
				t.Errorf("%s: %d of %d bytes are decoded", name, n, len(file))
			}
		}
	}
}

// TestUnpackBlock: sizes that can't be are errors before memory is allocated for them.
func TestUnpackBlock(t *testing.T) {
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	data := bytes.Repeat([]byte("abc"), 1000)
	zs, sn := e.EncodeAll(data, nil), snappy.Encode(nil, data)
	for _, c := range []struct {
		codec string
		b     []byte
		size  int64
		want  string
	}{
		{"ZSTD", zs, 3000, ""},
		{"SNAPPY", sn, 3000, ""},
		{"ZSTD", zs, 2999, "more bytes than it says"},
		{"ZSTD", zs, 3001, "unexpected EOF"},
		{"SNAPPY", sn, 2999, "it has 3000 bytes, want 2999"},
		{"ZSTD", zs, 10 << 30, "at most"},
		{"SNAPPY", sn, 1 << 29, "can't be"},
		{"GZIP", sn, 1 << 29, "can't be"},
		{"LZ4_RAW", sn, 1 << 29, "can't be"},
		{"LZ4_FRAME", sn, 1 << 29, "can't be"},
		{"ZSTD", zs, -1, "at most"},
		{"LZO", zs, 10, "not supported"},
		{"BROTLI", []byte("?"), 10, "BROTLI"},
	} {
		got, err := unpackBlock(c.codec, c.b, c.size, nil)
		if c.want == "" && (err != nil || !bytes.Equal(got, data)) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, %d bytes: %v", c.codec, c.size, err)
		}
	}
}

// FuzzDecodePage fuzzes the values of a page, in each encoding.
func FuzzDecodePage(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0, 'a', 'b', 'c'}, uint8(0), uint8(0))
	f.Add([]byte{128, 1, 4, 2, 4, 0, 0, 0, 0, 0, 'a', 'b', 'c', 'd'}, uint8(1), uint8(1))
	for i := range uint8(8) {
		f.Add([]byte{8, 1, 2, 4, 128, 1, 4, 2, 4, 0, 0, 0, 0, 0, 'a', 'b', 'c', 'd'}, i, i)
	}
	encodings := []int{encodingPlain, encodingDeltaLengths, encodingDeltaBytes, encodingDictionary, encodingDelta, encodingSplit}
	kinds := []parquetLeaf{{kind: parquetBytes}, {kind: parquetFixedBytes, width: 3}, {kind: parquetInt32}, {kind: parquetDouble}}
	f.Fuzz(func(t *testing.T, b []byte, encoding, kind uint8) {
		leaf := kinds[int(kind)%len(kinds)]
		var v parquetValues
		page := parquetPage{encoding: encodings[int(encoding)%len(encodings)], values: 1000}
		if v.begin(leaf, page, b, [][]byte{[]byte("abc"), nil}) != nil {
			return
		}
		for range 1000 {
			one, err := v.next()
			if err != nil {
				return
			}
			if w := leaf.bytes(); w > 0 && page.encoding != encodingDictionary && len(one) != w {
				t.Fatalf("%d bytes, want %d", len(one), w)
			}
		}
	})
}
