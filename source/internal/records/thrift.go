package records

import "encoding/binary"

// thrift reads the compact protocol of Thrift, in which the metadata of Parquet files is written. Bytes that are missing or impossible set bad,
// and give zero: the caller checks bad before it uses what it has read. No length is believed beyond the bytes that are there.
type thrift struct {
	b     []byte
	at    int
	bad   bool
	depth int
}

// Types of the compact protocol.
const (
	thriftTrue = iota + 1
	thriftFalse
	thriftI8
	thriftI16
	thriftI32
	thriftI64
	thriftDouble
	thriftBinary
	thriftList
	thriftSet
	thriftMap
	thriftStruct
	thriftUUID
)

const mostThriftDepth = 32

func (t *thrift) take(n int) []byte {
	if t.bad || n < 0 || n > len(t.b)-t.at {
		t.bad = true
		return nil
	}
	t.at += n
	return t.b[t.at-n : t.at]
}

func (t *thrift) u8() byte {
	if b := t.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (t *thrift) uvarint() uint64 {
	if t.bad {
		return 0
	}
	v, n := binary.Uvarint(t.b[t.at:])
	if n <= 0 {
		t.bad = true
		return 0
	}
	t.at += n
	return v
}

// integer reads an integer of 16 to 64 bits.
func (t *thrift) integer() int64 {
	u := t.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (t *thrift) text() string {
	n := t.uvarint()
	if n > uint64(len(t.b)) {
		t.bad = true
		return ""
	}
	return string(t.take(int(n)))
}

// fields reads a struct. It calls take for each field, with its number and type. If take returns false, it has read nothing, and the field is
// skipped. The value of a boolean is its type.
func (t *thrift) fields(take func(id int, kind byte) bool) {
	if t.depth++; t.depth > mostThriftDepth {
		t.bad = true
	}
	id := 0
	for !t.bad {
		head := t.u8()
		if head == 0 {
			break
		}
		if step := int(head >> 4); step != 0 {
			id += step
		} else {
			id = int(int16(t.integer()))
		}
		if kind := head & 15; !take(id, kind) {
			t.skip(kind, false)
		}
	}
	t.depth--
}

// list reads a list, and calls take for each element, which must read it.
func (t *thrift) list(take func(kind byte)) {
	kind, n := t.listHead()
	for range n {
		if t.bad {
			return
		}
		take(kind)
	}
}

func (t *thrift) listHead() (kind byte, n int) {
	head := t.u8()
	size := uint64(head >> 4)
	if size == 15 {
		size = t.uvarint()
	}
	if size > uint64(len(t.b)-t.at) { // each element has a byte
		t.bad = true
		return 0, 0
	}
	return head & 15, int(size)
}

// skip skips a value. A boolean in a list has a byte.
func (t *thrift) skip(kind byte, inList bool) {
	switch kind {
	case thriftTrue, thriftFalse:
		if inList {
			t.u8()
		}
	case thriftI8:
		t.u8()
	case thriftI16, thriftI32, thriftI64:
		t.uvarint()
	case thriftDouble:
		t.take(8)
	case thriftUUID:
		t.take(16)
	case thriftBinary:
		n := t.uvarint()
		if n > uint64(len(t.b)) {
			t.bad = true
			return
		}
		t.take(int(n))
	case thriftList, thriftSet:
		if t.depth++; t.depth > mostThriftDepth {
			t.bad = true
		}
		t.list(func(kind byte) { t.skip(kind, true) })
		t.depth--
	case thriftMap:
		t.skipMap()
	case thriftStruct:
		t.fields(func(int, byte) bool { return false })
	default:
		t.bad = true
	}
}

func (t *thrift) skipMap() {
	n := t.uvarint()
	if n == 0 {
		return
	}
	if n > uint64(len(t.b)-t.at) || t.depth >= mostThriftDepth {
		t.bad = true
		return
	}
	t.depth++
	kinds := t.u8()
	for range n {
		if t.bad {
			break
		}
		t.skip(kinds>>4, true)
		t.skip(kinds&15, true)
	}
	t.depth--
}
