// Package source lists and reads the original samples. A [Source] is listed once, in canonical order, and then read
// sample by sample, many times.
//
// [Open] chooses the kind of source by the user's text: a directory or a bucket, in the order of torchvision's
// ImageFolder; tar shards, in which a sample is a group of adjacent members; or the list of a web server. A source is
// opened read-only and never changed. A read returns exactly the listed version of a sample, or a [SampleError]. The
// package does not cache, verify checksums or set deadlines: its caller does. [Retrying] wraps a source and retries
// reads after temporary errors. All methods of a Source may be called concurrently, except Close, which must come
// last.
package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"lcache/internal/errcode"
	"lcache/sample"
	"lcache/source/internal/object"
	"lcache/source/internal/records"
)

// Source lists samples and reads them.
type Source interface {
	// String returns the user's text, cleaned.
	String() string

	// Identity is the function Identity for the source that was opened, whatever has its name by now.
	Identity() string

	// List returns all samples in canonical order, and the names of labels 0, 1, … (none if the source has no classes).
	// If progress is not nil, it is called from time to time with the number of samples found so far, one call at a
	// time. A listing is complete or an error: a sample that can't be listed is never left out silently, because all
	// later indices would shift.
	List(ctx context.Context, progress func(samples int)) (classes []string, entries []sample.Entry, err error)

	// Read fills dst, which has e.Size bytes, with the sample. It compares the sample's version with e before and after.
	// An error is a *[SampleError], or wraps the context's error if the context ended. After an error the contents of
	// dst are undefined.
	Read(ctx context.Context, e sample.Entry, dst []byte) error

	// Close closes the source.
	Close() error
}

// Options of a source.
type Options struct {
	Exts   []string // keep only files with these endings, in any case of ASCII letters ("jpg" and ".jpg" are the same); none: keep all
	Flat   bool     // one sorted list with label 0, whatever the folders are
	Group  string   // GroupStem, or "": each file is a sample
	Labels string   // listing: a CSV file of name,label instead of the folders' labels; "": none
	Part   string   // shards: the extension of each sample's first part; "": chosen by a rule
	Stream bool     // listing: allow packed shards, which have no random access
	Jobs   int      // listing: number of parallel requests; 0: DefaultJobs
	Kept   string   // listing shards: a file that stores their indexes, so that unchanged shards are not read again; "": none

	Logger *slog.Logger // for unusual findings that are not errors; nil: none

	NoRanges bool // the server of the shards is known not to support ranges

	AllowEmpty bool // listing: accept class folders without a file

	Excluded []string // folders that must not be listed, even through a link: the cache's own

	Records RecordFlags // of a source of records

	Remote                 // of network sources
	Patience time.Duration // network reads: longest time without a byte (object.Options); 0: 30 s

	NoFollowLinks bool // links that leave the source are errors

	decode bool // all shards are decoded
}

// WithMoved returns a context whose reads call moved when bytes arrive, if they are over a network or of shards
// without random access. moved must not block.
func WithMoved(ctx context.Context, moved func()) context.Context {
	return object.WithMoved(ctx, moved)
}

// DefaultJobs is the number of requests in flight during a listing.
const DefaultJobs = 8

var (
	// ErrChanged means that a sample differs from the listed one.
	ErrChanged = errcode.New(errcode.SourceChanged, "changed since ingest: run ingest again")
	// ErrGone means that a listed sample no longer exists.
	ErrGone = errcode.New(errcode.SourceGone, "gone from the source: put it back, or run ingest again")
	// ErrEmpty means that a source has no sample.
	ErrEmpty = errcode.New(errcode.SourceEmpty, "no samples")
)

// SampleError is an error of one sample, with advice. Use errors.Is with [ErrChanged], [ErrGone] or an errno for the cause.
type SampleError struct {
	Name string // the sample's name in the manifest
	Op   string // the operation: "list", "open", "stat", "read"
	Err  error
}

func (e *SampleError) Error() string {
	return fmt.Sprintf("%s sample %s: %v", e.Op, clip(e.Name), e.Err)
}
func (e *SampleError) Unwrap() error { return e.Err }

// SampleName returns the name, for callers that use an interface with this method.
func (e *SampleError) SampleName() string { return e.Name }

// Open opens the source that the user wrote: a directory by its path, tar:PATTERN, s3://BUCKET/PREFIX/, http(s)://HOST/PATH/LIST, or a record
// source such as ranges:INDEX.
func Open(src string, opts Options) (Source, error) {
	scheme, _, found := strings.Cut(src, "://")
	kind, _, isRecords := records.Of(src)
	isTar := strings.HasPrefix(src, TarScheme)
	if found && !isTar && !isRecords && !IsRemote(src) && !strings.ContainsAny(scheme, "/.") {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: scheme %s:// is unknown: give a directory, tar:PATTERN, s3://BUCKET/PREFIX/ or https://HOST/PATH/LIST", clip(withoutSecrets(src)), scheme)
	}
	if src == "" {
		return nil, errors.New("open source: its name is empty: give a directory")
	}
	exts, err := cleanExts(opts.Exts)
	if err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: %w", clip(src), err)
	}
	opts.Exts = exts
	if opts.Group != "" && opts.Group != GroupStem {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: files can't be grouped by %q: only by %s", clip(src), opts.Group, GroupStem)
	}
	if opts.Jobs <= 0 {
		opts.Jobs = DefaultJobs
	}
	if !isRecords || kind.Members { // names of columns keep their case
		opts.Part = strings.TrimPrefix(lowerASCII(opts.Part), ".")
	}
	if opts.Stream && !isTar && !isRecords {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: only shards can be packed: leave out --stream", clip(src))
	}
	if opts.Part != "" && !isTar && !isRecords {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: only samples in shards and records have a part to choose: leave out --part", clip(src))
	}
	if !isRecords || kind.Members {
		for _, name := range slices.Sorted(maps.Keys(opts.Records)) {
			return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: --%s is only for records of larger files: leave it out", clip(src), name)
		}
	}
	switch {
	case isRecords && kind.Members:
		return openMembers(src, kind, opts)
	case isRecords:
		return openRecords(src, kind, opts)
	case isTar:
		return openMembers(src, records.Kind{}, opts)
	case strings.HasPrefix(src, "s3://"):
		return openS3(src, opts)
	case IsRemote(src):
		return openWeb(src, opts)
	}
	return openDir(filepath.Clean(src), opts)
}

func cleanExts(exts []string) ([]string, error) {
	var clean []string
	for _, e := range exts {
		e = lowerASCII(e)
		if e != "" && e[0] != '.' {
			e = "." + e
		}
		if len(e) < 2 || strings.ContainsRune(e, '/') {
			return nil, fmt.Errorf("extension %q can't end a file's name: give one such as jpg", e)
		}
		clean = append(clean, e)
	}
	return clean, nil
}

// lowerASCII lowers ASCII letters. torchvision lowers names by Unicode's rules, which differ only in letters that no
// extension has.
func lowerASCII(s string) string {
	b := []byte(s) // strings.Map would change bytes that are not UTF-8
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}

// clip quotes a name for an error message, on one line, and shortens a long one.
func clip(name string) string {
	const most = 200
	if len(name) > most {
		return fmt.Sprintf("%q… (%d bytes)", name[:most], len(name))
	}
	return fmt.Sprintf("%q", name)
}
