package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"lcache/internal/errcode"
	"lcache/internal/usage"
	"lcache/sample"
	"lcache/source/internal/object"
	"lcache/source/internal/s3"
	"lcache/source/internal/web"
)

// S3 are the settings of a bucket.
type S3 = s3.Settings

// Remote has the settings of network sources. None is a secret. The cache stores them.
type Remote struct {
	S3         S3   `json:"s3,omitzero"`
	OtherHosts bool `json:"http_allow_other_hosts,omitempty"` // a list may name other servers than its own
	NoHedge    bool `json:"no_hedge,omitempty"`               // slow requests are not repeated

	Given Switches `json:"-"` // the switches that the user set now, to on or off
}

// Switches are settings that are either on or off.
type Switches uint8

const (
	PathStyle Switches = 1 << iota
	Unsigned
	RequesterPays
	OtherHosts
	NoHedge
)

// Completed fills in settings of this source from the environment.
func (r Remote) Completed(src string) (Remote, error) {
	r.Given = 0
	if !strings.HasPrefix(strings.TrimPrefix(src, Scheme(src)), "s3://") {
		if r.S3 != (S3{}) {
			return r, usage.Errorf("--s3-… is for a source s3://BUCKET/PREFIX/, not for %s", src)
		}
		return r, nil
	}
	set, err := r.S3.Completed(os.Getenv)
	r.S3 = set
	return r, err
}

// At fills in the settings that the cache of the source has stored. They must be for the same location.
func (r Remote) At(src string, kept Remote) (Remote, error) {
	if !IsRemote(src) && r != (Remote{}) {
		return r, usage.Errorf("--s3-…, --http-allow-other-hosts and --source-hedge are for a source over a network, not for %s", src)
	}
	set, err := r.S3.Completed(func(string) string { return "" })
	if err != nil {
		return r, err
	}
	if set.Endpoint != "" && !set.IsAt(kept.S3.Endpoint) {
		return r, usage.Errorf("--s3-endpoint-url: the cache belongs to %s at %s, not at %s", src, cmp.Or(kept.S3.Endpoint, "AWS"), set.Endpoint)
	}
	r.S3 = set
	return r.Or(kept), nil
}

// Or fills in unset settings from other.
func (r Remote) Or(other Remote) Remote {
	pick := func(which Switches, mine, theirs bool) bool {
		if r.Given&which != 0 {
			return mine
		}
		return mine || theirs
	}
	return Remote{S3: S3{
		Endpoint:      cmp.Or(r.S3.Endpoint, other.S3.Endpoint),
		Region:        cmp.Or(r.S3.Region, other.S3.Region),
		Profile:       cmp.Or(r.S3.Profile, other.S3.Profile),
		PathStyle:     pick(PathStyle, r.S3.PathStyle, other.S3.PathStyle),
		Unsigned:      pick(Unsigned, r.S3.Unsigned, other.S3.Unsigned),
		RequesterPays: pick(RequesterPays, r.S3.RequesterPays, other.S3.RequesterPays),
	}, OtherHosts: pick(OtherHosts, r.OtherHosts, other.OtherHosts), NoHedge: pick(NoHedge, r.NoHedge, other.NoHedge)}
}

// IsRemote reports whether a source is read over a network: s3:// or http(s)://, also after tar: and the like.
func IsRemote(src string) bool {
	src = strings.TrimPrefix(src, Scheme(src))
	for _, scheme := range []string{"s3://", "http://", "https://"} {
		if strings.HasPrefix(src, scheme) {
			return true
		}
	}
	return false
}

// Canonical returns the standard form of a source's text: s3://bucket/prefix becomes s3://bucket/prefix/.
func Canonical(src string) string {
	if bucket, prefix, err := s3.Split(src); err == nil {
		return "s3://" + bucket + "/" + prefix
	}
	return src
}

// Requests counts the requests of a remote source so far.
type Requests = object.Counts

// RequestsOf returns the number of requests that a source has sent, also if it is wrapped in another one. It returns
// false for a directory.
func RequestsOf(s Source) (Requests, bool) {
	a, ok := s.(interface{ Requests() (Requests, bool) })
	if !ok {
		return Requests{}, false
	}
	return a.Requests()
}

// EndsSilence reports whether a read of a source ends if no byte arrives for long, with an error that says
// so. That is so for reads over a network, but not for a read of a file that hangs.
func EndsSilence(s Source) bool {
	a, ok := s.(interface{ EndsSilence() bool })
	return ok && a.EndsSilence()
}

// remote is a source over a network: objects of a store. Each object is a sample or a part of one. A sample's version
// is the hash of its ETag, or of the store's substitute for it; 0: there is none. The version of a sample with parts
// is a hash over their versions.
type remote struct {
	src    string
	prefix string // of all keys; names do not include it
	opts   Options
	reader *object.Reader
	list   func(ctx context.Context, progress func(int)) (*Listing, error)
}

func openS3(src string, opts Options) (Source, error) {
	bucket, prefix, err := s3.Split(src)
	if err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: %w", clip(withoutSecrets(src)), err)
	}
	src = Canonical(src)
	if opts.Remote, err = opts.Remote.Completed(src); err != nil {
		return nil, err
	}
	store, err := s3.Open(context.Background(), bucket, opts.S3)
	if err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: %w", clip(src), err)
	}
	r := newRemote(src, prefix, opts, store)
	r.list = func(ctx context.Context, progress func(int)) (*Listing, error) {
		k := newKeys(opts, prefix, progress)
		if err := store.List(ctx, prefix, opts.Jobs, r.reader.Do, k.take); err != nil {
			return nil, err
		}
		l, err := k.join()
		if meant := meantShards(src); meant != "" && errors.Is(err, ErrEmpty) {
			err = fmt.Errorf("%w: %s", err, meant)
		}
		return l, err
	}
	return r, nil
}

func openWeb(src string, opts Options) (Source, error) {
	if meant := meantShards(withoutSecrets(src)); meant != "" {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: it is not a list: %s", clip(withoutSecrets(src)), meant)
	}
	store, err := web.Open(src, opts.OtherHosts)
	if err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: %w", clip(withoutSecrets(src)), err)
	}
	r := newRemote(src, "", opts, store)
	r.list = func(ctx context.Context, progress func(int)) (*Listing, error) {
		l := &lines{opts: opts, store: store, reader: r.reader, progress: progress}
		classes, entries, err := l.list(ctx)
		return &Listing{Classes: classes, Removed: l.removed, listed: sample.Entries(entries)}, err
	}
	return r, nil
}

func newRemote(src, prefix string, opts Options, store object.Store) *remote {
	return &remote{src: src, prefix: prefix, opts: opts, reader: object.NewReader(store, object.Options{NoHedge: opts.NoHedge, Patience: opts.Patience})}
}

// withoutSecrets removes user, password, query and fragment from an address, even if the address can't be parsed: a
// secret key of AWS may have slashes.
func withoutSecrets(src string) string {
	scheme, rest, found := strings.Cut(src, "://")
	if !found {
		return src
	}
	host := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		host = rest[:end]
	}
	name, port, _ := strings.Cut(host, ":")
	if strings.Contains(host, "@") || strings.Trim(port, "0123456789") != "" && host[0] != '[' {
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			rest = rest[at+1:]
		} else {
			rest = name
		}
	}
	if end := strings.IndexAny(rest, "?#"); end >= 0 {
		rest = rest[:end]
	}
	return scheme + "://" + rest
}

func (r *remote) String() string             { return r.src }
func (r *remote) Identity() string           { return r.src }
func (r *remote) Requests() (Requests, bool) { return r.reader.Counts(), true }
func (r *remote) EndsSilence() bool          { return true }
func (r *remote) Close() error               { return r.reader.Close() }

// List lists a bucket in the order of a directory, and a web server's list in its own order.
func (r *remote) List(ctx context.Context, progress func(samples int)) ([]string, []sample.Entry, error) {
	l, err := r.listing(ctx, progress)
	if err != nil {
		return nil, nil, err
	}
	return l.Classes, entriesOf(l.listed), nil
}

// listing is List. A bucket's listing is in columns, so that many millions of keys take little memory.
func (r *remote) listing(ctx context.Context, progress func(samples int)) (*Listing, error) {
	if progress == nil {
		progress = func(int) {}
	}
	if err := ctx.Err(); err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "list source %s: %w", clip(r.src), err)
	}
	l, err := r.list(ctx, progress)
	if err == nil && r.opts.Labels != "" {
		entries := entriesOf(l.listed)
		l.listed = sample.Entries(entries)
		l.Classes, err = applyLabels(r.opts.Labels, entries)
	}
	if err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "list source %s: %w", clip(r.src), err)
	}
	progress(l.listed.Len())
	r.reader.Expect(median(l.listed))
	return l, nil
}

// median estimates the median size of the samples, from a thousand of them.
func median(list sample.Listing) int64 {
	var sizes []uint32
	for i := 0; i < list.Len(); i += 1 + list.Len()/1000 {
		sizes = append(sizes, list.At(i).Size)
	}
	if len(sizes) == 0 {
		return 0
	}
	slices.Sort(sizes)
	return int64(sizes[len(sizes)/2])
}

// Gets returns the number of requests to read a sample of a remote source once.
func Gets(size uint32, parts []sample.Part) (n int64) {
	if parts == nil {
		return object.Ranges(int64(size))
	}
	for _, p := range parts {
		n += object.Ranges(int64(p.Size))
	}
	return n
}

func (r *remote) Read(ctx context.Context, e sample.Entry, dst []byte) error {
	if len(dst) != int(e.Size) {
		return &SampleError{e.Name, "read", fmt.Errorf("room for %d bytes, the sample has %d", len(dst), e.Size)}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("read sample %s: %w", clip(e.Name), err)
	}
	if e.Parts == nil {
		var want *uint64
		if e.Version != 0 {
			want = &e.Version
		}
		_, err := r.readObject(ctx, e.Name, e.Name, dst, want)
		return err
	}
	if err := checkParts(e); err != nil {
		return &SampleError{e.Name, "read", err}
	}
	v := newPartsVersion()
	for _, p := range e.Parts {
		version, err := r.readObject(ctx, e.Name, partName(e.Name, p.Ext), dst[:p.Size], nil)
		if err != nil {
			return err
		}
		v.add(p.Ext, p.Size, version)
		dst = dst[p.Size:]
	}
	if v.sum() != e.Version {
		return &SampleError{e.Name, "read", fmt.Errorf("%w (one of its %d files has another version)", ErrChanged, len(e.Parts))}
	}
	return nil
}

// readObject reads one object. An empty object is not requested.
func (r *remote) readObject(ctx context.Context, name, file string, dst []byte, want *uint64) (version uint64, err error) {
	if file == "" || strings.HasSuffix(file, "/") {
		return 0, &SampleError{name, "read", inPart(name, file, fmt.Errorf("%w: not found", ErrGone))}
	}
	version, err = r.reader.Read(ctx, object.Object{Key: r.prefix + file, Size: int64(len(dst)), Version: want}, dst)
	if err == nil {
		return version, nil
	}
	if !errors.As(err, new(*object.Error)) {
		return 0, fmt.Errorf("read sample %s: %w", clip(name), err)
	}
	return 0, &SampleError{name, "read", inPart(name, file, withAdvice(err))}
}

// withAdvice adds advice to the error of a request.
func withAdvice(err error) error {
	trouble := new(object.Error)
	if errors.As(err, &trouble) {
		switch trouble.Trouble {
		case object.Gone:
			return fmt.Errorf("%w (%w)", ErrGone, err)
		case object.Changed:
			return fmt.Errorf("%w (%w)", ErrChanged, err)
		}
	}
	return err
}
