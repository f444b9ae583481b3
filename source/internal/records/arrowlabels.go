package records

import (
	"fmt"
	"slices"
	"strconv"
)

// integers reads a column of integers, and finds its null values. The bytes are valid until the next read.
func (b *arrowBatch) integers(c *arrowColumn, from, to int64) ([]byte, error) {
	n := int(to - from)
	c.null = slices.Grow(c.null[:0], n)[:n]
	clear(c.null)
	a := c.leaf.field
	if err := b.nulls(c, a, from, to); err != nil {
		return nil, err
	}
	e, err := b.buffer(a, 1)
	if err != nil {
		return nil, err
	}
	return b.part(e, from, to, int64(a.width))
}

// loadLabels reads a column of labels.
func (b *arrowBatch) loadLabels(c *arrowColumn, from, to int64) error {
	raw, err := b.integers(c, from, to)
	if err != nil {
		return err
	}
	a, n := c.leaf.field, int(to-from)
	c.value = slices.Grow(c.value[:0], n)[:n]
	for i := range c.value {
		row := int64(b.r.t.Len()) + int64(i)
		if c.null[i] {
			return fmt.Errorf("row %d has no label: give a file of labels (--labels), or --flat", row)
		}
		v, ok := integer(raw[i*a.width:], a.width, a.signed)
		if !ok {
			return outOfRange(int(row), v, a.signed)
		}
		c.value[i] = int32(v)
	}
	return nil
}

// integer reads a little-endian integer; ok: it fits into 32 bits with a sign.
func integer(b []byte, width int, signed bool) (v int64, ok bool) {
	u := uint64(0)
	for k := range width {
		u |= uint64(b[k]) << (8 * k)
	}
	if v = int64(u); signed && width < 8 {
		v = v << (64 - 8*width) >> (64 - 8*width)
	}
	return v, v == int64(int32(v)) && (signed || v >= 0)
}

// outOfRange is the error of a label that [integer] refuses.
func outOfRange(row int, v int64, signed bool) error {
	text := strconv.FormatInt(v, 10)
	if !signed {
		text = strconv.FormatUint(uint64(v), 10)
	}
	return fmt.Errorf("row %d has the label %s, which does not fit into 32 bits", row, text)
}
