package tarshard

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// IndexStream is [Index] for a shard that can only be read from front to back. raw has the stored bytes of the shard,
// size in number, which are packed if the shard's name says so. name is the shard's, for errors. IndexStream reads
// raw to its end, so that a packed shard with a missing or damaged end causes an error now.
func IndexStream(ctx context.Context, name string, raw io.Reader, size int64) ([]Member, error) {
	s := &stream{ctx: ctx, raw: raw}
	known := size
	s.from = bufio.NewReaderSize(noted{s}, 1<<20)
	if size == 0 {
		return nil, tooSmall(name, size)
	}
	if packing := Packing(name); packing != "" {
		tar, err := Unpack(packing, s.from)
		if err != nil {
			return nil, s.broken(name, err)
		}
		defer tar.Close()
		known, s.from = -1, bufio.NewReaderSize(tar, 1<<20)
	}
	start, err := s.from.Peek(blockSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, s.broken(name, err)
	}
	if err := checkStart(name, bytes.NewReader(start)); err != nil {
		return nil, err
	}
	if len(start) < blockSize {
		return nil, tooSmall(name, int64(len(start)))
	}
	members, err := list(ctx, name, s, known)
	if err != nil {
		if s.damage != nil && ctx.Err() == nil {
			err = s.broken(name, s.damage)
		}
		return nil, err
	}
	if _, err := io.Copy(io.Discard, s); err != nil { // the end has a checksum
		return nil, s.broken(name, err)
	}
	return members, nil
}

// A stream is a track that can't seek.
type stream struct {
	ctx    context.Context // of one IndexStream
	raw    io.Reader
	from   *bufio.Reader // the tar
	pos    int64         // position in the tar
	err    error         // of raw
	damage error         // of the decompressor
}

func (s *stream) offset() int64  { return s.pos }
func (s *stream) trouble() error { return s.err }

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	s.pos += int64(n)
	if err != nil && err != io.EOF {
		s.damage = err
	}
	return n, err
}

// noted keeps the error of a stream's raw bytes, as opposed to one of their format.
type noted struct{ s *stream }

func (n noted) Read(p []byte) (int, error) {
	if err := n.s.ctx.Err(); err != nil {
		return 0, err
	}
	k, err := n.s.raw.Read(p)
	if err != nil && err != io.EOF {
		n.s.err = err
	}
	return k, err
}

// broken returns the error of a damaged packed shard.
func (s *stream) broken(name string, err error) error {
	switch {
	case s.ctx.Err() != nil:
		return s.ctx.Err()
	case s.err != nil:
		return fmt.Errorf("shard %s: %w", clip(name), s.err)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("shard %s is truncated: its %s ends too early: copy or write it again", clip(name), Packing(name))
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, zstd.ErrMagicMismatch):
		return fmt.Errorf("shard %s is not what its name says: it is not %s: check the pattern", clip(name), Packing(name))
	}
	return fmt.Errorf("shard %s is damaged: its %s can't be unpacked (%w): copy or write it again", clip(name), Packing(name), err)
}

// End returns the end of the last member of a tar that has bytes in it.
func End(members []Member) (end uint64) {
	for _, m := range members {
		if m.Kind == File {
			end = max(end, uint64(m.Off)+uint64(m.Size))
		}
	}
	return end
}
