package ingest

import (
	"os"
	"path/filepath"

	"lcache/internal/store/cache"
	"lcache/internal/store/cachedir"
)

// dirsBefore is what the directories of a cache were before an ingest that makes a new one.
type dirsBefore struct {
	missing []string        // directories that were not there, in the order in which they are removed
	files   map[string]bool // paths that were there
}

// note looks at a directory before anything is made there.
func (b *dirsBefore) note(dir string) {
	entries, err := os.ReadDir(dir)
	if b.files == nil {
		b.files = map[string]bool{}
	}
	for _, e := range entries {
		b.files[filepath.Join(dir, e.Name())] = true
	}
	var missing []string // the innermost first
	for os.IsNotExist(err) {
		missing = append(missing, dir)
		dir = filepath.Dir(dir)
		_, err = os.Lstat(dir)
	}
	b.missing = append(missing, b.missing...) // a directory that was noted before may hold this one
}

const lockName = "LOCK"

// undo removes what an ingest made that failed before there was a cache. What a later run can use stays: a cache that is filled in part, and the index of
// shards. Its errors are ignored, because lcache rm removes what stays.
func (in *run) undo() {
	for _, dir := range in.cache.Dirs {
		for _, name := range []string{cache.RecordName, "FORMAT", cache.ShardsName} {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				return
			}
		}
	}
	if in.locked {
		for _, dir := range in.cache.Dirs {
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				if path := filepath.Join(dir, e.Name()); e.Name() != lockName && cachedir.Makes(e.Name()) && e.Type().IsRegular() && !in.was.files[path] {
					_ = os.Remove(path)
				}
			}
			if lock := filepath.Join(dir, lockName); !in.was.files[lock] {
				_ = os.Remove(lock) // the last one: then the directory may be another process's
			}
		}
	}
	for _, dir := range in.was.missing {
		_ = os.Remove(dir) // if it is empty
	}
}
