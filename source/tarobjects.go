package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"lcache/sample"
	"lcache/source/internal/object"
	"lcache/source/internal/s3"
	"lcache/source/internal/tarshard"
	"lcache/source/internal/web"
)

// shardObjects is a folder of a bucket or of a web server as a shardStore. A listing requests the size and version of
// each shard. Every later answer is compared with these.
type shardObjects struct {
	prefix string // of all keys; names do not include it
	reader *object.Reader

	opts     Options
	noRanges atomic.Bool // the server does not support ranges

	mu    sync.Mutex             // guards the fields that follow
	asked map[string]object.Info // by survey; removed by open
	found map[string]object.Info // packed shards that were opened
}

// openShardObjects opens the folder of a pattern such as s3://bucket/folder/train-{000..146}.tar, and returns the
// pattern relative to it. kind is the prefix of the source's text.
func openShardObjects(kind, pattern string, opts *Options) (o *shardObjects, rest string, err error) {
	scheme, path, _ := strings.Cut(pattern, "://")
	fixed := path
	if i := strings.IndexAny(path, `{\`); i >= 0 {
		fixed = path[:i]
	}
	slash := strings.LastIndexByte(fixed, '/')
	if slash < 1 {
		return nil, "", fmt.Errorf("the part before its first brace has no folder: give a pattern such as %s or %s", examplePattern(kind, "s3://BUCKET/"), examplePattern(kind, "https://HOST/"))
	}
	folder, rest := scheme+"://"+path[:slash+1], path[slash+1:]
	if strings.ContainsAny(rest, "?#") {
		return nil, "", errors.New("it has a query or a fragment: give an address without one")
	}
	o = &shardObjects{opts: *opts}
	var store object.Store
	if scheme == "s3" {
		bucket, prefix, err := s3.Split(folder)
		if err != nil {
			return nil, "", err
		}
		o.prefix = prefix
		if opts.Remote, err = opts.Remote.Completed(folder); err != nil {
			return nil, "", err
		}
		if store, err = s3.Open(context.Background(), bucket, opts.S3); err != nil {
			return nil, "", err
		}
	} else {
		o.prefix = "./" // otherwise a name with a colon would be a URL
		if store, err = web.Open(folder, opts.OtherHosts); err != nil {
			return nil, "", err
		}
	}
	o.noRanges.Store(opts.NoRanges)
	o.reader = object.NewReader(store, object.Options{NoHedge: opts.NoHedge, Patience: opts.Patience})
	return o, rest, nil
}

func (o *shardObjects) Close() error { return o.reader.Close() }

func (o *shardObjects) names(pattern string) ([]string, error) {
	list, err := tarshard.Expand(pattern)
	if err != nil {
		return nil, err
	}
	for i, name := range list {
		if strings.ContainsAny(name, "*?[#") {
			return nil, fmt.Errorf("shard %s has one of the characters *?[# in its name: over a network, only braces can name several shards", clip(name))
		}
		list[i] = path.Clean(name)
	}
	return list, checkNames(list, "its folder", o.opts.Stream)
}

// GivesNoRanges reports whether the server of a source's shards ignores range requests.
func GivesNoRanges(s Source) bool {
	if t := shardsOf(s); t != nil {
		o, far := t.store.(*shardObjects)
		return far && o.noRanges.Load()
	}
	return false
}

// survey requests the size and version of all shards. It leaves out shards that an earlier survey has and open has not yet
// used.
func (o *shardObjects) survey(ctx context.Context, names []string) error {
	if o.knows(names) {
		return nil
	}
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(statJobs)
	errs := make([]error, len(names))
	infos := make([]object.Info, len(names))
	var missing atomic.Int64
	known := 0
	for i, name := range names {
		if missing.Load() >= mostMissing {
			break
		}
		known++
		group.Go(func() error {
			infos[i], errs[i] = o.stat(inner, name)
			if errors.Is(errs[i], ErrGone) {
				missing.Add(1)
				return nil // missing shards are counted
			}
			return errs[i]
		})
	}
	if err := group.Wait(); ctx.Err() != nil {
		return ctx.Err()
	} else if err != nil {
		return err
	}
	if err := firstOf(names, errs[:known]); err != nil {
		return err
	}
	if first := infos[0]; first.Size > 1 { // a server without ranges is noticed here
		s := o.at(sample.Shard{Name: names[0], Size: uint64(first.Size), Version: object.Version(first.Tag)})
		if err := s.ReadAt(ctx, make([]byte, 1), first.Size-1); errors.Is(err, object.ErrNoRanges) {
			o.noRanges.Store(true)
		} else if err != nil {
			return fmt.Errorf("shard %s: %w", clip(names[0]), err)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = make(map[string]object.Info, len(names))
	for i, name := range names {
		o.asked[name] = infos[i]
	}
	return nil
}

func (o *shardObjects) knows(names []string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !slices.ContainsFunc(names, func(name string) bool { _, known := o.asked[name]; return !known })
}

// A Survey describes the shards of a network source before their contents are read.
type Survey struct {
	Shards int
	Bytes  int64
	Index  int64 // estimated GETs of a listing; none for a shard with a stored index
	Gets   int64 // estimated GETs to read the samples of a share
}

// SurveyOf requests the sizes of a source's shards, before a share of them is read. It returns nil if the source has
// none, or if they are on this machine. A later listing does not repeat the requests.
func SurveyOf(ctx context.Context, s Source, share, shares int) (*Survey, error) {
	sharded := shardsOf(s)
	if sharded == nil || sharded.remote == nil {
		return nil, nil
	}
	v, err := sharded.survey(ctx, share, shares)
	if err != nil {
		return nil, fmt.Errorf("list source %s: %w", clip(sharded.src), err)
	}
	return v, nil
}

func (s *shards) survey(ctx context.Context, share, shares int) (v *Survey, err error) {
	o := s.store.(*shardObjects)
	names, err := s.names(ctx)
	if err != nil {
		return nil, err
	}
	if err := o.survey(ctx, names); err != nil {
		return nil, err
	}
	has := func(string, int64, uint64) bool { return false }
	if s.opts.Kept != "" {
		kept, err := tarshard.OpenKept(s.opts.Kept)
		if err != nil {
			return nil, err
		}
		defer kept.Close()
		has = kept.Has
	}
	v = &Survey{Shards: len(names)}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, name := range names {
		info := o.asked[name]
		if info.Size > math.MaxInt64-v.Bytes {
			return nil, fmt.Errorf("shard %s: its server reports %d bytes, but all shards together have at most %d: check the address", clip(name), info.Size, int64(math.MaxInt64))
		}
		v.Bytes += info.Size
		pieces := info.Size / MostTogether
		if info.Size%MostTogether != 0 {
			pieces++
		}
		if o.noRanges.Load() {
			pieces = min(pieces, 1)
		}
		if i*shares/len(names) == share {
			v.Gets += pieces
		}
		if s.hasMembers() && !has(name, info.Size, s.opts.packedVersion(name, info.Size, object.Version(info.Tag))) {
			v.Index += pieces
		}
	}
	return v, nil
}

// openOther requests the version of a file and opens it.
func (o *shardObjects) openOther(ctx context.Context, name string) (openShard, error) {
	info, err := o.stat(ctx, name)
	if err != nil {
		return nil, err
	}
	return o.at(sample.Shard{Name: name, Size: uint64(info.Size), Version: object.Version(info.Tag)}), nil
}

// stat requests the size and version of a shard. Its errors name the shard.
func (o *shardObjects) stat(ctx context.Context, name string) (object.Info, error) {
	info, err := o.reader.Stat(ctx, o.prefix+name)
	switch {
	case err != nil:
		err = withAdvice(err)
	case info.Page && info.Tag == "":
		err = errors.New("it is a web page, not a shard: check the address, and whether a proxy or a login stands between")
	case info.Size < 0:
		err = errors.New("the server does not report its size")
	case info.Tag == "":
		err = errors.New("the server tells neither a strong ETag nor the time of its last change (Last-Modified), so a shard that is replaced would be read by the index of the one before: let the server tell one of them, or download the shards and name the copies")
	}
	if err != nil {
		return info, fmt.Errorf("shard %s: %w", clip(name), err)
	}
	return info, nil
}

// open uses each result of survey once.
func (o *shardObjects) open(_ context.Context, name string) (openShard, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	info, ok := o.asked[name]
	if !ok {
		return nil, errors.New("it was not surveyed")
	}
	delete(o.asked, name)
	return o.at(sample.Shard{Name: name, Size: uint64(info.Size), Version: object.Version(info.Tag)}), nil
}

// openListed sends no request: the answers to the reads show whether the shard has changed. The list does not have
// the stored size of a packed shard, so that is requested once.
func (o *shardObjects) openListed(ctx context.Context, listed sample.Shard) (openShard, error) {
	if !o.opts.isPacking(listed.Name) {
		return o.at(listed), nil
	}
	o.mu.Lock()
	info, known := o.found[listed.Name]
	o.mu.Unlock()
	if !known || !o.isPacked(listed, info) {
		if err := o.check(ctx, listed); err != nil {
			return nil, err
		}
		o.mu.Lock()
		info = o.found[listed.Name]
		o.mu.Unlock()
	}
	return o.at(sample.Shard{Name: listed.Name, Size: uint64(info.Size), Version: object.Version(info.Tag)}), nil
}

func (o *shardObjects) is(_ context.Context, listed sample.Shard) (same, outside bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	info, known := o.asked[listed.Name]
	if o.opts.isPacking(listed.Name) {
		return known && o.isPacked(listed, info), false
	}
	return known && uint64(info.Size) == listed.Size && object.Version(info.Tag) == listed.Version, false
}

// check requests whether a shard still has its listed version.
func (o *shardObjects) check(ctx context.Context, listed sample.Shard) error {
	info, err := o.reader.Stat(ctx, o.prefix+listed.Name)
	if err != nil {
		return withAdvice(err)
	}
	if !o.opts.isPacking(listed.Name) {
		if uint64(info.Size) != listed.Size || object.Version(info.Tag) != listed.Version {
			return ErrChanged
		}
		return nil
	}
	if !o.isPacked(listed, info) {
		return ErrChanged
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.found == nil {
		o.found = map[string]object.Info{}
	}
	o.found[listed.Name] = info
	return nil
}

// isPacked reports whether a packed object is the listed shard.
func (o *shardObjects) isPacked(listed sample.Shard, info object.Info) bool {
	return o.opts.packedVersion(listed.Name, info.Size, object.Version(info.Tag)) == listed.Version
}

// at returns the stored object of a shard.
func (o *shardObjects) at(shard sample.Shard) *shardObject {
	return &shardObject{of: o, name: shard.Name, object: object.Object{Key: o.prefix + shard.Name, Size: int64(shard.Size), Version: &shard.Version}}
}

// shardObject is a shard that is an object.
type shardObject struct {
	of     *shardObjects
	name   string
	object object.Object
}

func (s *shardObject) Size() int64 { return s.object.Size }
func (s *shardObject) Version() uint64 {
	return s.of.opts.packedVersion(s.name, s.object.Size, *s.object.Version)
}
func (s *shardObject) Piece() int     { return MostTogether }
func (s *shardObject) outside() bool  { return false }
func (s *shardObject) streamed() bool { return s.of.opts.isPacking(s.name) || s.of.noRanges.Load() }
func (s *shardObject) close()         {}

func (s *shardObject) ReadAt(ctx context.Context, dst []byte, off int64) error {
	_, err := s.of.reader.ReadAt(ctx, s.object, off, dst)
	return withAdvice(err)
}

func (s *shardObject) stream(ctx context.Context) io.ReadCloser {
	if s.of.noRanges.Load() {
		return adviceStream{s.of.reader.Stream(ctx, s.object)}
	}
	return &inOrder{ctx: ctx, shard: s, size: s.object.Size}
}

// adviceStream is a stream whose errors contain advice.
type adviceStream struct{ *object.Stream }

func (s adviceStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	return n, withAdvice(err)
}
