package source_test

import (
	"encoding/binary"
	"slices"
)

// batchRows is the number of rows of a record batch or row group in the Arrow and Parquet files of tests.
const batchRows = 4

// asArrow writes the samples as the column data of an Arrow stream.
func asArrow(name string, samples [][]byte) (map[string][]byte, string, []string, [][]byte) {
	b := arrowMessage(nil, 1, 0, func(w *flatWriter) int { // Schema: little-endian, and its fields
		return w.table(int16(0), func() int {
			return w.offsets(func() int { // Field: name, nullable, type, no dictionary, children
				return w.table(func() int { return w.text("data") }, int8(0), int8(4), func() int { return w.table() }, nil, func() int { return w.offsets() })
			})
		})
	})
	for rows := range slices.Chunk(samples, batchRows) {
		offsets, values := binary.LittleEndian.AppendUint32(nil, 0), []byte(nil)
		for _, s := range rows {
			values = append(values, s...)
			offsets = binary.LittleEndian.AppendUint32(offsets, uint32(len(values)))
		}
		at := int64(padded(len(offsets)))
		n := int64(len(rows))
		b = arrowMessage(b, 3, int(at)+padded(len(values)), func(w *flatWriter) int { // RecordBatch: rows, nodes, buffers of nulls, offsets and values
			return w.table(n, func() int { return w.pairs(n, 0) }, func() int { return w.pairs(0, 0, 0, int64(len(offsets)), at, int64(len(values))) })
		})
		b = append(append(b, offsets...), make([]byte, int(at)-len(offsets))...)
		b = append(append(b, values...), make([]byte, padded(len(values))-len(values))...)
	}
	b = append(b, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)
	return map[string][]byte{name + ".arrow": b}, name + ".arrow", numbered(name+".arrow", len(samples)), samples
}

func padded(n int) int { return (n + 7) &^ 7 }

// arrowMessage appends the metadata of a message.
func arrowMessage(b []byte, kind int8, body int, header func(*flatWriter) int) []byte {
	w := &flatWriter{b: make([]byte, 4)}
	root := w.table(int16(4), kind, func() int { return header(w) }, int64(body))
	binary.LittleEndian.PutUint32(w.b, uint32(root))
	w.align(8, 0)
	b = binary.LittleEndian.AppendUint32(append(b, 0xff, 0xff, 0xff, 0xff), uint32(len(w.b)))
	return append(b, w.b...)
}

// flatWriter writes a flatbuffer. Each field of a table takes 8 bytes.
type flatWriter struct{ b []byte }

func (w *flatWriter) align(n, rest int) {
	for len(w.b)%n != rest {
		w.b = append(w.b, 0)
	}
}

func (w *flatWriter) u32(n int) { w.b = binary.LittleEndian.AppendUint32(w.b, uint32(n)) }

// table writes a table, and then its children. A field is a number, a function that writes a child and returns its position, or nil.
func (w *flatWriter) table(fields ...any) int {
	head := 4 + 2*len(fields)
	w.align(2, 0)
	for (len(w.b)+head)%8 != 4 {
		w.b = append(w.b, 0, 0)
	}
	w.b = binary.LittleEndian.AppendUint16(w.b, uint16(head))
	w.b = binary.LittleEndian.AppendUint16(w.b, uint16(4+8*len(fields)))
	for i, f := range fields {
		at := 0
		if f != nil {
			at = 4 + 8*i
		}
		w.b = binary.LittleEndian.AppendUint16(w.b, uint16(at))
	}
	table := len(w.b)
	w.u32(head)
	for _, f := range fields {
		n := int64(0)
		switch f := f.(type) {
		case int8:
			n = int64(f)
		case int16:
			n = int64(f)
		case int64:
			n = f
		}
		w.b = binary.LittleEndian.AppendUint64(w.b, uint64(n))
	}
	for i, f := range fields {
		if child, ok := f.(func() int); ok {
			w.refer(table+4+8*i, child())
		}
	}
	return table
}

func (w *flatWriter) refer(from, to int) {
	binary.LittleEndian.PutUint32(w.b[from:], uint32(to-from))
}

func (w *flatWriter) text(s string) int {
	w.align(4, 0)
	at := len(w.b)
	w.u32(len(s))
	w.b = append(append(w.b, s...), 0)
	return at
}

// offsets writes a vector of tables.
func (w *flatWriter) offsets(children ...func() int) int {
	w.align(4, 0)
	at := len(w.b)
	w.u32(len(children))
	w.b = append(w.b, make([]byte, 4*len(children))...)
	for i, child := range children {
		w.refer(at+4+4*i, child())
	}
	return at
}

// pairs writes a vector of structs of two numbers.
func (w *flatWriter) pairs(numbers ...int64) int {
	w.align(8, 4)
	at := len(w.b)
	w.u32(len(numbers) / 2)
	for _, n := range numbers {
		w.b = binary.LittleEndian.AppendUint64(w.b, uint64(n))
	}
	return at
}

// asParquet writes the samples as the column data of a Parquet file, uncompressed and plain.
func asParquet(name string, samples [][]byte) (map[string][]byte, string, []string, [][]byte) {
	b := []byte("PAR1")
	var groups [][]byte
	for rows := range slices.Chunk(samples, batchRows) {
		var values []byte
		for _, s := range rows {
			values = append(binary.LittleEndian.AppendUint32(values, uint32(len(s))), s...)
		}
		head := thriftStruct(thriftInt(1, 5, 0), thriftInt(2, 5, len(values)), thriftInt(3, 5, len(values)),
			thriftField{5, 12, thriftStruct(thriftInt(1, 5, len(rows)), thriftInt(2, 5, 0), thriftInt(3, 5, 3), thriftInt(4, 5, 3))})
		size := len(head) + len(values)
		meta := thriftStruct(thriftInt(1, 5, 6), thriftList(2, 5, zigzag(0)), thriftList(3, 8, thriftText("data")), thriftInt(4, 5, 0), thriftInt(5, 6, len(rows)),
			thriftInt(6, 6, size), thriftInt(7, 6, size), thriftInt(9, 6, len(b)))
		groups = append(groups, thriftStruct(thriftList(1, 12, thriftStruct(thriftInt(2, 6, len(b)), thriftField{3, 12, meta})), thriftInt(2, 6, size), thriftInt(3, 6, len(rows))))
		b = append(append(b, head...), values...)
	}
	root := thriftStruct(thriftField{4, 8, thriftText("schema")}, thriftInt(5, 5, 1))
	column := thriftStruct(thriftInt(1, 5, 6), thriftInt(3, 5, 0), thriftField{4, 8, thriftText("data")})
	footer := thriftStruct(thriftInt(1, 5, 1), thriftList(2, 12, root, column), thriftInt(3, 6, len(samples)), thriftList(4, 12, groups...))
	b = append(binary.LittleEndian.AppendUint32(append(b, footer...), uint32(len(footer))), "PAR1"...)
	return map[string][]byte{name + ".parquet": b}, name + ".parquet", numbered(name+".parquet", len(samples)), samples
}

// A thriftField is a field of a struct in Thrift's compact protocol: its number, its type and its bytes.
type thriftField struct {
	id, kind byte
	data     []byte
}

func thriftStruct(fields ...thriftField) (b []byte) {
	last := byte(0)
	for _, f := range fields {
		b = append(append(b, (f.id-last)<<4|f.kind), f.data...)
		last = f.id
	}
	return append(b, 0)
}

func zigzag(n int) []byte { return binary.AppendVarint(nil, int64(n)) }

func thriftInt(id, kind byte, n int) thriftField { return thriftField{id, kind, zigzag(n)} }

func thriftText(s string) []byte { return append(binary.AppendUvarint(nil, uint64(len(s))), s...) }

func thriftList(id, kind byte, elements ...[]byte) thriftField {
	b := []byte{0xf0 | kind}
	b = binary.AppendUvarint(b, uint64(len(elements)))
	for _, e := range elements {
		b = append(b, e...)
	}
	return thriftField{id, 9, b}
}
