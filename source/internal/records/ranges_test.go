package records

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// memory is a folder in memory.
type memory map[string][]byte

func (m memory) Expand(pattern string) ([]string, error) { return []string{pattern}, nil }

func (m memory) Open(_ context.Context, name string) (File, error) {
	b, ok := m[name]
	if !ok {
		return nil, errors.New("no such file")
	}
	return memoryFile(b), nil
}

func (m memory) Stream(_ context.Context, name string) (io.ReadCloser, int64, error) {
	b, ok := m[name]
	if !ok {
		return nil, 0, errors.New("no such file")
	}
	return io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
}

// memoryFile is a file in memory.
type memoryFile []byte

func (f memoryFile) Size() int64 { return int64(len(f)) }
func (f memoryFile) Piece() int  { return 4096 }
func (f memoryFile) Close()      {}
func (f memoryFile) ReadAt(_ context.Context, dst []byte, off int64) error {
	if off < 0 || off > int64(len(f)) || int64(len(dst)) > int64(len(f))-off {
		return io.ErrUnexpectedEOF
	}
	copy(dst, f[off:])
	return nil
}

// inShard checks that every row of a table is in its shard, and returns their number.
func inShard(t *testing.T, tb *Table, size int64) int {
	t.Helper()
	for i := range tb.Len() {
		_, _, cells := tb.Row(i, nil)
		for _, c := range cells {
			if c.Off < 0 || c.Size < 0 || c.Off > size || c.Size > size-c.Off || c.Part >= len(tb.Parts()) {
				t.Fatalf("row %d: %+v in %d bytes", i, c, size)
			}
		}
	}
	return tb.Len()
}

// FuzzRanges: any bytes as an index give an error, or rows that are in their shards, not more than the index has lines.
func FuzzRanges(f *testing.F) {
	for _, s := range []string{
		"shard\toffset\tlength\na\t0\t4\nb\t1\t2\n",
		"name\tshard\toffset\tlength\tpart\tlabel\nx\ta\t0\t4\timg\t7\nx\ta\t4\t4\ttxt\t7\n",
		"shard\toffset\tlength\r\na\t9223372036854775807\t4294967295\r\n",
		"\ufeffshard\toffset\tlength",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, index []byte) {
		files := memory{"index.tsv": index, "a": make([]byte, 1000)}
		format, err := newRanges(Settings{})
		if err != nil {
			t.Fatal(err)
		}
		shards, err := format.Shards(t.Context(), files, "index.tsv")
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of several lines: %q", err)
			}
			return
		}
		rows := 0
		for _, name := range shards {
			tb := NewTable(1000)
			if err := format.Index(t.Context(), files, name, memoryFile(files["a"]), tb); err == nil {
				rows += inShard(t, tb, 1000)
			}
		}
		if lines := bytes.Count(index, []byte("\n")); rows > lines && !isParquetIndex(string(index)) && !isArrowIndex(string(index)) {
			t.Errorf("%d rows in %d lines", rows, lines)
		}
	})
}
