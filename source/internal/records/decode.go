package records

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

const (
	mostDecoded = 1 << 30   // bytes of a page or buffer that is decompressed
	mostList    = 256 << 20 // bytes of a list that is put together
)

// decoding takes the samples of a shard that is decoded: it describes each in a table, and writes its parts.
type decoding struct {
	t     *Table
	w     io.Writer
	at    int64 // position of the next part in the decoded shard
	cells []Cell
	bytes [][]byte
}

// part adds a part to the next sample. data must stay valid until the end of the sample.
func (d *decoding) part(part int, data []byte) {
	d.cells = append(d.cells, Cell{Part: part, Off: d.at, Size: int64(len(data))})
	d.bytes = append(d.bytes, data)
	d.at += int64(len(data))
}

// end ends a sample.
func (d *decoding) end(label int32) error {
	err := d.t.Add("", label, d.cells...)
	for _, b := range d.bytes {
		if err == nil {
			_, err = d.w.Write(b)
		}
	}
	d.cells, d.bytes = d.cells[:0], d.bytes[:0]
	return err
}

// unpackBlock decompresses a page or buffer whose size is known. It may use the memory of out.
func unpackBlock(codec string, b []byte, size int64, out []byte) ([]byte, error) {
	if size < 0 || size > mostDecoded {
		return nil, fmt.Errorf("it says that it has %d bytes, at most %d: write it in smaller pieces, or copy it again", size, mostDecoded)
	}
	if most, ok := mostRatio[codec]; ok && size/most > int64(len(b)) {
		return nil, fmt.Errorf("%d bytes of it can't be %d: copy or write it again", len(b), size)
	}
	if int64(cap(out)) < size {
		out = make([]byte, size)
	}
	out = out[:size]
	n, err := decompress(codec, b, out)
	if err == nil && n != len(out) {
		err = fmt.Errorf("it has %d bytes, want %d", n, size)
	}
	if err != nil {
		return nil, fmt.Errorf("it can't be decompressed by %s: %w: copy or write it again", codec, err)
	}
	return out, nil
}

// mostRatio is the maximum number of bytes that a byte can stand for, by codec; zstd and Brotli have none.
var mostRatio = map[string]int64{"SNAPPY": 64, "GZIP": 1100, "LZ4_RAW": 256, "LZ4_FRAME": 256}

// decompress fills out, and returns the number of bytes that there are.
func decompress(codec string, b, out []byte) (n int, err error) {
	stream := func(r io.Reader) (int, error) {
		n, err := io.ReadFull(r, out)
		if err == nil {
			var more [1]byte
			if k, _ := r.Read(more[:]); k > 0 {
				return n, errors.New("it has more bytes than it says")
			}
		}
		return n, err
	}
	switch codec {
	case "SNAPPY":
		if n, err = s2.DecodedLen(b); err == nil && n == len(out) {
			_, err = s2.Decode(out, b)
		}
	case "GZIP":
		var r *gzip.Reader
		if r, err = gzip.NewReader(bytes.NewReader(b)); err == nil {
			n, err = stream(r)
		}
	case "BROTLI":
		n, err = stream(brotli.NewReader(bytes.NewReader(b)))
	case "ZSTD":
		var d *zstd.Decoder
		if d, err = zstd.NewReader(bytes.NewReader(b), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20)); err == nil {
			n, err = stream(d)
			d.Close()
		}
	case "LZ4_RAW":
		n, err = lz4.UncompressBlock(b, out)
	case "LZ4_FRAME":
		n, err = stream(lz4.NewReader(bytes.NewReader(b)))
	default:
		err = errors.New("this codec is not supported")
	}
	return n, err
}
