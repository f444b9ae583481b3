package fetch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"

	"lcache/internal/disk/offheap"
	"lcache/logfile"
	"lcache/sample"
)

// packedMemory lends page-aligned buffers for compressed bytes that are unpacked into other memory. The sum of lent and pooled bytes
// never exceeds limit.
type packedMemory struct {
	limit int64
	sem   *semaphore.Weighted // bytes

	mu   sync.Mutex // guards the fields that follow
	kept [][]byte   // pooled buffers, of keptBytes each
}

const (
	keptBytes = 256 << 10 // most samples fit
	keptMost  = 16
)

func newPackedMemory(limit int64) *packedMemory {
	limit = max(limit, keptBytes)
	return &packedMemory{limit: limit, sem: semaphore.NewWeighted(limit)}
}

// take waits for n bytes. The returned buffer may be longer if n is small.
func (m *packedMemory) take(ctx context.Context, n int) ([]byte, error) {
	size := max(n, keptBytes)
	if int64(size) > m.limit {
		return nil, fmt.Errorf("%d bytes exceed the decompression buffers of %d bytes", size, m.limit)
	}
	if err := m.sem.Acquire(ctx, int64(size)); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if size > keptBytes {
		m.dropLocked()
	} else if k := len(m.kept); k > 0 {
		buf := m.kept[k-1]
		m.kept = m.kept[:k-1]
		return buf, nil
	}
	buf, err := offheap.Make[byte](size)
	if err != nil {
		m.sem.Release(int64(size))
	}
	return buf, err
}

func (m *packedMemory) give(buf []byte) {
	size := int64(len(buf))
	m.mu.Lock()
	keep := size == keptBytes && len(m.kept) < keptMost
	if keep {
		m.kept = append(m.kept, buf)
	}
	m.mu.Unlock()
	if !keep {
		offheap.Free(buf)
	}
	m.sem.Release(size)
}

// close frees the pooled buffers. No buffer may be lent.
func (m *packedMemory) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropLocked()
}

func (m *packedMemory) dropLocked() {
	for _, buf := range m.kept {
		offheap.Free(buf)
	}
	m.kept = nil
}

// errNoBuffer is the error of a random read that got no buffer in time. It does not make the location bad.
var errNoBuffer = errors.New("no buffer to decompress the sample in time")

// readPacked is readPlace for a compressed sample. It reads the compressed bytes into a separate buffer and unpacks them into dst, which
// has the sample's size. A late answer writes to the separate buffer, so dst is free for the next supplier.
func (f *Fetcher) readPacked(ctx context.Context, lf *logfile.Logfile, seg int, off uint64, index sample.Index, dst []byte) ([]byte, error) {
	mine, cancel := context.WithTimeout(ctx, f.o.LogTimeout)
	defer cancel()
	n := f.o.Form.Length(index)
	if n == 0 {
		return nil, fmt.Errorf("sample %d: its compressed length is unknown: %w", index, logfile.ErrHole)
	}
	buf, err := f.packed.take(mine, logfile.Span(off, n))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoBuffer, err)
	}
	data, err := f.readLog(mine, lf.Read, seg, off, n, buf)
	var pending *logfile.PendingError
	if errors.As(err, &pending) {
		f.Stats.Timeouts.Add(1)
		f.After(pending.Done, func() { f.packed.give(buf) })
		return nil, err
	}
	defer f.packed.give(buf)
	if err == nil && f.o.Form.Unpack(index, data, dst) != nil {
		return nil, nil // treated as bytes with a wrong checksum
	}
	return dst, err
}
