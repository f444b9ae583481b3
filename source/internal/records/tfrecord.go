package records

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// tfrecord:PATTERN has the records of TFRecord files. A file is a sequence of
//
//	u64     length of the data, little-endian
//	u32     masked CRC-32C of these 8 bytes
//	        data
//	u32     masked CRC-32C of the data
//
// The listing checks the first checksum; the first read of a record checks the second one (checkTFRecord). With --feature NAME the data is a
// tf.train.Example, and a part is the bytes of a feature in it; then the listing checks both.

const (
	tfrecordHead = 12 // length and its checksum
	tfrecordTail = 4  // checksum of the data
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns a CRC-32C as a TFRecord file has it.
func masked(c uint32) uint32 { return (c>>15 | c<<17) + 0xa282ead8 }

var errSum = errors.New("the checksum (CRC-32C) of its data is wrong: the file is damaged: copy or write it again")

// checkTFRecord compares the data of a record with the four bytes after it.
func checkTFRecord(data, after []byte) error {
	if masked(crc32.Checksum(data, castagnoli)) != binary.LittleEndian.Uint32(after) {
		return errSum
	}
	return nil
}

type tfrecord struct {
	PatternShards
	example *exampleWanted // nil: a part is the whole record
}

func newTFRecord(set Settings) (Format, error) {
	f := &tfrecord{}
	if len(set.Features) > 0 || set.LabelFeature != "" {
		f.example = &exampleWanted{features: set.Features, label: set.LabelFeature, unlabelled: set.NoLabels}
	}
	return f, nil
}

// Index implements [Format].
func (f *tfrecord) Index(ctx context.Context, _ Files, _ string, o Object, t *Table) error {
	return f.read(newCursor(ctx, o), o.Size(), t)
}

// IndexStream implements [Sequential].
func (f *tfrecord) IndexStream(ctx context.Context, _ string, r io.Reader, t *Table) error {
	return f.read(newStreamCursor(ctx, r), -1, t)
}

// read adds all records. size is the file's; -1: not known.
func (f *tfrecord) read(c cursor, size int64, t *Table) error {
	var parser exampleParser
	if f.example != nil {
		if err := parser.begin(f.example, t); err != nil {
			return err
		}
	} else if _, err := t.Part(defaultPart); err != nil {
		return err
	}
	for row := 0; ; row++ {
		start := c.pos()
		head, err := c.peek(tfrecordHead)
		if err != nil && err != io.EOF {
			return err
		}
		if len(head) == 0 {
			return nil
		}
		length, err := tfrecordLength(head, row, start)
		if err != nil {
			return err
		}
		if size >= 0 && length > size-start-tfrecordHead-tfrecordTail {
			return truncated(row, start)
		}
		if err := c.skip(tfrecordHead); err != nil {
			return err
		}
		if f.example == nil {
			err = t.Add("", 0, Cell{Off: start + tfrecordHead, Size: length})
		} else {
			err = parseSummed(c, length, &parser)
		}
		if err == nil {
			err = c.skip(start + tfrecordHead + length + tfrecordTail - c.pos())
		}
		if errors.Is(err, errShort) {
			return truncated(row, start)
		}
		if err != nil {
			return fmt.Errorf("record %d, at byte %d: %w", row, start, err)
		}
	}
}

// parseSummed parses the Example of length bytes at the cursor, and checks its checksum, which comes after it.
func parseSummed(c cursor, length int64, parser *exampleParser) error {
	end := c.pos() + length
	all := &summed{cursor: c}
	wrong := parser.parse(all, length)
	if wrong != nil && !errors.Is(wrong, errShort) {
		return wrong
	}
	if err := all.skip(end - c.pos()); err != nil {
		return err
	}
	after, err := c.peek(tfrecordTail)
	if len(after) < tfrecordTail {
		return short(err)
	}
	if masked(all.sum) != binary.LittleEndian.Uint32(after) {
		return errSum
	}
	return wrong
}

// tfrecordLength returns the length in the header of a record.
func tfrecordLength(head []byte, row int, start int64) (int64, error) {
	if len(head) == tfrecordHead && masked(crc32.Checksum(head[:8], castagnoli)) == binary.LittleEndian.Uint32(head[8:]) {
		length := binary.LittleEndian.Uint64(head)
		if length > math.MaxUint32 {
			return 0, fmt.Errorf("record %d, at byte %d, has %d bytes, and a sample must have less than 4 GiB", row, start, length)
		}
		return int64(length), nil
	}
	if row == 0 {
		if err := packed(head); err != nil {
			return 0, err
		}
		return 0, errors.New("it is not a TFRecord file: the checksum of the first length is wrong")
	}
	if len(head) < tfrecordHead {
		return 0, truncated(row, start)
	}
	return 0, fmt.Errorf("record %d, at byte %d, has a wrong checksum of its length: the file is damaged: copy or write it again", row, start)
}

// truncated is the error of a record that is cut off.
func truncated(row int, start int64) error {
	return fmt.Errorf("it is truncated: record %d, which begins at byte %d, is not whole: copy or write it again", row, start)
}
