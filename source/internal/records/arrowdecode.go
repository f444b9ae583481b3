package records

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// Decode implements [Decoder].
func (a *arrow) Decode(ctx context.Context, name string, o Object, t *Table, w io.Writer) error {
	return a.list(name, &arrowReader{ctx: ctx, o: o, t: t, decoding: &decoding{t: t, w: w}})
}

const (
	// unpackedAt is the position from which on positions are in decompressed buffers. No file is so large.
	unpackedAt = 1 << 62

	mostUnpacked = 2 << 30 // bytes of all buffers of a batch
)

// unpackedBuffer is a buffer of the batch that is being decoded.
type unpackedBuffer struct {
	number int
	at     extent
	bytes  []byte
}

// unpack decompresses a buffer, and returns its position.
func (r *arrowReader) unpack(number int, codec string, e extent) (extent, error) {
	for _, u := range r.unpacked {
		if u.number == number {
			return u.at, nil
		}
	}
	if e.size == 0 {
		return e, nil
	}
	if e.size < 8 || e.size > mostUnpacked {
		return extent{}, errDamagedArrow
	}
	raw, err := r.read(e.off, e.size)
	if err != nil {
		return extent{}, err
	}
	size := int64(binary.LittleEndian.Uint64(raw))
	if size == -1 { // it is not compressed
		return extent{e.off + 8, e.size - 8}, nil
	}
	if size < 0 || size > mostUnpacked-r.unpackedBytes {
		return extent{}, fmt.Errorf("the rows from number %d on have more than %d MiB: write it with fewer rows in a batch, or copy it again", r.t.Len(), mostUnpacked>>20)
	}
	u := unpackedBuffer{number: number, at: extent{unpackedAt + r.unpackedBytes, size}}
	if u.bytes, err = unpackBlock(codec, raw[8:], size, nil); err != nil {
		return extent{}, err
	}
	r.unpackedBytes += size
	r.unpacked = append(r.unpacked, u)
	return u.at, nil
}

// unpackedPart returns bytes of a decompressed buffer.
func (r *arrowReader) unpackedPart(off, n int64) ([]byte, error) {
	for _, u := range r.unpacked {
		if from := off - u.at.off; from >= 0 && n >= 0 && from <= u.at.size && n <= u.at.size-from {
			return u.bytes[from : from+n], nil
		}
	}
	return nil, errDamagedArrow
}

// value returns bytes of a column, which are valid until the next call for it.
func (b *arrowBatch) value(c *arrowColumn, off, size int64) ([]byte, error) {
	if off >= unpackedAt {
		return b.r.unpackedPart(off, size)
	}
	if c.pieces.o == nil {
		c.pieces = objectPieces{ctx: b.r.ctx, o: b.r.o, piece: int64(b.r.o.Piece())}
	}
	return c.pieces.bytes(off, size, b.r.o.Size())
}

// decode writes a sample.
func (b *arrowBatch) decode(cells []Cell, label int32) error {
	r := b.r
	for _, cell := range cells {
		at := slices.IndexFunc(r.columns, func(c arrowColumn) bool { return c.part == cell.Part })
		c := &r.columns[at]
		data, err := b.value(c, cell.Off, cell.Size)
		if err != nil {
			return fmt.Errorf("column %s: %w", clip(c.name), err)
		}
		r.decoding.part(cell.Part, data)
	}
	return r.decoding.end(label)
}
