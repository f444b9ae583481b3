package records

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// parquetInts decodes a column of integers: labels. It is small, so it may have any compression and the usual encodings.
type parquetInts struct {
	pages parquetPages
	leaf  parquetLeaf
	name  string

	rows  int64 // left in the page
	defs  *hybrid
	plain []byte
	ids   *hybrid
	delta *deltas
	words []int64
}

// next returns the value of the next row.
func (c *parquetInts) next(row int) (int32, error) {
	for c.rows == 0 {
		if err := c.page(); err != nil {
			return 0, err
		}
	}
	c.rows--
	if c.defs != nil {
		level, ok := c.defs.next()
		if !ok || int(level) > c.leaf.defs {
			return 0, errDamagedParquet
		}
		if int(level) < c.leaf.defs {
			return 0, fmt.Errorf("row %d has no label: give a file of labels (--labels), or --flat", row)
		}
	}
	v, err := c.value()
	if err == nil && v != int64(int32(v)) {
		err = fmt.Errorf("row %d has the label %d, which does not fit into 32 bits", row, v)
	}
	return int32(v), err
}

func (c *parquetInts) page() error {
	page, err := c.pages.next()
	if err != nil {
		return err
	}
	if page.size > mostPage || page.unpacked > mostPage {
		return fmt.Errorf("it has a page of %d bytes, at most %d: write it with smaller pages", max(page.size, page.unpacked), mostPage)
	}
	raw, err := c.pages.in.bytes(page.off, page.size, page.off+page.size)
	if err != nil {
		return err
	}
	whole, err := c.unpack(page, slices.Clone(raw))
	if err != nil {
		return err
	}
	c.plain, c.ids, c.delta = whole, nil, nil
	if page.kind == pageDictionary {
		return c.dictionary(page)
	}
	body := func(off, n int64) ([]byte, error) {
		if off < 0 || n < 0 || off > int64(len(whole))-n {
			return nil, errDamagedParquet
		}
		return whole[off : off+n], nil
	}
	var values int64
	if c.defs, values, err = page.definitions(c.leaf.defs, body); err != nil {
		return err
	}
	c.rows, c.plain = page.values, whole[values:]
	switch page.encoding {
	case encodingPlain:
	case encodingDictionary, encodingPlainDictionary:
		c.ids = &hybrid{}
		if len(c.plain) > 0 {
			if c.plain[0] > 32 {
				return errDamagedParquet
			}
			c.ids = &hybrid{b: c.plain[1:], width: int(c.plain[0])}
		}
	case encodingDelta:
		c.delta = newDeltas(c.plain)
	default:
		return fmt.Errorf("its values have the unknown encoding %d: write it with PLAIN or a dictionary", page.encoding)
	}
	return nil
}

func (c *parquetInts) dictionary(page parquetPage) error {
	if page.values > int64(len(c.plain)) {
		return errDamagedParquet
	}
	c.words = c.words[:0]
	for range page.values {
		v, err := c.value()
		if err != nil {
			return err
		}
		c.words = append(c.words, v)
	}
	return nil
}

func (c *parquetInts) value() (v int64, err error) {
	ok := true
	switch {
	case c.ids != nil:
		id, more := c.ids.next()
		if ok = more && int(id) < len(c.words); ok {
			v = c.words[id]
		}
	case c.delta != nil:
		if v, ok = c.delta.next(); c.leaf.kind == parquetInt32 {
			v = int64(int32(v)) // differences of 32 bits wrap around
		}
	case c.leaf.kind == parquetInt32 && len(c.plain) >= 4:
		v, c.plain = int64(int32(binary.LittleEndian.Uint32(c.plain))), c.plain[4:]
	case c.leaf.kind == parquetInt64 && len(c.plain) >= 8:
		v, c.plain = int64(binary.LittleEndian.Uint64(c.plain)), c.plain[8:]
	default:
		ok = false
	}
	if !ok {
		return 0, errDamagedParquet
	}
	return v, nil
}

// unpack returns the body of a page without compression. Levels in a page of version 2 are never compressed.
func (c *parquetInts) unpack(page parquetPage, b []byte) ([]byte, error) {
	if c.pages.codec == 0 || !page.compressed {
		return b, nil
	}
	levels := 0
	if page.kind == pageDataV2 {
		levels = int(page.defs + page.reps)
	}
	if int64(levels) > page.unpacked || levels > len(b) {
		return nil, errDamagedParquet
	}
	rest, err := unpackPage(c.pages.codec, b[levels:], int(page.unpacked)-levels)
	if err != nil {
		return nil, fmt.Errorf("a page of it can't be unpacked by %s: %w: copy or write it again", codecName(c.pages.codec), err)
	}
	return append(b[:levels:levels], rest...), nil
}

// unpackPage unpacks bytes whose size is known.
func unpackPage(codec int, b []byte, size int) (out []byte, err error) {
	out = make([]byte, size)
	n := 0
	switch codecName(codec) {
	case "SNAPPY":
		if n, err = s2.DecodedLen(b); err == nil && n == size {
			_, err = s2.Decode(out, b)
		}
	case "GZIP":
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(b)); err == nil {
			if n, err = io.ReadFull(r, out); err == nil {
				err = r.Close()
			}
		}
	case "ZSTD":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(mostPage)); err == nil {
			out, err = d.DecodeAll(b, out[:0])
			n = len(out)
			d.Close()
		}
	case "LZ4_RAW":
		n, err = lz4.UncompressBlock(b, out)
	default:
		return nil, errors.New("this codec is not supported")
	}
	if err == nil && n != size {
		err = fmt.Errorf("it has %d bytes, want %d", n, size)
	}
	return out, err
}
