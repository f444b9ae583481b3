package records

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"
)

// flatBuilder writes a flatbuffer from its end to its beginning, so that positions refer to what is there already.
type flatBuilder struct{ b []byte } // reversed pieces: the buffer from a position to its end

// put puts bytes in front, and returns their position from the end.
func (w *flatBuilder) put(b ...byte) int {
	for (len(w.b)+len(b))%8 != 0 {
		b = append(b, 0)
	}
	w.b = append(b, w.b...)
	return len(w.b)
}

func (w *flatBuilder) text(s string) int {
	return w.put(append(binary.LittleEndian.AppendUint32(nil, uint32(len(s))), s...)...)
}

// refs puts a vector of n positions, which all refer to one table.
func (w *flatBuilder) refs(to, n int) int {
	size := (4 + 4*n + 7) / 8 * 8
	at := len(w.b) + size // from the end
	b := binary.LittleEndian.AppendUint32(nil, uint32(n))
	for k := range n {
		b = binary.LittleEndian.AppendUint32(b, uint32(at-4-4*k-to))
	}
	return w.put(b...)
}

// table puts a table whose fields refer to what was put before (a position), or are a number (negative, minus 1).
func (w *flatBuilder) table(fields ...int) int {
	head := 4 + 2*len(fields)
	size := head + 4 + 4*len(fields)
	size = (size + 7) / 8 * 8
	at := len(w.b) + size - head // of the table, from the end
	b := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, uint16(head)), uint16(4+4*len(fields)))
	for k, f := range fields {
		off := 4 + 4*k
		if f == 0 {
			off = 0
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(off))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(head))
	for k, f := range fields {
		v := uint32(at - 4 - 4*k - f)
		if f < 0 {
			v = uint32(-f - 1)
		}
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	w.put(b...)
	return at
}

// schema parses a schema with a vector of fields and one of metadata.
func (w *flatBuilder) schema(fields, pairs int) (*arrowSchema, error) {
	at := w.table(0, fields, pairs)
	f := &flat{b: w.b}
	return parseArrowSchema(f, f.table(len(w.b)-at))
}

// TestArrowSharedTexts: several positions in a schema that refer to one table or text cost no more memory than the schema is long, or a few MiB.
func TestArrowSharedTexts(t *testing.T) {
	const binaryType = -arrowBinary - 1
	for _, c := range []struct {
		what, want string
		parse      func(w *flatBuilder) (*arrowSchema, error)
	}{
		{"a plain schema", "", func(w *flatBuilder) (*arrowSchema, error) {
			return w.schema(w.refs(w.table(w.text("a"), 0, binaryType), 1000), w.refs(w.table(w.text(featuresKey), w.text("{}")), 1))
		}},
		{"one field, again and again", "its metadata is damaged", func(w *flatBuilder) (*arrowSchema, error) {
			return w.schema(w.refs(w.table(w.text(strings.Repeat("n", 1<<20)), 0, binaryType), mostFields), 0)
		}},
		{"too many fields", "it has more than 10000 columns", func(w *flatBuilder) (*arrowSchema, error) {
			return w.schema(w.refs(w.table(w.text("a"), 0, binaryType), 4<<20), 0)
		}},
		{"fields in a field with a long name", "the names of its columns have more than 16 MiB", func(w *flatBuilder) (*arrowSchema, error) {
			inside := w.refs(w.table(w.text("a"), 0, binaryType), 9000)
			return w.schema(w.refs(w.table(w.text(strings.Repeat("n", 1<<20)), 0, -arrowStruct-1, 0, 0, inside), 1), 0)
		}},
		{"one pair of metadata, again and again", "its metadata is damaged", func(w *flatBuilder) (*arrowSchema, error) {
			return w.schema(0, w.refs(w.table(w.text(featuresKey+strings.Repeat("x", 1<<20)), w.text("x")), 100))
		}},
		{"features, again and again", "", func(w *flatBuilder) (*arrowSchema, error) {
			return w.schema(0, w.refs(w.table(w.text(featuresKey), w.text(`{"info": {"features": {"a": {"_type": "`+strings.Repeat("x", 1<<20)+`"}}}}`)), 1000))
		}},
		{"too many pairs", "it has more than 10000 pairs of metadata", func(w *flatBuilder) (*arrowSchema, error) {
			return w.schema(0, w.refs(w.table(w.text("a"), w.text("b")), mostFields+1))
		}},
	} {
		w := &flatBuilder{}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := c.parse(w)
		runtime.ReadMemStats(&after)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
		if n := (after.TotalAlloc - before.TotalAlloc) >> 20; n > 120 {
			t.Errorf("%s: %d MiB of memory were taken", c.what, n)
		}
	}
}
