package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"lcache/internal/errcode"
	"lcache/sample"
	"lcache/source/internal/object"
	"lcache/source/internal/tarshard"
)

// TarScheme begins a source of tar shards: tar:PATTERN.
const TarScheme = "tar:"

// shardStore is where shards lie.
type shardStore interface {
	// names gives the names of all shards of a pattern, in order.
	names(pattern string) ([]string, error)

	// survey requests the sizes of the shards, if that takes a request for each. It returns the first shard's error.
	survey(ctx context.Context, names []string) error

	// open opens a shard as it is now, after survey. Errors are advice without the shard's name.
	open(ctx context.Context, name string) (openShard, error)

	// openListed opens a shard that must be the one that was listed. That may show only when it is read.
	openListed(ctx context.Context, listed sample.Shard) (openShard, error)

	// is reports whether a shard is the one that was listed, after survey, and whether it was reached through a link that leaves the store.
	is(ctx context.Context, listed sample.Shard) (same, outside bool)

	// check says whether a shard is still the one that was listed.
	check(ctx context.Context, listed sample.Shard) error

	Close() error
}

// openShard is a shard that is open for reading.
type openShard interface {
	tarshard.Object
	outside() bool  // it was reached through a link that leaves the store
	streamed() bool // it has no random access: it is packed, or its server gives no ranges
	close()

	// stream reads the shard as it is stored, front to back. ctx ends that.
	stream(ctx context.Context) io.ReadCloser
}

// shards is a source of tar files. Adjacent members of a file make up a sample. A sample's version is that of its shard.
type shards struct {
	src     string // as the user wrote it, cleaned
	pattern string // below the store
	store   shardStore
	remote  *object.Reader // of store; nil: it is on this machine
	opts    Options
	spans   sync.Pool // *[]byte, of reads of several samples
	flows   *flows    // of shards without random access
}

// TarFolder is the fixed folder of a tar: source on this machine: what stands before the first name with a brace, a bracket, a star, a question mark or a
// backslash. The names of shards are relative to it. rest is the pattern below it.
func TarFolder(src string) (folder, rest string) {
	pattern := filepath.Clean(strings.TrimPrefix(src, TarScheme))
	fixed := pattern
	if i := strings.IndexAny(pattern, `{[*?\`); i >= 0 {
		fixed = pattern[:i]
	}
	slash := strings.LastIndexByte(fixed, '/')
	switch slash {
	case -1:
		return ".", pattern
	case 0:
		return "/", pattern[1:]
	}
	return pattern[:slash], pattern[slash+1:]
}

func openTar(src string, opts Options) (Source, error) {
	pattern := strings.TrimPrefix(src, TarScheme)
	if scheme, _, found := strings.Cut(pattern, "://"); found && !IsRemote(src) && !strings.ContainsAny(scheme, "/.") {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: scheme %s:// is unknown: give a pattern of files, or one that begins with s3:// or https://", clip(withoutSecrets(src)), scheme)
	}
	if pattern == "" || strings.HasSuffix(pattern, "/") {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: it names no shard: give a pattern such as tar:/data/train-{000..146}.tar", clip(withoutSecrets(src)))
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if IsRemote(src) {
		store, rest, err := openShardObjects(pattern, &opts)
		if err != nil {
			return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: %w", clip(withoutSecrets(src)), err)
		}
		return &shards{src: src, pattern: rest, store: store, remote: store.reader, opts: opts, flows: newFlows()}, nil
	}
	s := &shards{src: TarScheme + filepath.Clean(pattern), opts: opts, flows: newFlows()}
	var folder string
	folder, s.pattern = TarFolder(src)
	store, err := openFolder(folder, opts)
	if err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: %w", clip(s.src), err)
	}
	s.store = store
	return s, nil
}

func (s *shards) String() string   { return s.src }
func (s *shards) Identity() string { return s.src }
func (s *shards) Close() error {
	s.flows.close()
	return s.store.Close()
}

// Requests counts those for shards over a network.
func (s *shards) Requests() (Requests, bool) {
	if s.remote == nil {
		return Requests{}, false
	}
	return s.remote.Counts(), true
}

// EndsSilence reports whether the shards are read over a network.
func (s *shards) EndsSilence() bool { return s.remote != nil }

// Read reads one sample, part by part.
func (s *shards) Read(ctx context.Context, e sample.Entry, dst []byte) error {
	if err := checkPlace(e, dst); err != nil {
		return &SampleError{e.Name, "read", err}
	}
	if from, to := span(e); (s.remote != nil || s.Streamed(*e.Shard)) && len(e.Parts) > 1 && to-from <= uint64(e.Size)+mostGap {
		if err := s.ReadTogether(ctx, []sample.Entry{e}, [][]byte{dst}); err != nil {
			return s.failed(ctx, e, err)
		}
		return nil
	}
	o, err := s.openAt(ctx, *e.Shard)
	if err != nil {
		return s.failed(ctx, e, err)
	}
	defer o.close()
	for i, p := range e.Parts {
		if err := s.readAt(ctx, o, *e.Shard, dst[:p.Size], int64(e.Offsets[i])); err != nil {
			return s.failed(ctx, e, err)
		}
		dst = dst[p.Size:]
	}
	return nil
}

func (s *shards) failed(ctx context.Context, e sample.Entry, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("read sample %s: %w", clip(e.Name), ctx.Err())
	}
	return &SampleError{e.Name, "read", fmt.Errorf("shard %s: %w", clip(e.Shard.Name), err)}
}

// checkPlace holds a request against its entry, which may come from a file.
func checkPlace(e sample.Entry, dst []byte) error {
	if e.Shard == nil || len(e.Offsets) != len(e.Parts) {
		return errors.New("it lies in no shard: list the source again")
	}
	if len(dst) != int(e.Size) {
		return fmt.Errorf("room for %d bytes, the sample has %d", len(dst), e.Size)
	}
	return checkParts(e)
}

// A Sharded source has samples side by side, and can read several in one piece.
type Sharded interface {
	Source

	// Together says how many of the first entries one piece brings: they are of one shard, lie close together, and the piece is not large.
	Together(entries []sample.Entry) int

	// ReadTogether reads the samples that Together counts, each into its place in dst. After an error the caller reads them one by one, to find the sample that failed.
	ReadTogether(ctx context.Context, entries []sample.Entry, dst [][]byte) error

	// Streamed reports whether a shard has no random access. To read some of it costs all that lies before; its samples, read one after the other, cost reading it once.
	Streamed(shard sample.Shard) bool
}

const (
	// MostTogether is how large a piece may be that several samples are read in.
	MostTogether = 4 << 20
	// mostNear is how large one may be of a file on this machine: it and the copies of its samples fit into a core's cache, and asking costs little.
	mostNear = 512 << 10
	// mostGap is how many bytes of no sample may lie between two of a piece.
	mostGap = 256 << 10
)

// Together makes shards a [Sharded] source.
func (s *shards) Together(entries []sample.Entry) int {
	if len(entries) == 0 || entries[0].Shard == nil {
		return min(1, len(entries))
	}
	most := uint64(MostTogether)
	if s.remote == nil && !s.Streamed(*entries[0].Shard) {
		most = mostNear
	}
	from, to := span(entries[0])
	for n := 1; n < len(entries); n++ {
		e := entries[n]
		if e.Shard == nil || *e.Shard != *entries[0].Shard {
			return n
		}
		a, b := span(e)
		if a < from || a > to+mostGap || max(b, to)-from > most {
			return n
		}
		to = max(to, b)
	}
	return len(entries)
}

// span is the range of a sample's parts in its shard.
func span(e sample.Entry) (from, to uint64) {
	from = slices.Min(e.Offsets)
	for i, off := range e.Offsets {
		to = max(to, off+uint64(e.Parts[i].Size))
	}
	return from, to
}

// ReadTogether makes shards a [Sharded] source.
func (s *shards) ReadTogether(ctx context.Context, entries []sample.Entry, dst [][]byte) error {
	first, end := uint64(0), uint64(0)
	for i, e := range entries {
		if err := checkPlace(e, dst[i]); err != nil {
			return err
		}
		from, to := span(e)
		if i == 0 || from < first {
			first = from
		}
		end = max(end, to)
	}
	o, err := s.openAt(ctx, *entries[0].Shard)
	if err != nil {
		return err
	}
	defer o.close()
	buf, _ := s.spans.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	defer s.spans.Put(buf)
	*buf = slices.Grow((*buf)[:0], int(end-first))[:end-first]
	if err := s.readAt(ctx, o, *entries[0].Shard, *buf, int64(first)); err != nil {
		return err
	}
	for i, e := range entries {
		to := dst[i]
		for k, p := range e.Parts {
			to = to[copy(to, (*buf)[e.Offsets[k]-first:][:p.Size]):]
		}
	}
	return nil
}
