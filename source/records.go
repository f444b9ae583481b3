package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"lcache/internal/errcode"
	"lcache/sample"
	"lcache/source/internal/records"
	"lcache/source/internal/tarshard"
)

// RecordFlags are the flags of a listing of records, by their names.
type RecordFlags = records.Flags

// AllRecordFlags are all flags of listings of records.
var AllRecordFlags = records.FlagTable

// Scheme returns the prefix of a source of shards, such as "tar:" or "ranges:"; "": it is another source.
func Scheme(src string) string {
	if strings.HasPrefix(src, TarScheme) {
		return TarScheme
	}
	if k, _, ok := records.Of(src); ok {
		return k.Name + ":"
	}
	return ""
}

// examplePattern returns an example of a source, for an error message.
func examplePattern(kind, folder string) string {
	switch kind {
	case TarScheme:
		return kind + folder + "train-{000..146}.tar"
	case "ranges:":
		return kind + folder + "index.tsv"
	case "megatron:":
		return kind + folder + "tokens"
	}
	return kind + folder + "train-*." + strings.TrimSuffix(kind, ":")
}

// recordSource is a source of larger files in which samples are byte ranges. It reads them as the members of tar
// shards are read.
type recordSource struct {
	*shards
	left sync.Once // says which columns are left out
}

func openRecords(src string, kind records.Kind, opts Options) (Source, error) {
	set, err := kind.Settings(opts.Records)
	if err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: %w", clip(withoutSecrets(src)), err)
	}
	s, err := openShards(strings.TrimRight(src, "/"), opts)
	if err != nil {
		return nil, err
	}
	set.NoLabels = opts.Flat || opts.Labels != ""
	s.kind, s.settings = kind, set
	if _, err := kind.New(set); err != nil {
		return nil, errors.Join(errcode.Errorf(errcode.SourceInvalid, "open source %s: %w", clip(s.src), err), s.Close())
	}
	return &recordSource{shards: s}, nil
}

// format returns the format of a source of records, for one listing, and the names of the shards in order.
func (s *shards) format(ctx context.Context) (records.Format, []string, error) {
	f, err := s.kind.New(s.settings)
	if err != nil {
		return nil, nil, err
	}
	names, err := f.Shards(ctx, besides{s.store}, s.pattern)
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%w: no file matches", ErrEmpty)
	}
	if err == nil {
		err = checkNames(names, "its folder", s.opts.Stream)
	}
	return f, names, err
}

// besides are the files of a store, for formats that have more files than shards.
type besides struct{ store shardStore }

func (b besides) Expand(pattern string) ([]string, error) { return b.store.names(pattern) }

func (b besides) Open(ctx context.Context, name string) (records.File, error) {
	o, err := b.open(ctx, name)
	return beside{o}, err
}

func (b besides) Stream(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	o, err := b.open(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	return closing{o.stream(ctx), o}, o.Size(), nil
}

func (b besides) open(ctx context.Context, name string) (openShard, error) {
	if isOdd(name) {
		return nil, errors.New("it leads out of the source's folder")
	}
	return b.store.openOther(ctx, name)
}

// beside is an open file for a format.
type beside struct{ openShard }

func (b beside) Close() { b.close() }

// closing is a stream that closes its file.
type closing struct {
	io.ReadCloser
	of openShard
}

func (c closing) Close() error {
	err := c.ReadCloser.Close()
	c.of.close()
	return err
}

// List lists all records, in the order of the shards and of the rows in them.
func (r *recordSource) List(ctx context.Context, progress func(samples int)) ([]string, []sample.Entry, error) {
	l, err := r.list(ctx, progress)
	if err != nil {
		return nil, nil, err
	}
	return l.Classes, entriesOf(l.Samples()), nil
}

func (r *recordSource) list(ctx context.Context, progress func(int)) (l *Listing, err error) {
	f, names, err := r.format(ctx)
	if err == nil {
		err = r.store.survey(ctx, names)
	}
	if err == nil {
		rows := newRecordRows(len(names), r.opts.Part, r.kind.OwnFirst)
		err = r.eachShard(ctx, names, progress, func(i int) (int, error) {
			t, shard, outside, err := r.index(ctx, f, names[i])
			rows.shards[i] = recordShard{t, shard, outside}
			return t.Len(), err
		})
		if err == nil {
			l, err = r.join(rows)
		}
	}
	if err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "list source %s: %w", clip(r.src), err)
	}
	return l, nil
}

// index lists one shard.
func (r *recordSource) index(ctx context.Context, f records.Format, name string) (t *records.Table, shard *sample.Shard, outside bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, false, err
	}
	o, err := r.store.open(ctx, name)
	if err != nil {
		return nil, nil, false, fmt.Errorf("shard %s: %w", clip(name), err)
	}
	defer o.close()
	if r.opts.decode {
		t = records.NewTable(-1)
		err = r.decode(ctx, f, name, o, t, io.Discard)
	} else if o.streamed() {
		t, err = r.indexStream(ctx, f, name, o)
	} else {
		t = records.NewTable(o.Size())
		err = f.Index(ctx, besides{r.store}, name, o, t)
	}
	switch {
	case ctx.Err() != nil:
		return nil, nil, false, ctx.Err()
	case errors.Is(err, ErrChanged):
		return nil, nil, false, fmt.Errorf("shard %s was written to while it was listed: %w", clip(name), err)
	case err != nil:
		return nil, nil, false, fmt.Errorf("shard %s: %w", clip(name), err)
	}
	if len(t.Left) > 0 {
		r.left.Do(func() {
			r.opts.Logger.Warn("some columns can't be served as they are, and are left out", "columns", strings.Join(t.Left, "; "))
		})
	}
	shard = &sample.Shard{Name: name, Size: uint64(o.Size()), Version: o.Version(), Records: true}
	if r.opts.isPacking(name) {
		shard.Size = uint64(t.End())
	}
	return t, shard, o.outside(), nil
}

// indexStream lists a shard that has no random access.
func (r *recordSource) indexStream(ctx context.Context, f records.Format, name string, o openShard) (*records.Table, error) {
	sequential, ok := f.(records.Sequential)
	if !ok {
		return nil, fmt.Errorf("its records can't be found %s: unpack it, or download it", withoutRandom(name))
	}
	raw := &noted{ReadCloser: o.stream(ctx)}
	defer raw.Close()
	packing := tarshard.Packing(name)
	if packing == "" {
		t := records.NewTable(o.Size())
		return t, sequential.IndexStream(ctx, name, raw, t)
	}
	t := records.NewTable(-1)
	unpacked, err := tarshard.Unpack(packing, raw)
	if err == nil {
		defer unpacked.Close()
		file := &noted{ReadCloser: unpacked}
		if err = sequential.IndexStream(ctx, name, file, t); file.err == nil {
			return t, err
		}
	}
	if raw.err != nil { // the decompressor may have reworded it
		return nil, raw.err
	}
	return nil, fmt.Errorf("its %s is damaged or truncated: copy or write it again (%w)", packing, err)
}

// withoutRandom says why a shard can only be read from front to back.
func withoutRandom(name string) string {
	if packing := tarshard.Packing(name); packing != "" {
		return "in a file compressed with " + packing
	}
	return "on a web server without ranges"
}

// join makes a listing of the shards' samples.
func (r *recordSource) join(rows *recordRows) (l *Listing, err error) {
	if err := rows.seal(); err != nil {
		return nil, err
	}
	l = &Listing{listed: rows}
	ends, bytes := 0, int64(0)
	for _, s := range rows.shards {
		if s.outside {
			l.Outside += s.table.Len()
		}
		if s.table.Rest > 0 {
			ends, bytes = ends+1, bytes+s.table.Rest
		}
	}
	if n, first, part := rows.empty(); n > 0 {
		r.opts.Logger.Warn("samples lack the first part of the others, so their first part is empty: choose another one with --part", "samples", n, "first", rows.At(first).Name, "columns", part)
	}
	if ends > 0 {
		r.opts.Logger.Warn("files end with bytes that are less than a record: these bytes belong to no sample", "files", ends, "bytes", bytes)
	}
	if rows.Len() == 0 {
		return nil, fmt.Errorf("%w: its files hold no record", ErrEmpty)
	}
	switch {
	case r.opts.Labels != "":
		l.Entries, l.listed = entriesOf(rows), nil
		l.Classes, err = applyLabels(r.opts.Labels, l.Entries)
	case r.opts.Flat:
		for _, s := range rows.shards {
			s.table.Unlabel()
		}
	default:
		l.Classes, err = rows.classes()
	}
	return l, err
}
