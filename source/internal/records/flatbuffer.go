package records

import "encoding/binary"

// flat reads a flatbuffer, in which the metadata of Arrow files is written. A wrong position sets bad, and gives zero: the caller checks bad
// before it uses what it has read. Only texts are copied, so a cycle of positions costs nothing by itself; whoever follows tables bounds their depth.
// It reads what this package needs. Generated code would not check positions, and would be ten times as long.
type flat struct {
	b     []byte
	bad   bool
	texts int // bytes of all texts that were read: several positions may refer to one
}

// flatTable is a table: the position of its first byte, and its vtable with the offset of each field.
type flatTable struct {
	at, fields, count int // count: of bytes of the vtable
}

// bytes returns n bytes at a position.
func (f *flat) bytes(at, n int) []byte {
	if f.bad || at < 0 || n < 0 || at > len(f.b)-n {
		f.bad = true
		return nil
	}
	return f.b[at : at+n]
}

func (f *flat) u16(at int) int {
	if b := f.bytes(at, 2); b != nil {
		return int(binary.LittleEndian.Uint16(b))
	}
	return 0
}

func (f *flat) i32(at int) int {
	if b := f.bytes(at, 4); b != nil {
		return int(int32(binary.LittleEndian.Uint32(b)))
	}
	return 0
}

func (f *flat) i64(at int) int64 {
	if b := f.bytes(at, 8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// root returns the table of the buffer itself.
func (f *flat) root() flatTable { return f.table(f.i32(0)) }

// table returns the table at a position.
func (f *flat) table(at int) flatTable {
	t := flatTable{at: at, fields: at - f.i32(at)}
	t.count = f.u16(t.fields)
	f.bytes(t.fields, t.count)
	return t
}

// field returns the position of a field; 0: the table does not have it.
func (f *flat) field(t flatTable, i int) int {
	if 4+2*i+2 > t.count {
		return 0
	}
	if off := f.u16(t.fields + 4 + 2*i); off != 0 {
		return t.at + off
	}
	return 0
}

func (f *flat) fieldU8(t flatTable, i int) int {
	if at := f.field(t, i); at != 0 {
		if b := f.bytes(at, 1); b != nil {
			return int(b[0])
		}
	}
	return 0
}

func (f *flat) fieldI16(t flatTable, i int) int {
	if at := f.field(t, i); at != 0 {
		return int(int16(f.u16(at)))
	}
	return 0
}

func (f *flat) fieldI32(t flatTable, i int) int {
	if at := f.field(t, i); at != 0 {
		return f.i32(at)
	}
	return 0
}

func (f *flat) fieldI64(t flatTable, i int) int64 {
	if at := f.field(t, i); at != 0 {
		return f.i64(at)
	}
	return 0
}

// sub returns the table that a field refers to.
func (f *flat) sub(t flatTable, i int) (flatTable, bool) {
	at := f.field(t, i)
	if at == 0 {
		return flatTable{}, false
	}
	return f.table(at + f.i32(at)), true
}

// vector returns the first element of a vector and the number of elements, which have size bytes each.
func (f *flat) vector(t flatTable, i, size int) (at, n int) {
	if at = f.field(t, i); at == 0 {
		return 0, 0
	}
	at += f.i32(at)
	n = f.i32(at)
	if n < 0 || f.bad || n > len(f.b)/size {
		f.bad = true
		return 0, 0
	}
	f.bytes(at+4, n*size)
	return at + 4, n
}

// tables returns the tables of a vector, at most mostFields+1 of them. The caller refuses more than mostFields.
func (f *flat) tables(t flatTable, i int) (list []flatTable) {
	at, n := f.vector(t, i, 4)
	for k := range min(n, mostFields+1) {
		list = append(list, f.table(at+4*k+f.i32(at+4*k)))
	}
	return list
}

// text returns a text. All texts together are not much longer than the buffer.
func (f *flat) text(t flatTable, i int) string {
	at, n := f.vector(t, i, 1)
	if f.texts += n; f.texts > len(f.b)+mostKey {
		f.bad = true
	}
	return string(f.bytes(at, n))
}
