package cache

import (
	"context"
	"errors"

	"lcache/internal/disk/blockio"
	"lcache/logfile"
)

// A Buffer is memory for successive reads of parts of the log.
type Buffer struct{ mem []byte }

// NewBuffer returns a Buffer of some bytes, a multiple of 4096. Free frees it.
func NewBuffer(bytes int) (*Buffer, error) {
	mem, err := blockio.Alloc(bytes)
	return &Buffer{mem}, err
}

// Free frees the memory.
func (b *Buffer) Free() {
	if b.mem != nil {
		blockio.Free(b.mem)
		b.mem = nil
	}
}

// Holds reports whether n bytes at an offset fit.
func (b *Buffer) Holds(off uint64, n int) bool { return logfile.Span(off, n) <= len(b.mem) }

// Read reads bytes of a segment's byte string ahead. The result is valid until the next Read. If a device does not answer, its late answer
// may still write to the memory, so the Buffer gets new memory.
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
