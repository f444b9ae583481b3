package cache

import (
	"context"
	"errors"

	"lcache/internal/disk/blockio"
	"lcache/logfile"
)

// A Buffer is memory that parts of the log are read to, one after the other.
type Buffer struct{ mem []byte }

// NewBuffer returns a Buffer of so many bytes, which are a multiple of 4096. Free gives them back.
func NewBuffer(bytes int) (*Buffer, error) {
	mem, err := blockio.Alloc(bytes)
	return &Buffer{mem}, err
}

// Free gives the memory back.
func (b *Buffer) Free() {
	if b.mem != nil {
		blockio.Free(b.mem)
		b.mem = nil
	}
}

// Holds reports whether n bytes at an offset find room.
func (b *Buffer) Holds(off uint64, n int) bool { return logfile.Span(off, n) <= len(b.mem) }

// Read reads bytes of a segment's string ahead of their need. They stay until the next Read. A device that does not answer keeps the memory until it does, and the Buffer has other memory from then on.
func (b *Buffer) Read(ctx context.Context, l *logfile.Logfile, seg int, off uint64, n int) ([]byte, error) {
	data, err := l.ReadAhead(ctx, seg, off, n, b.mem)
	pending := new(logfile.PendingError)
	if !errors.As(err, &pending) {
		return data, err
	}
	FreeAfter(pending, b.mem)
	size := len(b.mem)
	b.mem = nil
	fresh, allocErr := blockio.Alloc(size)
	if allocErr == nil {
		b.mem = fresh
	}
	return nil, errors.Join(err, allocErr)
}
