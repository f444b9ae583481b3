package records

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// A cursor moves forward through a shard and reads what is needed of it: all of it from a stream, and only the wanted ranges from an Object. Its
// memory is bounded, whatever lengths a file has.
type cursor interface {
	// pos returns the position of the next byte.
	pos() int64

	// peek returns the next n bytes, at most mostPeek, without moving. They are valid until the next call. It returns fewer bytes, and io.EOF, if
	// the shard ends before.
	peek(n int) ([]byte, error)

	// skip moves forward by n bytes. It returns errShort if the shard ends before.
	skip(n int64) error
}

// mostPeek is the maximum number of bytes of a peek.
const mostPeek = 64 << 10

// errShort means that a shard ends before the bytes that its numbers announce.
var errShort = errors.New("it ends too early")

// short returns the error of a shard that ends before bytes that it must have.
func short(err error) error {
	if err == io.EOF {
		return errShort
	}
	return err
}

// objectCursor reads an Object.
type objectCursor struct {
	ctx  context.Context // of the listing
	o    Object
	at   int64 // position of the next byte
	buf  []byte
	from int64 // position of buf in the object
	far  bool  // the last skip was long, so that the bytes between are not worth reading
}

// newCursor returns a cursor at the beginning of an object.
func newCursor(ctx context.Context, o Object) *objectCursor { return &objectCursor{ctx: ctx, o: o} }

func (c *objectCursor) pos() int64 { return c.at }

func (c *objectCursor) peek(n int) ([]byte, error) {
	left := c.o.Size() - c.at
	if n > mostPeek {
		return nil, fmt.Errorf("a peek of %d bytes", n)
	}
	want := int(min(int64(n), left))
	if c.at < c.from || c.at+int64(want) > c.from+int64(len(c.buf)) {
		if err := c.fill(want); err != nil {
			return nil, err
		}
	}
	b := c.buf[c.at-c.from:][:want]
	if want < n {
		return b, io.EOF
	}
	return b, nil
}

// fill reads at least n bytes from the position on.
func (c *objectCursor) fill(n int) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	room := c.o.Piece()
	if c.far {
		room = 4 << 10 // the start of a record; the next one is far away again
	}
	size := int(min(int64(max(room, n)), c.o.Size()-c.at))
	if cap(c.buf) < size {
		c.buf = make([]byte, max(size, min(c.o.Piece(), 64<<10)))
	}
	c.buf, c.from, c.far = c.buf[:size], c.at, false
	if size == 0 {
		return nil
	}
	if err := c.o.ReadAt(c.ctx, c.buf, c.at); err != nil {
		c.buf = c.buf[:0]
		return err
	}
	return nil
}

func (c *objectCursor) skip(n int64) error {
	if n < 0 || n > c.o.Size()-c.at {
		return errShort
	}
	c.at += n
	c.far = n >= int64(c.o.Piece())
	return nil
}

// streamCursor reads a stream.
type streamCursor struct {
	ctx  context.Context // of the listing
	from *bufio.Reader
	at   int64
}

func newStreamCursor(ctx context.Context, r io.Reader) *streamCursor {
	return &streamCursor{ctx: ctx, from: bufio.NewReaderSize(r, 1<<20)}
}

func (c *streamCursor) pos() int64 { return c.at }

func (c *streamCursor) peek(n int) ([]byte, error) {
	if n > mostPeek {
		return nil, fmt.Errorf("a peek of %d bytes", n)
	}
	return c.from.Peek(n)
}

func (c *streamCursor) skip(n int64) error {
	if n < 0 || n > math.MaxInt64-c.at {
		return errShort
	}
	for n > 0 {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		k, err := c.from.Discard(int(min(n, 1<<20)))
		c.at, n = c.at+int64(k), n-int64(k)
		if err == io.EOF {
			return errShort
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// summed is a cursor that computes the CRC-32C of what it passes.
type summed struct {
	cursor
	sum uint32
}

func (c *summed) skip(n int64) error {
	for n > 0 {
		b, err := c.peek(int(min(n, mostPeek)))
		if len(b) == 0 {
			return short(err)
		}
		c.sum = crc32.Update(c.sum, castagnoli, b)
		if err := c.cursor.skip(int64(len(b))); err != nil {
			return err
		}
		n -= int64(len(b))
	}
	return nil
}

// objectReader reads an object from front to back.
type objectReader struct {
	ctx context.Context // of the listing
	o   Object
	at  int64
}

func (r *objectReader) Read(p []byte) (int, error) {
	n := min(int64(len(p)), r.o.Size()-r.at)
	if n <= 0 {
		return 0, io.EOF
	}
	if err := r.o.ReadAt(r.ctx, p[:n], r.at); err != nil {
		return 0, err
	}
	r.at += n
	return int(n), nil
}

// packings are the first bytes of compressed files.
var packings = []struct{ begins, packing, end string }{
	{"\x1f\x8b\x08", "gzip", ".gz"}, {"\x28\xb5\x2f\xfd", "zstd", ".zst"}, {"BZh", "bzip2", ""}, {"\xfd7zXZ\x00", "xz", ""}, {"\x04\x22\x4d\x18", "lz4", ""},
}

// packed returns an error if a file begins like a compressed one.
func packed(start []byte) error {
	for _, p := range packings {
		if string(start[:min(len(start), len(p.begins))]) != p.begins {
			continue
		}
		if p.end == "" {
			return fmt.Errorf("it is compressed with %s, so its records have no positions: unpack it", p.packing)
		}
		return fmt.Errorf("it is compressed with %s, so its records have no positions: unpack it, or name it *%s and give --stream", p.packing, p.end)
	}
	return nil
}
