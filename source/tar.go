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
	"lcache/source/internal/records"
	"lcache/source/internal/tarshard"
)

// TarScheme is the prefix of a source of tar shards: tar:PATTERN.
const TarScheme = "tar:"

// shardStore is the location of shards.
type shardStore interface {
	// names returns the names of all shards of a pattern, in order.
	names(pattern string) ([]string, error)

	// openOther opens a file that is not a shard, such as an index, in its current version.
	openOther(ctx context.Context, name string) (openShard, error)

	// survey requests the sizes of the shards, if each takes a request. The error is that of the first shard with one.
	survey(ctx context.Context, names []string) error

	// open opens a shard in its current version, after survey. An error is advice without the shard's name.
	open(ctx context.Context, name string) (openShard, error)

	// openListed opens a shard in its listed version. A wrong version may be noticed only by a read.
	openListed(ctx context.Context, listed sample.Shard) (openShard, error)

	// is reports whether a shard has its listed version, after survey, and whether it was reached through a link that
	// leaves the store.
	is(ctx context.Context, listed sample.Shard) (same, outside bool)

	// check returns an error if a shard no longer has its listed version.
	check(ctx context.Context, listed sample.Shard) error

	Close() error
}

// openShard is a shard that is open for reading.
type openShard interface {
	tarshard.Object
	outside() bool  // it was reached through a link that leaves the store
	streamed() bool // it has no random access: it is packed, or its server does not support ranges
	close()

	// stream reads the stored bytes of the shard from front to back, until ctx ends.
	stream(ctx context.Context) io.ReadCloser
}

// shards is a source of tar files. A sample is a group of adjacent members of a file. A sample's version is that of
// its shard.
type shards struct {
	src      string       // the user's text, cleaned
	identity string       // its text, or that of a list's content
	kind     records.Kind // the zero Kind: tar
	pattern  string       // relative to the store
	store    shardStore
	settings records.Settings // of kind
	remote   *object.Reader   // of store; nil: it is on this machine
	opts     Options
	spans    sync.Pool // *[]byte, for reads of several samples
	flows    *flows    // of shards without random access
}

// ShardFolder returns the fixed folder of a source of shards on this machine: the part before the first name with a
// brace, a bracket, a star, a question mark or a backslash. Names of shards are relative to it. rest is the pattern
// below it. For KIND:@FILE it is the folder that all files of the list have in common.
func ShardFolder(src string) (folder, rest string) {
	pattern := filepath.Clean(strings.TrimPrefix(src, Scheme(src)))
	fixed := pattern
	if i := strings.IndexAny(pattern, `{[*?\`); i >= 0 {
		fixed = pattern[:i]
	}
	if file, ok := listPath(src); ok {
		if l, err := readList(file); err == nil {
			return l.folder, records.Listed
		}
		return filepath.Dir(file), records.Listed
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

// openShards opens the shards of a pattern, at their location.
func openShards(src string, opts Options) (_ *shards, err error) {
	kind := Scheme(src)
	pattern := strings.TrimPrefix(src, kind)
	if scheme, _, found := strings.Cut(pattern, "://"); found && !IsRemote(src) && !strings.ContainsAny(scheme, "/.") {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: scheme %s:// is unknown: give a pattern of files, or one that begins with s3:// or https://", clip(withoutSecrets(src)), scheme)
	}
	if pattern == "" || strings.HasSuffix(pattern, "/") {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: it names no shard: give a pattern such as %s", clip(withoutSecrets(src)), examplePattern(kind, "/data/"))
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.decode = decodes(src, opts)
	if IsRemote(src) {
		store, rest, err := openShardObjects(kind, pattern, &opts)
		if err != nil {
			return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: %w", clip(withoutSecrets(src)), err)
		}
		s := &shards{src: src, identity: src, pattern: rest, store: store, remote: store.reader, opts: opts}
		s.flows = newFlows(s)
		return s, nil
	}
	s := &shards{src: kind + filepath.Clean(pattern), opts: opts}
	s.identity, s.flows = s.src, newFlows(s)
	if file, ok := listPath(src); ok {
		err = s.openList(kind, file)
	} else {
		var folder string
		folder, s.pattern = ShardFolder(src)
		s.store, err = openFolder(folder, opts)
	}
	if err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: %w", clip(s.src), err)
	}
	return s, nil
}

// openList opens the files of a list.
func (s *shards) openList(kind, file string) error {
	if kind == "ranges:" {
		return errors.New("an index names its files itself: give ranges:INDEX")
	}
	s.src = kind + listMark
	if file != "" {
		s.src += filepath.Clean(file)
	}
	l, err := readList(file)
	if err != nil {
		return err
	}
	store, err := openFolder(l.folder, s.opts)
	if err != nil {
		return err
	}
	store.listed = l.names
	s.pattern, s.store, s.identity = records.Listed, store, l.identity(kind)
	return nil
}

// openMembers opens shards in which a sample is a group of members: tar or zip files.
func openMembers(src string, kind records.Kind, opts Options) (Source, error) {
	s, err := openShards(src, opts)
	if err != nil {
		return nil, err
	}
	s.kind = kind
	return s, nil
}

// hasMembers reports whether samples are groups of members.
func (s *shards) hasMembers() bool { return s.kind.New == nil }

// names returns the names of the shards, in order.
func (s *shards) names(ctx context.Context) ([]string, error) {
	if s.hasMembers() {
		return s.store.names(s.pattern)
	}
	_, names, err := s.format(ctx)
	return names, err
}

// shardsOf returns the shards of a source; nil: it has none.
func shardsOf(s Source) *shards {
	switch s := s.(type) {
	case *shards:
		return s
	case *recordSource:
		return s.shards
	}
	return nil
}

func (s *shards) String() string   { return s.src }
func (s *shards) Identity() string { return s.identity }
func (s *shards) Close() error {
	s.flows.close()
	return s.store.Close()
}

// Requests returns the counts for shards over a network.
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
	if from, to := span(e); !e.Shard.Records && (s.remote != nil || s.Streamed(*e.Shard)) && len(e.Parts) > 1 && to-from <= uint64(e.Size)+mostGap {
		if err := s.ReadTogether(ctx, []sample.Entry{e}, [][]byte{dst}); err != nil {
			return s.failed(ctx, e, err)
		}
		return nil
	}
	if len(e.Parts) == 0 {
		return nil // an empty record
	}
	if e.Shard.Records {
		if err := s.readRecords(ctx, []sample.Entry{e}, [][]byte{dst}); err != nil {
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

// checkPlace checks the location in an entry before it is used, because the entry may come from a file.
func checkPlace(e sample.Entry, dst []byte) error {
	if e.Shard == nil || len(e.Offsets) != len(e.Parts) {
		return errors.New("it is in no shard: list the source again")
	}
	if len(dst) != int(e.Size) {
		return fmt.Errorf("room for %d bytes, the sample has %d", len(dst), e.Size)
	}
	return checkParts(e)
}

// A Sharded source stores samples next to each other, and can read several in one piece.
type Sharded interface {
	Source

	// Together returns how many of the first entries one piece contains: they are in one shard and close together, and
	// the piece is not too large.
	Together(entries []sample.Entry) int

	// ReadTogether reads the samples that Together counts, each into its part of dst. After an error the caller reads
	// them one by one, to find the sample that failed.
	ReadTogether(ctx context.Context, entries []sample.Entry, dst [][]byte) error

	// Streamed reports whether a shard has no random access. A read at some position then costs everything before it.
	// Reading all samples in order costs reading the shard once.
	Streamed(shard sample.Shard) bool
}

const (
	// MostTogether is the maximum size of a piece with several samples.
	MostTogether = 4 << 20
	// mostNear is the maximum size of a piece of a local file: the piece and the copies of its samples fit into a core's
	// cache, and a system call costs little.
	mostNear = 512 << 10
	// mostGap is the maximum number of unused bytes between two samples of a piece.
	mostGap = 256 << 10
)

// Together implements [Sharded].
func (s *shards) Together(entries []sample.Entry) int {
	if len(entries) == 0 || entries[0].Shard == nil {
		return min(1, len(entries))
	}
	most := uint64(MostTogether)
	if s.remote == nil && !s.Streamed(*entries[0].Shard) {
		most = mostNear
	}
	if entries[0].Shard.Records {
		return recordsTogether(entries, most)
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

// span returns the range of a sample's parts in its shard.
func span(e sample.Entry) (from, to uint64) {
	if len(e.Offsets) == 0 {
		return 0, 0
	}
	from = slices.Min(e.Offsets)
	for i, off := range e.Offsets {
		to = max(to, off+uint64(e.Parts[i].Size))
	}
	return from, to
}

// ReadTogether implements [Sharded].
func (s *shards) ReadTogether(ctx context.Context, entries []sample.Entry, dst [][]byte) error {
	if entries[0].Shard != nil && entries[0].Shard.Records {
		return s.readRecords(ctx, entries, dst)
	}
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
