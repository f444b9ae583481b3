package records

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// arrow:PATTERN serves the rows of Arrow IPC files and streams, as the datasets package of Hugging Face writes them. A row has one part for each
// column of bytes, text or lists of numbers. Only metadata, offsets and the bitmaps of nulls are read, no value.

const (
	arrowMagic   = "ARROW1"
	mostMetadata = 64 << 20 // bytes of a message's metadata
)

// arrow is the format of arrow:PATTERN.
type arrow struct {
	set  Settings
	same sameColumns
}

func newArrow(s Settings) (Format, error) { return &arrow{set: s}, nil }

// Index implements [Format].
func (a *arrow) Index(ctx context.Context, _ Files, name string, o Object, t *Table) error {
	return a.list(name, &arrowReader{ctx: ctx, o: o, t: t})
}

func (a *arrow) list(name string, r *arrowReader) error {
	for {
		m, err := r.next()
		if err != nil || m == nil {
			if err == nil && r.schema == nil {
				err = errors.New("it has no schema: it is not an Arrow file")
			}
			return err
		}
		switch m.kind {
		case messageSchema:
			if r.schema != nil {
				return errors.New("it has a second schema: write it again")
			}
			if err := a.begin(r, name, m); err != nil {
				return err
			}
		case messageBatch:
			if r.schema == nil {
				return errors.New("it has rows before its schema: it is damaged, or not an Arrow file")
			}
			if err := r.batch(m); err != nil {
				return err
			}
		}
	}
}

// begin chooses the columns of a shard.
func (a *arrow) begin(r *arrowReader, name string, m *arrowMessage) (err error) {
	if r.schema, err = parseArrowSchema(&m.flat, m.header); err != nil {
		return err
	}
	s := r.schema
	leaves, fields := s.leaves()
	chosen, err := chooseLeaves(leaves, a.set, s.features)
	if err != nil {
		return err
	}
	label, err := chooseLabel(a.set, s.features, s.integers())
	if err != nil {
		return err
	}
	if err := a.same.check(name, chosen, label); err != nil {
		return err
	}
	for _, l := range chosen {
		part, err := r.t.Part(l.name)
		if err != nil {
			return err
		}
		r.columns = append(r.columns, arrowColumn{leaf: fields[l.at], name: l.name, part: part})
	}
	if label != "" {
		at := slices.IndexFunc(s.fields, func(f *arrowField) bool { return f.name == label })
		r.label = &arrowColumn{leaf: arrowLeaf{field: s.fields[at]}, name: label}
		r.t.Classes = s.features[label].Names
	}
	return nil
}

// Kinds of messages.
const (
	messageSchema     = 1
	messageDictionary = 2
	messageBatch      = 3
)

// arrowMessage is the metadata of a message.
type arrowMessage struct {
	flat       flat
	kind       int
	header     flatTable
	body, size int64 // of the body in the file
}

// arrowReader reads one file.
type arrowReader struct {
	ctx context.Context
	o   Object
	t   *Table
	pos int64 // of the next message
	end int64 // of the last message: that of a stream, or the footer of a file

	schema  *arrowSchema
	columns []arrowColumn
	label   *arrowColumn // nil: there are no labels
	buf     []byte

	decoding      *decoding // nil: ranges of the file are listed
	unpacked      []unpackedBuffer
	unpackedBytes int64
}

// read returns n bytes of the file, which are valid until the next call.
func (r *arrowReader) read(off, n int64) ([]byte, error) {
	if off >= unpackedAt {
		return r.unpackedPart(off, n)
	}
	if off < 0 || n < 0 || off > r.o.Size()-n {
		return nil, fmt.Errorf("it is truncated: it should have bytes up to %d, and has %d: copy or write it again", off+n, r.o.Size())
	}
	r.buf = slices.Grow(r.buf[:0], int(n))[:n]
	if n == 0 {
		return r.buf, nil
	}
	return r.buf, r.o.ReadAt(r.ctx, r.buf, off)
}

// next reads the metadata of the next message; nil: there is none.
func (r *arrowReader) next() (*arrowMessage, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	size := r.o.Size()
	if r.pos == 0 {
		b, err := r.read(0, min(8, size))
		if err != nil {
			return nil, err
		}
		r.end = size
		switch {
		case strings.HasPrefix(string(b), arrowMagic):
			r.pos = 8
			if r.end, err = r.footer(); err != nil {
				return nil, err
			}
		case strings.HasPrefix(string(b), "FEA1"):
			return nil, errors.New("it is a Feather file of version 1: write it again as Arrow (pyarrow.feather.write_feather, compression=\"uncompressed\")")
		case strings.HasPrefix(string(b), "PAR1"):
			return nil, errors.New("it is a Parquet file: give parquet: and its path")
		case size < 8:
			return nil, fmt.Errorf("it has %d bytes: it is not an Arrow file, or its writer has not ended: write it again, or leave it out", size)
		}
	}
	if r.pos == r.end && r.schema != nil { // it may end without a mark
		return nil, nil
	}
	b, err := r.read(r.pos, min(8, r.end-r.pos))
	if err != nil {
		return nil, err
	}
	f := flat{b: b}
	length, head := f.i32(0), int64(4)
	if length == -1 {
		length, head = f.i32(4), 8
	}
	if f.bad {
		return nil, fmt.Errorf("it is truncated: it ends at byte %d within a message: copy or write it again", r.end)
	}
	if length == 0 && r.schema == nil {
		return nil, nil
	}
	if length == 0 {
		return nil, r.ended(r.pos + head)
	}
	if length < 0 || length > mostMetadata {
		if r.schema == nil {
			return nil, errors.New("it is not an Arrow file: check the pattern")
		}
		return nil, fmt.Errorf("%w (at byte %d)", errDamagedArrow, r.pos)
	}
	at := r.pos + head
	if b, err = r.read(at, int64(length)); err != nil {
		if r.schema == nil && r.ctx.Err() == nil && at > size-int64(length) {
			return nil, errors.New("it is not an Arrow file, or it is truncated: check the pattern")
		}
		return nil, err
	}
	return r.message(slices.Clone(b), at+int64(length))
}

// footer returns where the footer of a file in the file format begins:
//
//	"ARROW1", padding, the messages of a stream, the footer, its length in 4 bytes, "ARROW1"
//
// A program that is stopped while it writes leaves a file without one.
func (r *arrowReader) footer() (int64, error) {
	size := r.o.Size()
	least := int64(len(arrowMagic)) + 4
	if size >= 8+least {
		b, err := r.read(size-least, least)
		if err != nil {
			return 0, err
		}
		if n := int64(int32(binary.LittleEndian.Uint32(b))); string(b[4:]) == arrowMagic {
			if n <= 0 || n > size-8-least {
				return 0, fmt.Errorf("it is damaged at byte %d: its footer can't have %d bytes: copy or write it again", size-least, n)
			}
			return size - least - n, nil
		}
	}
	return 0, fmt.Errorf("it is damaged at byte %d: it ends without its footer, because it is truncated, or was not closed: copy or write it again", size)
}

// mostPadding is the maximum number of zeros in front of the footer, or at the end of a stream. A message with rows is longer.
const mostPadding = 64

// ended checks that the mark of the end, which ends at a position, is the last thing. The tail of a file is zeros after a loss of power, which look like
// that mark.
func (r *arrowReader) ended(at int64) error {
	if rest := r.end - at; rest <= mostPadding {
		b, err := r.read(at, rest)
		if err != nil {
			return err
		}
		if len(bytes.Trim(b, "\x00")) == 0 {
			return nil
		}
	}
	return fmt.Errorf("it is damaged at byte %d: its rows end there, and %d bytes follow: copy or write it again", r.pos, r.end-at)
}

// message parses the metadata of a message whose body begins at a position.
func (r *arrowReader) message(b []byte, body int64) (*arrowMessage, error) {
	m := &arrowMessage{flat: flat{b: b}, body: body}
	f := &m.flat
	root := f.root()
	m.kind, m.size = f.fieldU8(root, 1), f.fieldI64(root, 3)
	header, ok := f.sub(root, 2)
	m.header = header
	if f.bad || !ok {
		return nil, fmt.Errorf("%w (before byte %d)", errDamagedArrow, body)
	}
	if m.size < 0 || m.size > r.o.Size()-body {
		return nil, fmt.Errorf("it is truncated: its rows from number %d on end at byte %d, and it has %d: copy or write it again", r.t.Len(), uint64(body)+uint64(m.size), r.o.Size())
	}
	if m.size > r.end-body {
		return nil, fmt.Errorf("%w (before byte %d)", errDamagedArrow, body)
	}
	r.pos = body + m.size
	return m, nil
}
