package ingest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lcache/internal/store/cache"
	"lcache/internal/store/cachedir"
	"lcache/logfile"
	"lcache/source"
)

// Filters that remove no file share one cache, which is recorded without a filter (docs/adr/0042-one-cache.md): Options.Dirs. The cache of a
// filter that removes files is Options.Filtered. The listing decides: it is made once, with the filter, and counts the removed files.

// elsewhere is the error of an ingest into Options.Dirs if the right cache is Options.Filtered.
type elsewhere struct {
	listing *source.Listing // nil: none was made
	dir     string          // the first of Options.Dirs, which may have indexes of shards
}

func (*elsewhere) Error() string { return "the filter removes files of the source" }

// isMade reports whether a directory has a cache, or a part of one.
func isMade(dir string) bool {
	for _, name := range []string{cache.RecordName, "FORMAT"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// compareFilter compares the requested filter with the filter of the cache. If they list the same files by the last listing, that listing is used.
func (in *run) compareFilter() {
	if in.o.Filtered == nil || in.old == nil {
		return
	}
	if isSameFilter(in.o.Exts, in.old.Exts, nil) {
		in.o.Filtered = nil
	}
	if isSameFilter(in.o.Exts, in.old.Exts, in.old.Counted) {
		in.o.Exts = in.old.Exts
	}
}

// isSameFilter reports whether a filter lists the same files as the cache's filter. counted has the files of the cache; nil: unknown.
func isSameFilter(exts, of []string, counted *cache.Counted) bool {
	var files source.Counts
	if counted != nil {
		files = counted.Files
	}
	return source.Options{Exts: exts}.Difference(source.Options{Exts: of}, files) == ""
}

// settleFilter decides by the listing whether the cache in Options.Dirs is the right one. If so, it sets in.o.Exts to the filter to record.
func (in *run) settleFilter(l *source.Listing) error {
	f := in.o.Filtered
	switch {
	case f == nil:
		return nil
	case l.Removed > 0 || hasLongExt(f.Exts): // a client counts files by their last extension, so it can't evaluate .seg.png
		return &elsewhere{listing: l}
	case in.old == nil || !slices.Equal(in.o.Exts, in.old.Exts):
		in.o.Exts = nil
	}
	return nil
}

// hasLongExt reports whether one of the extensions has a dot within.
func hasLongExt(exts []string) bool {
	for _, e := range exts {
		if strings.Contains(strings.TrimPrefix(e, "."), ".") {
			return true
		}
	}
	return false
}

// busy handles the error of a cache that another process uses. If the filter removes files of that cache, another
// cache is the right one, and busy returns no error.
func (in *run) busy(err error) error {
	held := new(logfile.BusyError)
	if in.o.Filtered == nil || !errors.As(err, &held) {
		return err
	}
	if was, readErr := cache.ReadRecord(in.cache.Dirs[0]); readErr == nil && !isSameFilter(in.o.Exts, was.Exts, was.Counted) {
		return &elsewhere{}
	}
	return err
}

// leave removes directories that were made for a cache, if they have none.
func leave(dirs []string) {
	for _, dir := range dirs {
		if isMade(dir) {
			return
		}
		lock, err := logfile.Lock(dir)
		if err != nil {
			return // another process is making a cache here
		}
		_ = os.Remove(filepath.Join(dir, cache.ShardsName))
		_ = lock.Remove()
		_ = os.Remove(dir) // only if it is empty
		_ = lock.Close()
	}
}

// takeShards copies the indexes of shards from the directory in which they were listed.
func (in *run) takeShards() error {
	to := filepath.Join(in.cache.Dirs[0], cache.ShardsName)
	if _, err := os.Lstat(to); in.moved == nil || !in.sharded() || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	_, err := copyKept(Options{Dirs: []string{in.moved.dir}}, in.cache.Dirs[0])
	return err
}

// An Other is a cache of the same source with another filter.
type Other struct {
	Dir  string   `json:"dir"`
	Exts []string `json:"exts"` // empty: no filter
}

// others returns the other caches of the source that differ only in the filter, among the caches with names that
// lcache chose in the same way as this one's.
func (in *run) others() (found []Other) {
	c := in.cache
	for _, other := range cachedir.Siblings(c.Dirs[0]) {
		r := c.Record
		same := source.SameAs(r.Source, other.Source, other.Identity) && r.Remote.S3.IsAt(other.Remote.S3.Endpoint)
		asked := source.Options{Exts: other.Exts, Flat: r.Flat, Group: r.Group, Labels: r.Labels, Part: r.FirstPart, Records: r.RecordFlags}
		made := source.Options{Exts: other.Exts, Flat: other.Flat, Group: other.Group, Labels: other.Labels, Part: other.FirstPart, Records: other.RecordFlags}
		if same && asked.Difference(made, nil) == "" {
			found = append(found, Other{other.Dir, append([]string{}, other.Exts...)})
		}
	}
	return found
}
