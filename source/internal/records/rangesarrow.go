package records

import (
	"context"
	"errors"
	"fmt"
)

// arrowIndexColumn is a column of an index that is an Arrow file.
type arrowIndexColumn struct {
	indexColumn
	arrowColumn
	field *arrowField
	words [][]byte // of its dictionary; nil: the word is null
	raw   []byte   // integers of a chunk
}

// readArrow reads an index that is an Arrow file or stream.
func (p *rangeParser) readArrow(ctx context.Context, o Object) error {
	r := &arrowReader{ctx: ctx, o: o, t: NewTable(-1), decoding: &decoding{}}
	var columns []*arrowIndexColumn
	for {
		m, err := r.next()
		if err != nil {
			return err
		}
		r.t.rows = p.line // for messages
		switch {
		case m == nil && r.schema == nil:
			return errors.New("it has no schema: it is not an Arrow file")
		case m == nil:
			return nil
		case m.kind == messageSchema && r.schema != nil:
			return errors.New("it has a second schema: write it again")
		case m.kind == messageSchema:
			if r.schema, err = parseArrowSchema(&m.flat, m.header); err == nil {
				columns, err = arrowIndexColumns(r.schema)
			}
		case r.schema == nil:
			return errors.New("it has rows before its schema: it is damaged, or not an Arrow file")
		case m.kind == messageDictionary:
			err = r.dictionary(m, columns)
		case m.kind == messageBatch:
			err = p.arrowBatch(r, m, columns)
		}
		if err != nil {
			return err
		}
	}
}

func arrowIndexColumns(s *arrowSchema) (columns []*arrowIndexColumn, err error) {
	var names []string
	for _, f := range s.fields {
		names = append(names, f.name)
	}
	chosen, err := indexed(names)
	if err != nil {
		return nil, err
	}
	for _, at := range chosen {
		f := s.fields[at]
		c := &arrowIndexColumn{indexColumn: indexColumn{name: f.name, signed: f.signed}, field: f, arrowColumn: arrowColumn{leaf: arrowLeaf{field: f}}}
		what := ""
		switch {
		case f.encoded && f.values.isText(), !f.encoded && f.isText():
			c.text = true
		case f.encoded:
			what = "a dictionary of something else than text"
		case f.kind != arrowInt:
			what = "values of another type"
		}
		if err := c.check(what); err != nil {
			return nil, err
		}
		columns = append(columns, c)
	}
	return columns, nil
}

// isText reports whether the values of a field are bytes of any length.
func (a *arrowField) isText() bool {
	switch a.kind {
	case arrowBinary, arrowUtf8, arrowLargeBinary, arrowLargeUtf8, arrowBinaryView, arrowUtf8View:
		return true
	}
	return false
}

// arrowBatch adds the rows of a batch.
func (p *rangeParser) arrowBatch(r *arrowReader, m *arrowMessage, columns []*arrowIndexColumn) error {
	b, err := r.parse(m)
	if err != nil {
		return err
	}
	for from := int64(0); from < b.rows; from += arrowChunk {
		to := min(from+arrowChunk, b.rows)
		if err := r.ctx.Err(); err != nil {
			return err
		}
		r.t.rows = p.line
		for _, c := range columns {
			if err := c.load(b, from, to); err != nil {
				return fmt.Errorf("column %s: %w", c.indexColumn.name, err)
			}
		}
		for i := range int(to - from) {
			var row rangeRow
			for _, c := range columns {
				value, null, err := c.value(b, i)
				if err == nil {
					err = c.set(&row, value, null)
				}
				if err != nil {
					return fmt.Errorf("row %d: %w", p.line, err)
				}
			}
			if err := p.binaryRow(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// load finds the values of a chunk.
func (c *arrowIndexColumn) load(b *arrowBatch, from, to int64) error {
	if c.text && !c.field.encoded {
		return b.load(&c.arrowColumn, from, to)
	}
	raw, err := b.integers(&c.arrowColumn, from, to)
	c.raw = append(c.raw[:0], raw...)
	return err
}

// value returns the value of row i of the chunk, which is valid until the next call.
func (c *arrowIndexColumn) value(b *arrowBatch, i int) (value []byte, null bool, err error) {
	switch {
	case c.null[i]:
		return nil, true, nil
	case c.text && !c.field.encoded:
		value, err = b.text(&c.arrowColumn, i)
		return value, false, err
	}
	value = c.raw[i*c.field.width:][:c.field.width]
	if c.field.encoded {
		id := uint64(0)
		for k := range value {
			id |= uint64(value[k]) << (8 * k)
		}
		if id >= uint64(len(c.words)) {
			return nil, false, fmt.Errorf("its %s is word %d of a dictionary of %d: %w", c.indexColumn.name, id, len(c.words), errDamagedArrow)
		}
		value = c.words[id]
		null = value == nil
	}
	return value, null, nil
}

// text returns the value of row i of the chunk, which may be a name.
func (b *arrowBatch) text(c *arrowColumn, i int) ([]byte, error) {
	if c.size[i] > mostKey {
		return nil, fmt.Errorf("it has a text of %d bytes, at most %d", c.size[i], mostKey)
	}
	return b.value(c, c.off[i], c.size[i])
}

// dictionary reads a dictionary, or more words of one, for the columns that have it.
func (r *arrowReader) dictionary(m *arrowMessage, columns []*arrowIndexColumn) error {
	id := m.flat.fieldI64(m.header, 0)
	data, ok := m.flat.sub(m.header, 1)
	more := m.flat.fieldU8(m.header, 2) != 0
	if m.flat.bad || !ok {
		return errDamagedArrow
	}
	for _, c := range columns {
		if !c.field.encoded || c.field.dictionary != id {
			continue
		}
		of := c.field.values
		in := &arrowReader{ctx: r.ctx, o: r.o, t: r.t, schema: &arrowSchema{nodes: 1}, decoding: r.decoding}
		if of.kind == arrowBinaryView || of.kind == arrowUtf8View {
			in.schema.views = 1
		}
		batch := *m
		batch.header = data
		b, err := in.parse(&batch)
		if err != nil {
			return err
		}
		words := arrowColumn{leaf: arrowLeaf{field: of}}
		if !more {
			c.words = nil
		}
		left := int64(mostDecoded)
		for from := int64(0); from < b.rows; from += arrowChunk {
			to := min(from+arrowChunk, b.rows)
			err := b.load(&words, from, to)
			for i := 0; err == nil && i < int(to-from); i++ {
				var word []byte
				if !words.null[i] {
					if word, err = b.text(&words, i); err == nil {
						word = append([]byte{}, word...)
					}
				}
				if left -= int64(len(word)) + 24; left < 0 {
					err = fmt.Errorf("its dictionary has more than %d MiB: write it without one", mostDecoded>>20)
				}
				c.words = append(c.words, word)
			}
			if err != nil {
				return fmt.Errorf("the dictionary of column %s: %w", c.indexColumn.name, err)
			}
		}
	}
	return nil
}
