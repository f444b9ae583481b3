package records

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Kinds of pages and encodings of parquet.thrift.
const (
	pageData       = 0
	pageDictionary = 2
	pageDataV2     = 3

	encodingPlain           = 0
	encodingPlainDictionary = 2
	encodingRLE             = 3
	encodingDelta           = 5
	encodingDeltaLengths    = 6
	encodingDeltaBytes      = 7
	encodingDictionary      = 8
	encodingSplit           = 9
)

const (
	mostPageHeader = 1 << 20  // bytes: statistics may have long values
	mostPage       = 64 << 20 // bytes of a page that is read as a whole: levels, positions in a dictionary, labels
	hopPiece       = 32 << 10 // bytes that are read after a jump over a value that is longer than a piece
)

// pieces reads an object in pieces, mostly from front to back.
type objectPieces struct {
	ctx   context.Context
	o     Object
	piece int64
	buf   []byte
	at    int64 // of buf
}

// bytes returns n bytes at an offset, which are valid until the next call. It reads ahead up to limit.
func (p *objectPieces) bytes(off, n, limit int64) ([]byte, error) {
	if off < 0 || n < 0 || off > limit-n {
		return nil, errDamagedParquet
	}
	end := p.at + int64(len(p.buf))
	if off < p.at || off+n > end {
		size := p.piece
		if len(p.buf) > 0 && off > end+p.piece {
			size = min(size, hopPiece)
		}
		size = min(max(size, n), limit-off)
		p.buf, p.at = slices.Grow(p.buf[:0], int(size))[:size], off
		if size > 0 {
			if err := p.o.ReadAt(p.ctx, p.buf, off); err != nil {
				p.buf = p.buf[:0]
				return nil, err
			}
		}
	}
	return p.buf[off-p.at:][:n], nil
}

// parquetPage is a page of a column.
type parquetPage struct {
	kind, encoding      int
	values              int64
	off, size, unpacked int64 // of the body in the file; unpacked: its size without compression
	defs, reps          int64 // bytes of levels in front of the values of a page of version 2
	levels              int   // encoding of the levels of a page of version 1
	compressed          bool
	sum                 int64 // crc32 of the body
	summed              bool  // it has one
}

// parquetPages walks over the pages of a chunk.
type parquetPages struct {
	in       objectPieces
	codec    int
	pos, end int64
	left     int64 // values that are not in pages yet
}

func (p *parquetPages) begin(c parquetChunk) {
	p.codec, p.pos, p.end, p.left = c.codec, c.start, c.start+c.size, c.values
}

// next returns the next page with data, or a dictionary.
func (p *parquetPages) next() (parquetPage, error) {
	for {
		page, head, err := p.header()
		if err != nil {
			return page, err
		}
		page.off = p.pos + head
		if page.size < 0 || page.size > p.end-page.off || page.unpacked < 0 || page.values < 0 || page.values > p.left && page.kind != pageDictionary ||
			page.defs < 0 || page.reps < 0 || page.defs > page.size || page.reps > page.size-page.defs {
			return page, fmt.Errorf("%w (a page of %d values in %d bytes at byte %d)", errDamagedParquet, page.values, page.size, p.pos)
		}
		p.pos = page.off + page.size
		switch page.kind {
		case pageDictionary:
			return page, nil
		case pageData, pageDataV2:
			p.left -= page.values
			return page, nil
		}
	}
}

// header reads the header of the page at p.pos, and returns its length.
func (p *parquetPages) header() (page parquetPage, head int64, err error) {
	for size := int64(4 << 10); ; size *= 16 {
		size = min(size, p.end-p.pos, mostPageHeader)
		b, err := p.in.bytes(p.pos, size, p.end)
		if err != nil {
			return page, 0, err
		}
		t := &thrift{b: b}
		if page = parsePage(t); !t.bad {
			return page, int64(t.at), nil
		}
		if size == p.end-p.pos || size == mostPageHeader {
			return page, 0, fmt.Errorf("%w (no page at byte %d, and %d values are missing)", errDamagedParquet, p.pos, p.left)
		}
	}
}

func parsePage(t *thrift) (p parquetPage) {
	p.kind, p.compressed, p.levels = -1, true, encodingRLE
	i32 := func(to *int64, kind byte) bool {
		if kind != thriftI32 {
			return false
		}
		*to = int64(int32(t.integer()))
		return true
	}
	t.fields(func(id int, kind byte) bool {
		v := int64(0)
		switch {
		case id == 1 && i32(&v, kind):
			p.kind = int(v)
		case id == 2 && i32(&p.unpacked, kind):
		case id == 3 && i32(&p.size, kind):
		case id == 4 && i32(&p.sum, kind):
			p.summed = true
		case (id == 5 || id == 7 || id == 8) && kind == thriftStruct:
			version2 := id == 8
			t.fields(func(id int, kind byte) bool {
				switch {
				case id == 1 && i32(&p.values, kind):
				case id == 2 && !version2 && i32(&v, kind), id == 4 && version2 && i32(&v, kind):
					p.encoding = int(v)
				case id == 3 && !version2 && i32(&v, kind):
					p.levels = int(v)
				case id == 5 && version2 && i32(&p.defs, kind):
				case id == 6 && version2 && i32(&p.reps, kind):
				case id == 7 && version2 && kind == thriftFalse:
					p.compressed = false
				default:
					return id == 7 && version2 && kind == thriftTrue
				}
				return true
			})
		default:
			return false
		}
		return true
	})
	if p.kind < 0 {
		t.bad = true
	}
	return p
}

// both returns the repetition and definition levels of a page, nil if the column has none, and the offset of the values. body reads bytes of the
// page's body, without compression.
func (page parquetPage) both(leaf parquetLeaf, body func(off, n int64) ([]byte, error)) (reps, defs *hybrid, values int64, err error) {
	if page.levels != encodingRLE && page.kind != pageDataV2 && leaf.defs > 0 {
		return nil, nil, 0, errors.New("its levels have an encoding of old writers: write it again")
	}
	read := func(most int, known int64) (*hybrid, error) {
		size := known
		switch {
		case page.kind == pageDataV2:
		case most == 0:
			return nil, nil
		default:
			n, err := body(values, 4)
			if err != nil {
				return nil, err
			}
			size, values = int64(binary.LittleEndian.Uint32(n)), values+4
		}
		if size > mostPage {
			return nil, errDamagedParquet
		}
		b, err := body(values, size)
		if values += size; err != nil || most == 0 {
			return nil, err
		}
		return &hybrid{b: slices.Clone(b), width: levelWidth(most)}, nil
	}
	if reps, err = read(leaf.reps, page.reps); err == nil {
		defs, err = read(leaf.defs, page.defs)
	}
	return reps, defs, values, err
}

// parquetColumn finds the values of a column of bytes in a file.
type parquetColumn struct {
	pages parquetPages
	leaf  parquetLeaf
	name  string
	part  int

	rows     int64 // left in the page
	defs     *hybrid
	at, stop int64   // of plain values in the file
	ids      *hybrid // positions in the dictionary; nil: the values are plain
	words    []extent

	// of the rows of a chunk:
	null      []bool
	off, size []int64
}

// fill finds the values of the next n rows.
func (c *parquetColumn) fill(n int) error {
	c.null, c.off, c.size = slices.Grow(c.null[:0], n)[:n], slices.Grow(c.off[:0], n)[:n], slices.Grow(c.size[:0], n)[:n]
	for i := range n {
		for c.rows == 0 {
			if err := c.page(); err != nil {
				return err
			}
		}
		c.rows--
		c.null[i], c.off[i], c.size[i] = false, 0, 0
		if c.defs != nil {
			level, ok := c.defs.next()
			if !ok || int(level) > c.leaf.defs {
				return errDamagedParquet
			}
			if c.null[i] = int(level) < c.leaf.defs; c.null[i] {
				continue
			}
		}
		one, err := c.value()
		if err != nil {
			return err
		}
		c.off[i], c.size[i] = one.off, one.size
	}
	return nil
}

// page begins the next page.
func (c *parquetColumn) page() error {
	page, err := c.pages.next()
	if err != nil {
		return err
	}
	body := func(off, n int64) ([]byte, error) {
		if off < 0 || n < 0 || off > page.size-n {
			return nil, errDamagedParquet
		}
		return c.pages.in.bytes(page.off+off, n, c.pages.end)
	}
	if page.kind == pageDictionary {
		return c.dictionary(page)
	}
	var values int64
	if _, c.defs, values, err = page.both(c.leaf, body); err != nil {
		return err
	}
	c.rows, c.at, c.stop, c.ids = page.values, page.off+values, page.off+page.size, nil
	switch page.encoding {
	case encodingPlain:
	case encodingDictionary, encodingPlainDictionary:
		if n := c.stop - c.at; n > 0 && n <= mostPage {
			b, err := body(values, n)
			if err != nil {
				return err
			}
			if b[0] > 32 {
				return errDamagedParquet
			}
			c.ids = &hybrid{b: slices.Clone(b[1:]), width: int(b[0])}
			return nil
		}
		c.ids = &hybrid{}
	default:
		return fmt.Errorf("its values have the encoding %d, in which no range has one: give --stream to decode it, or write it with the encoding PLAIN", page.encoding)
	}
	return nil
}

// dictionary finds the values of a dictionary.
func (c *parquetColumn) dictionary(page parquetPage) error {
	c.words, c.ids, c.at, c.stop = nil, nil, page.off, page.off+page.size
	if page.values > page.size && (c.leaf.kind == parquetBytes || c.leaf.width > 0) || page.values > mostPage {
		return errDamagedParquet
	}
	for range page.values {
		one, err := c.value()
		if err != nil {
			return err
		}
		c.words = append(c.words, one)
	}
	return nil
}

// value returns the next value.
func (c *parquetColumn) value() (extent, error) {
	if c.ids != nil {
		id, ok := c.ids.next()
		if !ok || int64(id) >= int64(len(c.words)) {
			return extent{}, errDamagedParquet
		}
		return c.words[id], nil
	}
	one := extent{c.at, int64(c.leaf.width)}
	if c.leaf.kind == parquetBytes {
		if c.at > c.stop-4 {
			return extent{}, fmt.Errorf("%w (a page has fewer values than it says, at byte %d)", errDamagedParquet, c.at)
		}
		b, err := c.pages.in.bytes(c.at, 4, c.pages.end)
		if err != nil {
			return extent{}, err
		}
		one = extent{c.at + 4, int64(binary.LittleEndian.Uint32(b))}
	}
	if one.size > c.stop-one.off {
		return extent{}, fmt.Errorf("%w (a value of %d bytes at byte %d)", errDamagedParquet, one.size, one.off)
	}
	c.at = one.off + one.size
	return one, nil
}
