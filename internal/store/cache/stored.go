package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"lcache/chunker"
	"lcache/internal/compress"
	"lcache/internal/errcode"
	"lcache/logfile"
	"lcache/sample"
)

// Packing is the part of job.json about compression. It is fixed when the cache is made.
type Packing struct {
	Compress string   `json:"compress,omitempty"`     // "lz4"; "": none
	Saves    *float64 `json:"saves,omitempty"`        // share of bytes that lz4 saved on a part of the data; nil: not measured
	Stored   uint64   `json:"stored_bytes,omitempty"` // estimate of the bytes that all samples take in the log, padded
	Room     uint64   `json:"room,omitempty"`         // bytes that samples may take in the log: a sample beyond it is refused
}

// IsPacked reports whether the cache compresses.
func (p Packing) IsPacked() bool { return p.Compress != "" }

// CompressName returns the name of the compression, or "none".
func (p Packing) CompressName() string {
	if p.IsPacked() {
		return p.Compress
	}
	return "none"
}

// LZ4 is the only compression.
const LZ4 = "lz4"

const lengthBytes = 8 // of an entry of the compressed lengths

// openLengths opens the stored lengths of a cache that compresses, and returns the bytes that every sample takes in the log. Without compression these
// are the manifest's sizes. If the file is missing, it is made empty: then no sample in the log can be read.
func (c *Cache) openLengths() ([]uint32, error) {
	if !c.Record.IsPacked() {
		return c.Manifest.Sizes(), nil
	}
	if c.Record.Compress != LZ4 {
		return nil, errcode.Errorf(errcode.Version, "%s is compressed with %q, this lcache knows lz4: use the lcache that made the cache, or ingest again", c.Dirs[0], c.Record.Compress)
	}
	path := filepath.Join(c.Dirs[0], LengthsName)
	if c.readOnly {
		return c.readLengths(path)
	}
	var err error
	c.Lengths, err = sample.OpenLengths(path, c.Manifest.Fingerprint(), c.Manifest.Sizes())
	if errors.Is(err, sample.ErrCorrupt) || errors.Is(err, sample.ErrOtherManifest) {
		c.Logger.Warn("the compressed lengths are damaged; all samples are read from the source again", "error", err)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		c.Lengths, err = sample.OpenLengths(path, c.Manifest.Fingerprint(), c.Manifest.Sizes())
	}
	if err != nil {
		return nil, err
	}
	return c.Lengths.All(), nil
}

// CloseLengths closes the stored lengths, if there are any.
func (c *Cache) CloseLengths() error {
	l := c.Lengths
	if c.Lengths = nil; l == nil {
		return nil
	}
	return l.Close()
}

// syncLengths makes the stored lengths durable.
func (c *Cache) syncLengths() error {
	if c.Lengths == nil {
		return nil
	}
	return c.Lengths.Sync()
}

// StoredSize returns the bytes that a sample takes in the log.
func (c *Cache) StoredSize(index sample.Index) int {
	if c.Form != nil {
		return c.Form.Length(index)
	}
	return int(c.Manifest.Size(index))
}

// Padded returns the bytes of the log that a sample takes.
func (c *Cache) Padded(index sample.Index) int64 {
	return int64(chunker.Padded(uint32(c.StoredSize(index)), c.Format.Align))
}

// Refuses reports whether the log has no room for a sample because the data compresses less than the part that was measured.
func (c *Cache) Refuses(index sample.Index) bool { return c.Form != nil && c.Form.Refuses(index) }

// AppendTo appends a sample's plain bytes to a segment of a Logfile, packed if the cache compresses, and returns the offset.
func (c *Cache) AppendTo(ctx context.Context, l *logfile.Logfile, seg int, index sample.Index, plain []byte) (off uint64, err error) {
	if c.Form == nil {
		return l.Append(ctx, seg, index, plain)
	}
	err = c.Form.Pack(ctx, index, plain, func(data []byte) (err error) {
		off, err = l.Append(ctx, seg, index, data)
		return err
	})
	return off, err
}

// Pack puts a sample's plain bytes into open package number open, compressed if the cache compresses, and returns the package's number and
// the offset in it. logfile.ErrFull also means that a compressed sample has no room, or has other bytes than the stored ones.
func (c *Cache) Pack(ctx context.Context, p *logfile.Packages, lane int, index sample.Index, plain []byte) (number int, off uint64, err error) {
	return c.pack(ctx, index, plain, func(data []byte) (int, uint64, error) { return p.Put(ctx, lane, index, data) })
}

// TryPack is Pack without waiting. It tries the open packages from number lane on. The error is logfile.ErrWaits if none can take the sample now.
func (c *Cache) TryPack(p *logfile.Packages, lane int, index sample.Index, plain []byte) (number int, off uint64, err error) {
	return c.pack(logfile.NoWait(), index, plain, func(data []byte) (int, uint64, error) { return p.TryPut(lane, index, data) })
}

// pack calls put with a sample's stored bytes.
func (c *Cache) pack(ctx context.Context, index sample.Index, plain []byte, put func([]byte) (int, uint64, error)) (number int, off uint64, err error) {
	if c.Form == nil {
		return put(plain)
	}
	err = c.Form.Pack(ctx, index, plain, func(data []byte) (err error) {
		number, off, err = put(data)
		return err
	})
	if errors.Is(err, compress.ErrRoom) || errors.Is(err, compress.ErrLength) {
		err = fmt.Errorf("%w: %w", logfile.ErrFull, err)
	}
	return number, off, err
}
