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

// mostPieces is how many readers of shards work side by side if nobody says how many. However small the samples are, each reader has a piece of a shard in memory and a copy of its samples. So many
// readers keep all bytes that may be under way in flight, while some of them store.
const mostPieces = 24

// cut cuts the samples that are to be read into runs, one after the other, each for one reader. It returns their ends. Of a source that reads neighbours together a run is as large as such a
// piece.
func (in *run) cut(todo []sample.Index) (ends []int) {
	if !in.sharded() {
		for at := readRun; at < len(todo); at += readRun {
			ends = append(ends, at)
		}
		return append(ends, len(todo))
	}
	from, start := 0, uint64(0) // of a run: its first sample, and where that lies
	m := in.cache.Manifest
	for i, index := range todo {
		at, end := m.Span(index)
		if i == 0 {
			start = at
		}
		if in.streamed(index) { // one reader reads all of the shard
			if i > from && m.ShardOf(index) != m.ShardOf(todo[i-1]) {
				ends, from, start = append(ends, i), i, at
			}
			continue
		}
		if i > from && (in.streamed(todo[i-1]) || end-start > source.MostTogether || i-from == mostRun) {
			ends, from, start = append(ends, i), i, at
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

// each reads the samples of a run, neighbours together where the source can do that, and hands each on, with the inode that it was read from. data is valid until take returns.
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

// read reads some samples into parts. What can't be read together is read one by one, with retries, and its error names the sample.
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
