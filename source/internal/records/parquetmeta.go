package records

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Types and codecs of parquet.thrift.
const (
	parquetInt32      = 1
	parquetInt64      = 2
	parquetFloat      = 4
	parquetDouble     = 5
	parquetBytes      = 6
	parquetFixedBytes = 7

	parquetOptional = 1
	parquetRepeated = 2
)

var parquetCodecs = []string{"UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"}

func codecName(codec int) string {
	if codec >= 0 && codec < len(parquetCodecs) {
		return parquetCodecs[codec]
	}
	return fmt.Sprintf("codec %d", codec)
}

const mostFooter = 256 << 20 // bytes

// parquetLeaf is a column of a Parquet schema with values.
type parquetLeaf struct {
	path        []string
	kind, width int // width: of fixed bytes
	decimal     bool
	unsigned    bool
	text        bool
	defs, reps  int  // maximum levels: the number of optional or repeated fields, and of repeated fields, on the path
	listed, at  int  // of a list: the definition level of its elements, and their position on the path
	wide        int  // bytes of a number; 0: it is none
	joint       bool // a repeated group above it has more columns, as a map has
}

// bytes returns the number of bytes of a plain value; 0: it has its length in front.
func (l parquetLeaf) bytes() int {
	switch l.kind {
	case parquetInt32, parquetFloat:
		return 4
	case parquetInt64, parquetDouble:
		return 8
	case parquetFixedBytes:
		return l.width
	}
	return 0
}

// numberBytes returns the bytes of a number of a type; 0: it is not a number.
func numberBytes(kind, converted int) int {
	const (
		uint8, uint16, uint32, uint64 = 11, 12, 13, 14
		int8, int16, int32, int64     = 15, 16, 17, 18
	)
	switch {
	case kind == parquetInt32 && (converted == uint8 || converted == int8):
		return 1
	case kind == parquetInt32 && (converted == uint16 || converted == int16):
		return 2
	case kind == parquetInt32 && (converted < 0 || converted == uint32 || converted == int32), kind == parquetFloat:
		return 4
	case kind == parquetInt64 && (converted < 0 || converted == uint64 || converted == int64), kind == parquetDouble:
		return 8
	}
	return 0
}

// parquetChunk is a column of a row group.
type parquetChunk struct {
	codec       int
	values      int64
	start, size int64 // of its pages in the file
	other       bool  // it is in another file
}

type parquetGroup struct {
	rows    int64
	columns []parquetChunk
}

// parquetMeta is the footer of a file.
type parquetMeta struct {
	leaves   []parquetLeaf
	groups   []parquetGroup
	features features
	names    int // bytes that the names of further columns may have together
}

var errDamagedParquet = errors.New("its metadata is damaged: copy or write it again")

// readParquetMeta reads the footer of a file.
func readParquetMeta(ctx context.Context, o Object) (*parquetMeta, error) {
	size := o.Size()
	if size < 12 {
		return nil, fmt.Errorf("it has %d bytes: it is not a Parquet file, or its writer has not ended: write it again, or leave it out", size)
	}
	var end [8]byte
	if err := o.ReadAt(ctx, end[:], size-8); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(end[:]))
	switch magic := string(end[4:]); {
	case magic == "PARE":
		return nil, errors.New("it is encrypted: write it without encryption")
	case magic != "PAR1":
		var begin [4]byte
		if err := o.ReadAt(ctx, begin[:], 0); err != nil {
			return nil, err
		}
		if string(begin[:]) == "PAR1" {
			return nil, errors.New("it is truncated: its end is missing: copy or write it again")
		}
		return nil, errors.New("it is not a Parquet file: check the pattern")
	case n > size-12 || n > mostFooter:
		return nil, fmt.Errorf("%w (a footer of %d bytes)", errDamagedParquet, n)
	}
	b := make([]byte, n)
	if err := o.ReadAt(ctx, b, size-8-n); err != nil {
		return nil, err
	}
	return parseParquetMeta(b, size)
}

// parseParquetMeta parses the footer of a file of a size.
func parseParquetMeta(b []byte, size int64) (*parquetMeta, error) {
	t := &thrift{b: b}
	m := &parquetMeta{}
	var elements []parquetElement
	rows := int64(0)
	t.fields(func(id int, kind byte) bool {
		switch {
		case id == 2 && kind == thriftList:
			t.list(func(byte) { elements = append(elements, parseElement(t)) })
		case id == 3 && kind == thriftI64:
			rows = t.integer()
		case id == 4 && kind == thriftList:
			t.list(func(byte) { m.groups = append(m.groups, parseGroup(t)) })
		case id == 5 && kind == thriftList:
			t.list(func(byte) { m.keyValue(t) })
		default:
			return false
		}
		return true
	})
	if t.bad || len(elements) == 0 {
		return nil, errDamagedParquet
	}
	m.names = len(b) + mostKey // each row group has the names of all columns
	rest := elements[1:]
	for range elements[0].children {
		var err error
		if rest, err = m.grow(rest, parquetLeaf{}, 0); err != nil {
			return nil, err
		}
	}
	return m, m.check(rows, size)
}

// parquetElement is a field of the schema.
type parquetElement struct {
	name                                             string
	kind, width, repetition, children, convertedType int
}

func parseElement(t *thrift) (e parquetElement) {
	e.kind, e.convertedType = -1, -1
	t.fields(func(id int, kind byte) bool {
		switch {
		case id == 1 && kind == thriftI32:
			e.kind = int(int32(t.integer()))
		case id == 2 && kind == thriftI32:
			e.width = int(int32(t.integer()))
		case id == 3 && kind == thriftI32:
			e.repetition = int(int32(t.integer()))
		case id == 4 && kind == thriftBinary:
			e.name = t.text()
		case id == 5 && kind == thriftI32:
			e.children = int(int32(t.integer()))
		case id == 6 && kind == thriftI32:
			e.convertedType = int(int32(t.integer()))
		default:
			return false
		}
		return true
	})
	if e.children < 0 || e.children > len(t.b) || e.width < 0 {
		t.bad = true
	}
	return e
}

func parseGroup(t *thrift) (g parquetGroup) {
	t.fields(func(id int, kind byte) bool {
		switch {
		case id == 1 && kind == thriftList:
			t.list(func(byte) { g.columns = append(g.columns, parseChunk(t)) })
		case id == 3 && kind == thriftI64:
			g.rows = t.integer()
		default:
			return false
		}
		return true
	})
	return g
}

func parseChunk(t *thrift) (c parquetChunk) {
	t.fields(func(id int, kind byte) bool {
		switch {
		case id == 1 && kind == thriftBinary:
			c.other = t.text() != ""
		case id == 3 && kind == thriftStruct:
			c.parse(t)
		default:
			return false
		}
		return true
	})
	return c
}

func (c *parquetChunk) parse(t *thrift) {
	data, dictionary := int64(0), int64(0)
	t.fields(func(id int, kind byte) bool {
		switch {
		case id == 4 && kind == thriftI32:
			c.codec = int(int32(t.integer()))
		case id == 5 && kind == thriftI64:
			c.values = t.integer()
		case id == 7 && kind == thriftI64:
			c.size = t.integer()
		case id == 9 && kind == thriftI64:
			data = t.integer()
		case id == 11 && kind == thriftI64:
			dictionary = t.integer()
		default:
			return false
		}
		return true
	})
	if c.start = data; dictionary > 0 && dictionary < data {
		c.start = dictionary
	}
}

func (m *parquetMeta) keyValue(t *thrift) {
	key, value := "", ""
	t.fields(func(id int, kind byte) bool {
		switch {
		case id == 1 && kind == thriftBinary:
			key = t.text()
		case id == 2 && kind == thriftBinary:
			value = t.text()
		default:
			return false
		}
		return true
	})
	if key == featuresKey && !t.bad {
		m.features = parseFeatures(value)
	}
}

// grow adds the leaves of the first element, and returns the elements after it and its children.
func (m *parquetMeta) grow(rest []parquetElement, above parquetLeaf, depth int) ([]parquetElement, error) {
	if len(rest) == 0 || depth > mostDepth || len(m.leaves) > mostFields {
		return nil, errDamagedParquet
	}
	e := rest[0]
	rest = rest[1:]
	l := above
	l.path = append(above.path[:len(above.path):len(above.path)], e.name)
	switch e.repetition {
	case parquetOptional:
		l.defs++
	case parquetRepeated:
		l.defs, l.reps = l.defs+1, l.reps+1
		l.listed, l.at = l.defs, len(above.path)
		l.joint = l.joint || e.children > 1
	}
	if e.children == 0 {
		for _, name := range l.path {
			m.names -= len(name) + 1
		}
		if m.names < 0 {
			return nil, fmt.Errorf("%w (the names of its columns are longer than they can be)", errDamagedParquet)
		}
		const utf8, decimal = 0, 5
		l.kind, l.width, l.decimal, l.text = e.kind, e.width, e.convertedType == decimal, e.convertedType == utf8
		l.unsigned = e.convertedType >= 11 && e.convertedType <= 14 // uint8 to uint64
		l.wide = numberBytes(e.kind, e.convertedType)
		m.leaves = append(m.leaves, l)
		return rest, nil
	}
	for range e.children {
		var err error
		if rest, err = m.grow(rest, l, depth+1); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// check bounds all numbers of the footer by the size of the file.
func (m *parquetMeta) check(rows, size int64) error {
	most := 8*size + 1<<20 // a row that is null takes less than a bit, but a file of nothing else is no use
	total := int64(0)
	for i, g := range m.groups {
		if g.rows < 0 || g.rows > most || len(g.columns) != len(m.leaves) {
			return fmt.Errorf("%w (row group %d has %d rows and %d of %d columns)", errDamagedParquet, i, g.rows, len(g.columns), len(m.leaves))
		}
		if total += g.rows; total > most {
			return fmt.Errorf("%w (it claims %d rows in %d bytes)", errDamagedParquet, total, size)
		}
		for k, c := range g.columns {
			flat := m.leaves[k].reps == 0
			if c.values == 0 && g.rows == 0 { // a writer may give any position, and a page without values
				g.columns[k].start, g.columns[k].size = 4, 0
				continue
			}
			if c.start < 4 || c.size < 0 || c.start > size || c.size > size-c.start || c.values < 0 || flat && c.values != g.rows {
				if c.other {
					return errors.New("its columns are in other files: write it in one file")
				}
				return fmt.Errorf("%w (column %s of row group %d has %d values in %d bytes from %d on)", errDamagedParquet, clip(strings.Join(m.leaves[k].path, ".")), i, c.values, c.size, c.start)
			}
		}
	}
	if rows != total || rows > math.MaxUint32 {
		return fmt.Errorf("%w (%d rows, and %d in its row groups)", errDamagedParquet, rows, total)
	}
	return nil
}
