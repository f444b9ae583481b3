package records

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// arrowChunk is the number of rows of a batch that are listed at once. It is a multiple of 8, so that bitmaps begin at a byte.
const arrowChunk = 1 << 16

// arrowColumn is one column of the batch that is being listed.
type arrowColumn struct {
	leaf arrowLeaf
	name string
	part int

	// of the rows of a chunk:
	null  []bool
	off   []int64 // in the file
	size  []int64
	value []int32 // of labels

	pieces objectPieces // of values that are decoded
}

// arrowBatch is the metadata of a record batch.
type arrowBatch struct {
	r      *arrowReader
	m      *arrowMessage
	rows   int64
	nodes  int // position of the first
	count  int // of nodes
	bufs   int // position of the first
	have   int // number of buffers
	counts []int64
	codec  string // of the buffers; "": they are not compressed
}

// parse parses the metadata of a record batch.
func (r *arrowReader) parse(m *arrowMessage) (*arrowBatch, error) {
	f := &m.flat
	b := &arrowBatch{r: r, m: m, rows: f.fieldI64(m.header, 0)}
	b.nodes, b.count = f.vector(m.header, 1, 16)
	b.bufs, b.have = f.vector(m.header, 2, 16)
	at, n := f.vector(m.header, 4, 8)
	for i := range n {
		b.counts = append(b.counts, f.i64(at+8*i))
	}
	_, compressed := f.sub(m.header, 3)
	switch {
	case f.bad || b.rows < 0 || b.count < r.schema.nodes || len(b.counts) < r.schema.views:
		return nil, fmt.Errorf("%w (rows from number %d on)", errDamagedArrow, r.t.Len())
	case b.rows > 0 && compressed:
		c, _ := f.sub(m.header, 3)
		codec := f.fieldU8(c, 0)
		if codec < 0 || codec > 1 || f.bad {
			return nil, fmt.Errorf("its columns have the compression %d, which lcache does not know: write it without compression", codec)
		}
		b.codec = [...]string{"LZ4_FRAME", "ZSTD"}[codec]
		if r.decoding == nil {
			return nil, fmt.Errorf("its columns are compressed by %s, so no range of the file has a row: give --stream to decode it once, front to back, or write it without compression, as datasets.save_to_disk does", b.codec)
		}
	}
	clear(r.unpacked) // so that two batches are not held at once
	r.unpacked, r.unpackedBytes = r.unpacked[:0], 0
	return b, nil
}

// batch lists the rows of a record batch.
func (r *arrowReader) batch(m *arrowMessage) error {
	b, err := r.parse(m)
	if err != nil {
		return err
	}
	for from := int64(0); from < b.rows; from += arrowChunk {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if err := b.chunk(from, min(from+arrowChunk, b.rows)); err != nil {
			return err
		}
	}
	return nil
}

// chunk lists some rows.
func (b *arrowBatch) chunk(from, to int64) error {
	r := b.r
	for i := range r.columns {
		if err := b.load(&r.columns[i], from, to); err != nil {
			return fmt.Errorf("column %s: %w", clip(r.columns[i].name), err)
		}
	}
	if r.label != nil {
		if err := b.loadLabels(r.label, from, to); err != nil {
			return fmt.Errorf("column %s: %w", clip(r.label.name), err)
		}
	}
	var room [MostParts]Cell
	for i := range int(to - from) {
		cells := room[:0]
		for k := range r.columns {
			if c := &r.columns[k]; !c.null[i] {
				cells = append(cells, Cell{Part: c.part, Off: c.off[i], Size: c.size[i]})
			}
		}
		label := int32(0)
		if r.label != nil {
			label = r.label.value[i]
		}
		if r.decoding != nil {
			if err := b.decode(cells, label); err != nil {
				return err
			}
		} else if err := r.t.Add("", label, cells...); err != nil {
			return err
		}
	}
	return nil
}

// extent is a buffer of a batch, in the file.
type extent struct{ off, size int64 }

// buffer returns buffer number k of a field.
func (b *arrowBatch) buffer(a *arrowField, k int) (extent, error) {
	n := int64(a.buffer + k)
	for _, c := range b.counts[:min(a.views, len(b.counts))] {
		if c < 0 || c > int64(b.have) {
			return extent{}, errDamagedArrow
		}
		n += c
	}
	if n >= int64(b.have) {
		return extent{}, errDamagedArrow
	}
	f := &b.m.flat
	e := extent{f.i64(b.bufs + 16*int(n)), f.i64(b.bufs + 16*int(n) + 8)}
	if e.off < 0 || e.size < 0 || e.off > b.m.size || e.size > b.m.size-e.off {
		return extent{}, errDamagedArrow
	}
	e.off += b.m.body
	if b.codec != "" {
		return b.r.unpack(int(n), b.codec, e)
	}
	return e, nil
}

// node returns the number of values of a field, and of those that are null.
func (b *arrowBatch) node(a *arrowField) (length, nulls int64) {
	at := b.nodes + 16*a.node
	return b.m.flat.i64(at), b.m.flat.i64(at + 8)
}

// part reads values from up to, but not including, to, of width bytes each, from a buffer.
func (b *arrowBatch) part(e extent, from, to, width int64) ([]byte, error) {
	if to > e.size/width {
		return nil, fmt.Errorf("it has %d bytes of values for %d rows: %w", e.size, to, errDamagedArrow)
	}
	return b.r.read(e.off+from*width, (to-from)*width)
}

// nulls finds the null values of a field, and adds them to c.null.
func (b *arrowBatch) nulls(c *arrowColumn, a *arrowField, from, to int64) error {
	length, nulls := b.node(a)
	if length != b.rows || nulls < 0 || nulls > length {
		return fmt.Errorf("it has %d values for %d rows: %w", length, b.rows, errDamagedArrow)
	}
	if nulls == 0 {
		return nil
	}
	e, err := b.buffer(a, 0)
	if err != nil {
		return err
	}
	bits, err := b.part(e, from/8, (to+7)/8, 1)
	if err != nil {
		return err
	}
	for i := range c.null {
		if bits[i/8]>>(i%8)&1 == 0 {
			c.null[i] = true
		}
	}
	return nil
}

// load finds the values of a column.
func (b *arrowBatch) load(c *arrowColumn, from, to int64) error {
	n := int(to - from)
	c.null = slices.Grow(c.null[:0], n)[:n]
	clear(c.null)
	c.off, c.size = slices.Grow(c.off[:0], n)[:n], slices.Grow(c.size[:0], n)[:n]
	a := c.leaf.field
	for _, above := range c.leaf.above {
		if err := b.nulls(c, above, from, to); err != nil {
			return err
		}
	}
	if err := b.nulls(c, a, from, to); err != nil {
		return err
	}
	switch a.kind {
	case arrowBinary, arrowUtf8:
		return b.varied(c, a, 1, 2, 4, 1, from, to)
	case arrowLargeBinary, arrowLargeUtf8:
		return b.varied(c, a, 1, 2, 8, 1, from, to)
	case arrowList, arrowLargeList:
		width := int64(4)
		if a.kind == arrowLargeList {
			width = 8
		}
		return b.varied(c, a, 1, 0, width, int64(a.children[0].width), from, to)
	case arrowFixedBinary:
		return b.fixed(c, a, 1, int64(a.width), from, to)
	case arrowFixedList:
		child := a.children[0]
		if err := b.fixed(c, child, 1, int64(a.width)*int64(child.width), from, to); err != nil {
			return err
		}
		return b.wholeLists(c, child)
	case arrowBinaryView, arrowUtf8View:
		return b.viewed(c, a, from, to)
	}
	return errors.New("its type can't be served")
}

// wholeLists returns an error if an element of a list is null, unless the list is: the bytes in its place mean nothing.
func (b *arrowBatch) wholeLists(c *arrowColumn, child *arrowField) error {
	if _, nulls := b.node(child); nulls == 0 {
		return nil
	}
	data, err := b.buffer(child, 1)
	if err != nil {
		return err
	}
	bitmap, err := b.buffer(child, 0)
	if err != nil {
		return err
	}
	width := int64(child.width)
	first, last := (c.off[0]-data.off)/width, (c.off[len(c.off)-1]+c.size[len(c.size)-1]-data.off)/width
	if last > bitmap.size*8 {
		return errDamagedArrow
	}
	for piece := first; piece < last; {
		end := min(piece+8<<20, last)
		bits, err := b.r.read(bitmap.off+piece/8, (end+7)/8-piece/8)
		if err != nil {
			return err
		}
		for i, off := range c.off {
			if c.null[i] {
				continue
			}
			begin := (off - data.off) / width
			for e := max(begin, piece); e < min(begin+c.size[i]/width, end); e++ {
				if bits[e/8-piece/8]>>(e%8)&1 == 0 {
					return fmt.Errorf("row %d has a list with a missing element: fill it, or choose other columns (--columns)", int64(b.r.t.Len())+int64(i))
				}
			}
		}
		piece = end
	}
	return nil
}

// varied finds values that have offsets of width bytes in buffer number offsets. The values are in buffer number values, or if that is 0 in the
// child of the field, with unit bytes for each element.
func (b *arrowBatch) varied(c *arrowColumn, a *arrowField, offsets, values int, width, unit, from, to int64) error {
	var child *arrowField
	if values == 0 {
		child = a.children[0]
		a, values = child, 1
	}
	data, err := b.buffer(a, values)
	if err != nil {
		return err
	}
	e, err := b.buffer(c.leaf.field, offsets)
	if err != nil {
		return err
	}
	raw, err := b.part(e, from, to+1, width)
	if err != nil {
		return err
	}
	at := func(i int) int64 {
		if width == 4 {
			return int64(int32(binary.LittleEndian.Uint32(raw[4*i:])))
		}
		return int64(binary.LittleEndian.Uint64(raw[8*i:]))
	}
	most := data.size / unit
	begin := at(0)
	for i := range c.off {
		end := at(i + 1)
		if begin < 0 || end < begin || end > most {
			return fmt.Errorf("row %d is from element %d to %d of %d: %w", int64(b.r.t.Len())+int64(i), begin, end, most, errDamagedArrow)
		}
		c.off[i], c.size[i] = data.off+begin*unit, (end-begin)*unit
		begin = end
	}
	if child != nil {
		return b.wholeLists(c, child)
	}
	return nil
}

// fixed finds values of width bytes in a buffer of a field.
func (b *arrowBatch) fixed(c *arrowColumn, a *arrowField, values int, width, from, to int64) error {
	data, err := b.buffer(a, values)
	if err != nil {
		return err
	}
	if width <= 0 || to > data.size/width {
		return fmt.Errorf("it has %d bytes of values for %d rows of %d: %w", data.size, to, width, errDamagedArrow)
	}
	for i := range c.off {
		c.off[i], c.size[i] = data.off+(from+int64(i))*width, width
	}
	return nil
}

// viewed finds values of up to 12 bytes in their views, and others in the buffers that the views name.
func (b *arrowBatch) viewed(c *arrowColumn, a *arrowField, from, to int64) error {
	const view, inline = 16, 12
	e, err := b.buffer(a, 1)
	if err != nil {
		return err
	}
	raw, err := b.part(e, from, to, view)
	if err != nil {
		return err
	}
	raw = slices.Clone(raw)
	buffers := b.counts[a.views]
	for i := range c.off {
		if c.null[i] {
			continue
		}
		v := raw[view*i:]
		size := int64(int32(binary.LittleEndian.Uint32(v)))
		c.off[i], c.size[i] = e.off+(from+int64(i))*view+4, size
		if size >= 0 && size <= inline {
			continue
		}
		k, at := int64(binary.LittleEndian.Uint32(v[8:])), int64(int32(binary.LittleEndian.Uint32(v[12:])))
		if size < 0 || at < 0 || k >= buffers {
			return errDamagedArrow
		}
		data, err := b.buffer(a, 2+int(k))
		if err != nil {
			return err
		}
		if at > data.size || size > data.size-at {
			return errDamagedArrow
		}
		c.off[i] = data.off + at
	}
	return nil
}
