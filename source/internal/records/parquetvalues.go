package records

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
)

var errMissing = errors.New("a list has a missing element: fill it, or choose other columns (--columns)")

// parquetDecoder decodes a column, whatever its codec and encoding are. It holds one page and one dictionary.
type parquetDecoder struct {
	pages parquetPages
	leaf  parquetLeaf
	name  string
	part  int

	left       int64 // values of the page, nulls included
	defs, reps *hybrid
	values     parquetValues
	words      [][]byte // the dictionary
	buf        []byte   // the page
	list       []byte
	level      int // repetition level of the next value, if it is known
	known      bool
}

// begin begins a row group.
func (c *parquetDecoder) begin(chunk parquetChunk) {
	c.left, c.words, c.known = 0, nil, false
	c.pages.begin(chunk)
}

// next returns the value of the next row, which is valid until the next call. A list of numbers is one value.
func (c *parquetDecoder) next() (data []byte, null bool, err error) {
	if c.leaf.reps > 0 {
		return c.nextList()
	}
	level, err := c.definition()
	if err != nil || level < c.leaf.defs {
		return nil, true, err
	}
	data, err = c.values.next()
	return data, false, err
}

// definition moves to the next value, and returns its definition level.
func (c *parquetDecoder) definition() (level int, err error) {
	for c.left == 0 {
		if err := c.page(); err != nil {
			return 0, err
		}
	}
	c.left--
	if c.defs == nil {
		return c.leaf.defs, nil
	}
	v, ok := c.defs.next()
	if !ok || int(v) > c.leaf.defs {
		return 0, errDamagedParquet
	}
	return int(v), nil
}

// repetition returns the repetition level of the next value without moving. ok is false at the end of the row group.
func (c *parquetDecoder) repetition() (level int, ok bool, err error) {
	if c.known {
		return c.level, true, nil
	}
	for c.left == 0 {
		if c.pages.left == 0 {
			return 0, false, nil
		}
		if err := c.page(); err != nil {
			return 0, false, err
		}
	}
	v, more := c.reps.next()
	if !more || v > 1 {
		return 0, false, errDamagedParquet
	}
	c.level, c.known = int(v), true
	return c.level, true, nil
}

// nextList is next for a list.
func (c *parquetDecoder) nextList() (data []byte, null bool, err error) {
	c.list = c.list[:0]
	for first := true; ; first = false {
		rep, ok, err := c.repetition()
		if err != nil {
			return nil, false, err
		}
		if !ok && !first || ok && rep == 0 && !first {
			return c.list, false, nil
		}
		if !ok || first != (rep == 0) {
			return nil, false, errDamagedParquet
		}
		c.known = false
		level, err := c.definition()
		if err != nil {
			return nil, false, err
		}
		switch {
		case level < c.leaf.listed: // null, or an empty list
			if !first {
				return nil, false, errDamagedParquet
			}
			null = level < c.leaf.listed-1
			if rep, ok, err = c.repetition(); err != nil || ok && rep != 0 {
				return nil, false, cmp.Or(err, errDamagedParquet)
			}
			return c.list, null, nil
		case level < c.leaf.defs:
			return nil, false, errMissing
		}
		v, err := c.values.next()
		if err != nil {
			return nil, false, err
		}
		if len(c.list)+c.leaf.wide > mostList {
			return nil, false, fmt.Errorf("a list has more than %d MiB: choose other columns (--columns)", mostList>>20)
		}
		c.list = append(c.list, v[:c.leaf.wide]...)
	}
}

// page begins the next page with values, and reads a dictionary in front of it.
func (c *parquetDecoder) page() error {
	page, err := c.pages.next()
	if err != nil {
		return err
	}
	if page.size > mostDecoded {
		return fmt.Errorf("it has a page of %d bytes, at most %d: write it with smaller pages", page.size, mostDecoded)
	}
	raw, err := c.pages.in.bytes(page.off, page.size, page.off+page.size)
	if err != nil {
		return err
	}
	if page.summed && crc32.ChecksumIEEE(raw) != uint32(page.sum) {
		return fmt.Errorf("a page at byte %d does not have its checksum: copy or write it again", page.off)
	}
	if page.kind == pageDictionary {
		return c.dictionary(page, raw)
	}
	whole, err := c.unpack(page, raw, c.buf)
	if err != nil {
		return err
	}
	if c.pages.codec != 0 && page.compressed {
		c.buf = whole
	}
	body := func(off, n int64) ([]byte, error) {
		if off < 0 || n < 0 || off > int64(len(whole))-n {
			return nil, errDamagedParquet
		}
		return whole[off : off+n], nil
	}
	var at int64
	if c.reps, c.defs, at, err = page.both(c.leaf, body); err != nil {
		return err
	}
	c.left = page.values
	return c.values.begin(c.leaf, page, whole[at:], c.words)
}

func (c *parquetDecoder) dictionary(page parquetPage, raw []byte) error {
	whole, err := c.unpack(page, raw, nil)
	if err != nil {
		return err
	}
	if len(raw) > 0 && len(whole) > 0 && &raw[0] == &whole[0] {
		whole = slices.Clone(whole)
	}
	if page.values > int64(len(whole)) {
		return errDamagedParquet
	}
	page.encoding = encodingPlain
	var v parquetValues
	if err := v.begin(c.leaf, page, whole, nil); err != nil {
		return err
	}
	c.words = make([][]byte, page.values)
	for i := range c.words {
		if c.words[i], err = v.next(); err != nil {
			return err
		}
	}
	return nil
}

// unpack returns the body of a page without compression. Levels in a page of version 2 are never compressed.
func (c *parquetDecoder) unpack(page parquetPage, b, out []byte) ([]byte, error) {
	if c.pages.codec == 0 || !page.compressed {
		return b, nil
	}
	levels := int64(0)
	if page.kind == pageDataV2 {
		levels = page.defs + page.reps
	}
	if levels > page.unpacked || levels > int64(len(b)) {
		return nil, errDamagedParquet
	}
	if page.unpacked > mostDecoded {
		return nil, fmt.Errorf("it has a page of %d bytes, at most %d: write it with smaller pages", page.unpacked, mostDecoded)
	}
	if page.unpacked == levels { // all values are null: writers store nothing, or a compressed nothing
		return append(out[:0], b[:levels]...), nil
	}
	if levels == 0 {
		return unpackBlock(codecName(c.pages.codec), b, page.unpacked, out)
	}
	rest, err := unpackBlock(codecName(c.pages.codec), b[levels:], page.unpacked-levels, nil)
	if err != nil {
		return nil, err
	}
	return append(append(out[:0], b[:levels]...), rest...), nil
}

// parquetValues decodes the values of a page.
type parquetValues struct {
	kind, width int
	encoding    int
	plain       []byte
	ids         hybrid
	words       [][]byte
	delta       *deltas // numbers, or lengths
	shared      *deltas // lengths of the prefixes that values share with the value before
	last        []byte
	count, at   int // of values that are split by bytes
	number      [8]byte
}

// begin begins a page. b must stay unchanged until its last value was used.
func (v *parquetValues) begin(leaf parquetLeaf, page parquetPage, b []byte, words [][]byte) error {
	*v = parquetValues{kind: leaf.kind, width: leaf.bytes(), encoding: page.encoding, plain: b, words: words, last: v.last[:0]}
	lengths := func() (*deltas, error) {
		if len(v.plain) == 0 { // all values are null
			return &deltas{}, nil
		}
		d := newDeltas(v.plain)
		end := *d
		if d.bad || end.left > uint64(page.values) {
			return nil, errDamagedParquet
		}
		for {
			if _, ok := end.next(); !ok {
				break
			}
		}
		if end.bad || end.left > 0 {
			return nil, errDamagedParquet
		}
		v.plain = end.b
		return d, nil
	}
	var err error
	switch {
	case page.encoding == encodingPlain:
	case page.encoding == encodingDictionary || page.encoding == encodingPlainDictionary:
		v.encoding = encodingDictionary
		if len(b) > 0 {
			if b[0] > 32 {
				return errDamagedParquet
			}
			v.ids = hybrid{b: b[1:], width: int(b[0])}
		}
	case page.encoding == encodingDelta && (leaf.kind == parquetInt32 || leaf.kind == parquetInt64):
		v.delta = newDeltas(b)
	case page.encoding == encodingDeltaLengths && leaf.kind == parquetBytes:
		v.delta, err = lengths()
	case page.encoding == encodingDeltaBytes && (leaf.kind == parquetBytes || leaf.kind == parquetFixedBytes):
		if v.shared, err = lengths(); err == nil {
			v.delta, err = lengths()
		}
	case page.encoding == encodingSplit && v.width > 0 && v.width <= len(v.number):
		v.count = len(b) / v.width
	default:
		return fmt.Errorf("its values have the encoding %d, which lcache does not know: write it with PLAIN or a dictionary", page.encoding)
	}
	return err
}

// next returns the next value.
func (v *parquetValues) next() ([]byte, error) {
	switch v.encoding {
	case encodingDictionary:
		if id, ok := v.ids.next(); ok && int64(id) < int64(len(v.words)) {
			return v.words[id], nil
		}
		return nil, errDamagedParquet
	case encodingDelta:
		n, ok := v.delta.next()
		if !ok {
			return nil, errDamagedParquet
		}
		binary.LittleEndian.PutUint64(v.number[:], uint64(n)) // differences of 32 bits wrap around
		return v.number[:v.width], nil
	case encodingDeltaLengths:
		n, ok := v.delta.next()
		if !ok {
			return nil, errDamagedParquet
		}
		return v.take(n)
	case encodingDeltaBytes:
		shared, ok := v.shared.next()
		n, more := v.delta.next()
		if !ok || !more || shared < 0 || shared > int64(len(v.last)) {
			return nil, errDamagedParquet
		}
		b, err := v.take(n)
		if err != nil {
			return nil, err
		}
		v.last = append(v.last[:shared], b...)
		if v.width > 0 && len(v.last) != v.width {
			return nil, errDamagedParquet
		}
		return v.last, nil
	case encodingSplit:
		if v.at == v.count {
			return nil, errDamagedParquet
		}
		for k := range v.width {
			v.number[k] = v.plain[k*v.count+v.at]
		}
		v.at++
		return v.number[:v.width], nil
	}
	if v.width > 0 {
		return v.take(int64(v.width))
	}
	n, err := v.take(4)
	if err != nil {
		return nil, err
	}
	return v.take(int64(binary.LittleEndian.Uint32(n)))
}

// take returns the next n bytes of the page.
func (v *parquetValues) take(n int64) ([]byte, error) {
	if n < 0 || n > int64(len(v.plain)) {
		return nil, fmt.Errorf("%w (a page has fewer values than it says)", errDamagedParquet)
	}
	b := v.plain[:n:n]
	v.plain = v.plain[n:]
	return b, nil
}
