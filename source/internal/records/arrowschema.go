package records

import (
	"errors"
	"fmt"
)

// Types of Arrow's Schema.fbs.
const (
	arrowNull = iota + 1
	arrowInt
	arrowFloat
	arrowBinary
	arrowUtf8
	arrowBool
	arrowDecimal
	arrowDate
	arrowTime
	arrowTimestamp
	arrowInterval
	arrowList
	arrowStruct
	arrowUnion
	arrowFixedBinary
	arrowFixedList
	arrowMap
	arrowDuration
	arrowLargeBinary
	arrowLargeUtf8
	arrowLargeList
	arrowRunEnd
	arrowBinaryView
	arrowUtf8View
	arrowListView
	arrowLargeListView
)

const (
	mostFields = 10_000 // of a schema, in all depths
	mostDepth  = 64
	mostNames  = 16 << 20 // bytes of the names of all columns, each with the names of those that it is in
)

// arrowField is a column of an Arrow schema, with the numbers of its node and buffers in a record batch. Nodes and buffers are numbered in the
// order of the fields, each before its children.
type arrowField struct {
	name     string
	kind     int
	width    int // bytes of a value, or of a list of fixed size; 0: not fixed
	signed   bool
	unit     int  // of times: 0 seconds to 3 nanoseconds
	encoded  bool // by a dictionary: the values are the numbers of its words
	children []*arrowField

	dictionary int64       // its id
	values     *arrowField // of the dictionary, in batches of its own

	node, buffer, views int // numbers; views: of fields with a variable number of buffers before it
}

// arrowSchema is what a file says about its columns.
type arrowSchema struct {
	fields   []*arrowField
	features features

	count, names, nodes, buffers, views int
}

// parseArrowSchema parses the header of a message of a schema.
func parseArrowSchema(f *flat, schema flatTable) (*arrowSchema, error) {
	s := &arrowSchema{}
	if f.fieldI16(schema, 0) != 0 {
		return nil, errors.New("its numbers are big-endian: write it on a machine that is not")
	}
	pairs, found := f.tables(schema, 2), -1
	if len(pairs) > mostFields {
		return nil, fmt.Errorf("it has more than %d pairs of metadata about its columns: write it with less", mostFields)
	}
	for i, kv := range pairs {
		if f.text(kv, 0) == featuresKey {
			found = i
		}
	}
	if found >= 0 {
		s.features = parseFeatures(f.text(pairs[found], 1))
	}
	for _, t := range f.tables(schema, 1) {
		field, err := s.field(f, t, 0, 0)
		if err != nil {
			return nil, err
		}
		s.fields = append(s.fields, field)
	}
	if f.bad {
		return nil, errDamagedArrow
	}
	return s, nil
}

var errDamagedArrow = errors.New("its metadata is damaged: copy or write it again")

// field parses a field and its children. above is the length of the names of the fields that it is in.
func (s *arrowSchema) field(f *flat, t flatTable, depth, above int) (*arrowField, error) {
	if s.count++; s.count > mostFields || depth > mostDepth || f.bad {
		return nil, fmt.Errorf("it has more than %d columns, or %d inside each other, or its metadata is damaged", mostFields, mostDepth)
	}
	a := &arrowField{name: f.text(t, 0), kind: f.fieldU8(t, 2), node: s.nodes, buffer: s.buffers, views: s.views}
	above += len(a.name) + 1
	if s.names += above; s.names > mostNames {
		return nil, fmt.Errorf("the names of its columns have more than %d MiB: write it with shorter ones", mostNames>>20)
	}
	kind, _ := f.sub(t, 3)
	if d, ok := f.sub(t, 4); ok {
		a.dictionary, a.values = f.fieldI64(d, 0), &arrowField{name: a.name, kind: a.kind}
		a.encoded, a.kind = true, arrowInt
		if kind, ok = f.sub(d, 1); !ok {
			kind = flatTable{}
		}
	}
	s.nodes++
	switch a.kind {
	case arrowNull, arrowRunEnd:
	case arrowBinary, arrowUtf8, arrowLargeBinary, arrowLargeUtf8, arrowListView, arrowLargeListView:
		s.buffers += 3
	case arrowInt, arrowFloat, arrowBool, arrowDecimal, arrowDate, arrowTime, arrowTimestamp, arrowInterval, arrowDuration, arrowFixedBinary, arrowList, arrowLargeList, arrowMap:
		s.buffers += 2
	case arrowFixedList, arrowStruct:
		s.buffers++
	case arrowUnion:
		if s.buffers++; f.fieldI16(kind, 0) == 1 { // dense
			s.buffers++
		}
	case arrowBinaryView, arrowUtf8View:
		s.views++
		s.buffers += 2 // and those that each batch counts
	default:
		return nil, fmt.Errorf("its column %s has an unknown type %d: this lcache is too old for it, or its metadata is damaged", clip(a.name), a.kind)
	}
	a.measure(f, kind)
	if a.encoded {
		return a, nil // the children are in the dictionary
	}
	for _, child := range f.tables(t, 5) {
		c, err := s.field(f, child, depth+1, above)
		if err != nil {
			return nil, err
		}
		a.children = append(a.children, c)
	}
	if f.bad {
		return nil, errDamagedArrow
	}
	return a, nil
}

// measure sets the width of a type.
func (a *arrowField) measure(f *flat, kind flatTable) {
	switch a.kind {
	case arrowInt:
		a.width, a.signed = f.fieldI32(kind, 0)/8, f.fieldU8(kind, 1) != 0
		if kind == (flatTable{}) { // the default of a dictionary's indices
			a.width, a.signed = 4, true
		}
	case arrowFloat:
		a.width = 2 << min(max(f.fieldI16(kind, 0), 0), 2)
	case arrowFixedBinary, arrowFixedList:
		a.width = f.fieldI32(kind, 0)
	case arrowDate, arrowTimestamp, arrowDuration:
		a.width = 8
		if a.kind == arrowDate && f.field(kind, 0) != 0 && f.fieldI16(kind, 0) == 0 {
			a.width = 4
		}
		if a.unit = f.fieldI16(kind, 0); a.kind == arrowDuration && f.field(kind, 0) == 0 {
			a.unit = 1
		}
	}
	if a.width < 0 || a.kind == arrowInt && a.width != 1 && a.width != 2 && a.width != 4 && a.width != 8 {
		f.bad = true
	}
}

// arrowLeaf is a column that can be a part, and the fields above it, whose nulls are its own.
type arrowLeaf struct {
	field *arrowField
	above []*arrowField
}

// leaves returns all columns that hold values of their own.
func (s *arrowSchema) leaves() (all []leaf, fields []arrowLeaf) {
	var walk func(a *arrowField, name, column string, above []*arrowField)
	walk = func(a *arrowField, name, column string, above []*arrowField) {
		if a.kind == arrowStruct && !a.encoded {
			inside := append(above[:len(above):len(above)], a)
			for _, c := range a.children {
				below := name + "." + c.name
				if c.name == "bytes" { // of an Image, Audio or Video feature
					below = name
				}
				walk(c, below, column, inside)
			}
			return
		}
		why := a.whyNot()
		if why == scalar {
			return
		}
		isBinary := a.kind == arrowBinary || a.kind == arrowLargeBinary || a.kind == arrowFixedBinary || a.kind == arrowBinaryView
		all = append(all, leaf{name: name, column: column, kind: a.typeName(), binary: isBinary, whyNot: why, at: len(fields)})
		fields = append(fields, arrowLeaf{a, above})
	}
	for _, a := range s.fields {
		walk(a, a.name, a.name, nil)
	}
	return all, fields
}

// scalar is the whyNot of numbers, which are no parts, and need no explanation.
const scalar = "it is a number"

// whyNot returns why a column can't be a part; "": it can.
func (a *arrowField) whyNot() string {
	switch {
	case a.encoded:
		return "it is encoded by a dictionary"
	case a.kind == arrowFixedBinary && a.width > 0:
		return ""
	}
	switch a.kind {
	case arrowBinary, arrowUtf8, arrowLargeBinary, arrowLargeUtf8, arrowBinaryView, arrowUtf8View:
		return ""
	case arrowList, arrowLargeList, arrowFixedList:
		if len(a.children) != 1 || a.kind == arrowFixedList && a.width == 0 {
			return "it is a list without elements"
		}
		if c := a.children[0]; c.encoded || c.elementWidth() == 0 {
			return "its lists do not hold plain numbers"
		}
		return ""
	case arrowNull, arrowInt, arrowFloat, arrowBool, arrowDecimal, arrowDate, arrowTime, arrowTimestamp, arrowInterval, arrowDuration:
		return scalar
	}
	return "its type has no contiguous values"
}

// elementWidth returns the bytes of an element of a list; 0: they are not contiguous numbers.
func (a *arrowField) elementWidth() int {
	switch a.kind {
	case arrowInt, arrowFloat, arrowDate, arrowTimestamp, arrowDuration:
		return a.width
	}
	return 0
}

// integers returns the columns that can be labels.
func (s *arrowSchema) integers() (names []string) {
	for _, a := range s.fields {
		if a.kind == arrowInt && !a.encoded {
			names = append(names, a.name)
		}
	}
	return names
}
