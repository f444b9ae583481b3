// Package source is where samples come from: a [Source] is listed once, in canonical order, and then read sample by sample, many times.
//
// [Open] chooses a source by the scheme of the user's text: a directory or a bucket, listed in the order of
// torchvision's ImageFolder, tar shards, in which a sample is some adjacent members, or the list of a web server. A source is opened read-only and never changed. A read gives exactly the version of a sample
// that was listed, or a [SampleError]; it does not cache, verify checksums or set deadlines: its caller does. [Retrying] is a source
// around another one that tries reads again when the trouble may pass.
// All methods of a Source may be called concurrently, except Close, which must come after all others.
package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"lcache/internal/errcode"
	"lcache/sample"
	"lcache/source/internal/object"
)

// Source lists samples and reads them.
type Source interface {
	// String is the source as the user wrote it, cleaned.
	String() string

	// Identity tells sources apart, as the function of that name does. It is that of the source that was opened, whatever has its name by now.
	Identity() string

	// List gives all samples in canonical order, and the names of their labels 0, 1, … (none if the source has no classes).
	// progress, if not nil, is told from time to time how many samples were found so far; its calls do not overlap.
	// A listing is complete or an error: a sample that can't be listed is never left out silently, since all indices behind it would shift.
	List(ctx context.Context, progress func(samples int)) (classes []string, entries []sample.Entry, err error)

	// Read fills dst, which has e.Size bytes, with the sample. It compares the sample's identity with e before and after.
	// Errors are a *[SampleError], or wrap the context's if that ended it; dst then holds anything.
	Read(ctx context.Context, e sample.Entry, dst []byte) error

	// Close ends the source.
	Close() error
}

// Options of a source.
type Options struct {
	Exts   []string // keep only files that end so, in any case of ASCII letters ("jpg" and ".jpg" are the same); none: keep all
	Flat   bool     // one sorted list with label 0, whatever folders there are
	Group  string   // GroupStem, or "": each file is a sample
	Labels string   // listing: a CSV file of name,label, which takes the place of the folders' labels; "": none
	Part   string   // of shards: the extension of the part that comes first; "": chosen by a rule
	Stream bool     // listing: shards that are packed, and so have no random access, are allowed
	Jobs   int      // listing: this many requests side by side; 0: DefaultJobs
	Kept   string   // listing shards: a file that keeps their indexes, so that unchanged shards are not read again; "": none

	Logger *slog.Logger // for oddities that are not errors; nil: none

	NoRanges bool // the server of shards is known to give none

	AllowEmpty bool // listing: class folders without a file are classes, and no error

	Apart []string // folders that a link may lead to and that hold no samples: the cache's own

	Remote                 // of network sources
	Patience time.Duration // of a read over a network, without a byte (object.Options); 0: 30 s

	NoFollowLinks bool // nothing outside the source is read: a link that leaves it is an error
}

// WithMoved returns a context whose reads of a source over a network, and of shards without random access, call moved when bytes come. moved must not block.
func WithMoved(ctx context.Context, moved func()) context.Context {
	return object.WithMoved(ctx, moved)
}

// DefaultJobs is how many requests a listing has under way.
const DefaultJobs = 8

var (
	// ErrChanged means that a sample differs from the listed one.
	ErrChanged = errcode.New(errcode.SourceChanged, "changed since ingest: run ingest again")
	// ErrGone means that a listed sample no longer exists.
	ErrGone = errcode.New(errcode.SourceGone, "gone from the source: put it back, or run ingest again")
	// ErrEmpty says that a source holds no sample.
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

// SampleName returns the name, for callers that know only that the error has one.
func (e *SampleError) SampleName() string { return e.Name }

// Open opens the source that the user wrote: a directory by its path, tar:PATTERN, s3://BUCKET/PREFIX/, or http(s)://HOST/PATH/LIST.
func Open(src string, opts Options) (Source, error) {
	scheme, _, found := strings.Cut(src, "://")
	isTar := strings.HasPrefix(src, TarScheme)
	if found && !isTar && !IsRemote(src) && !strings.ContainsAny(scheme, "/.") {
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
	opts.Part = strings.TrimPrefix(lowerASCII(opts.Part), ".")
	if opts.Stream && !isTar {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: only tar shards can be packed: leave out --stream", clip(src))
	}
	if opts.Part != "" && !isTar {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: only samples in tar shards have a part to choose: leave out --part", clip(src))
	}
	switch {
	case isTar:
		return openTar(src, opts)
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

// lowerASCII: torchvision lowers names by Unicode's rules, which differ from this in letters that no extension has.
func lowerASCII(s string) string {
	b := []byte(s) // strings.Map would change bytes that are not UTF-8
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}

// clip quotes a name for an error message: on one line, and not all of a name of 64 KiB.
func clip(name string) string {
	const most = 200
	if len(name) > most {
		return fmt.Sprintf("%q… (%d bytes)", name[:most], len(name))
	}
	return fmt.Sprintf("%q", name)
}
