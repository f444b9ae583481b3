package ingest

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"lcache/sample"
	"lcache/source"
)

// readRun is the number of samples that a reader of the source takes at once. It is small, so that all readers end at about the same time.
const readRun = 16

// mostRun is the number of samples in a run of neighbours.
const mostRun = 4096

// mostPieces is the default number of concurrent readers of shards. Each reader has a piece of a shard in memory and a copy of its samples, even
// if the samples are small. This number keeps the maximum of bytes in flight while some of the readers store samples.
const mostPieces = 24

// cut cuts the samples to read into runs, one after the other, each for one reader. It returns their ends. For a source that reads neighbours
// together, a run is as large as one such read.
func (in *run) cut(todo []sample.Index) (ends []int) {
	if !in.sharded() {
		for at := readRun; at < len(todo); at += readRun {
			ends = append(ends, at)
		}
		return append(ends, len(todo))
	}
	from, start, held := 0, uint64(0), uint64(0) // of a run: its first sample, that sample's position, and the bytes of its samples
	m := in.cache.Manifest
	for i, index := range todo {
		at, end := m.Span(index)
		if i == 0 {
			start = at
		}
		if in.streamed(index) { // one reader reads the whole shard
			if i > from && m.ShardOf(index) != m.ShardOf(todo[i-1]) {
				ends, from, start = append(ends, i), i, at
			}
			continue
		}
		held += uint64(m.Size(index))
		// Positions of records may descend, and their parts may be far apart.
		if i > from && (in.streamed(todo[i-1]) || at < start || end-start > source.MostTogether || held > source.MostTogether || i-from == mostRun) {
			ends, from, start, held = append(ends, i), i, at, uint64(m.Size(index))
		}
	}
	return append(ends, len(todo))
}

// reader is one goroutine that reads samples from the source.
type reader struct {
	in      *run
	names   *sample.Reader
	entries []sample.Entry
	buf     []byte
	parts   [][]byte      // of buf, one for each sample that is read together
	waited  *atomic.Int64 // nanoseconds for the source, of all readers
}

// each reads the samples of a run, with neighbours together if the source can do that. It passes each to take, with the inode that it was read from. data is valid until take returns.
func (r *reader) each(ctx context.Context, run []sample.Index, take func(e sample.Entry, index sample.Index, data []byte) error) error {
	for some := range slices.Chunk(run, mostRun) {
		if err := r.some(ctx, some, take); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) some(ctx context.Context, run []sample.Index, take func(e sample.Entry, index sample.Index, data []byte) error) error {
	sharded, _ := r.in.cache.Lister.(source.Sharded)
	r.entries = r.entries[:0]
	for _, index := range run {
		e, err := r.names.Entry(index)
		if err != nil {
			return err
		}
		r.entries = append(r.entries, e)
	}
	for from := 0; from < len(run); {
		n := 1
		if sharded != nil {
			n = sharded.Together(r.entries[from:])
		}
		start := time.Now()
		err := r.read(ctx, sharded, r.entries[from:from+n])
		r.waited.Add(int64(time.Since(start)))
		if err != nil {
			return err
		}
		for k, data := range r.parts {
			if err := take(r.entries[from+k], run[from+k], data); err != nil {
				return err
			}
		}
		from += n
	}
	return nil
}

// read reads some samples into parts. If they can't be read together, they are read one by one, with retries, and an error names the sample.
func (r *reader) read(ctx context.Context, sharded source.Sharded, entries []sample.Entry) error {
	size := 0
	for _, e := range entries {
		size += int(e.Size)
	}
	r.buf, r.parts = slices.Grow(r.buf[:0], size)[:size], r.parts[:0]
	rest := r.buf
	for _, e := range entries {
		r.parts, rest = append(r.parts, rest[:e.Size:e.Size]), rest[e.Size:]
	}
	if len(entries) > 1 && sharded.ReadTogether(ctx, entries, r.parts) == nil {
		return nil
	}
	for i, e := range entries {
		if err := r.in.cache.Source.Read(source.WithInode(ctx, &entries[i].Inode), e, r.parts[i]); err != nil {
			return err
		}
	}
	return nil
}
