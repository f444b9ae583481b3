package ingest

import (
	"os"
	"path/filepath"

	"lcache/internal/store/cache"
	"lcache/internal/store/cachedir"
)

// dirsBefore is the state of a cache's directories before an ingest that makes a new cache.
type dirsBefore struct {
	missing []string        // missing directories, in the order of removal
	files   map[string]bool // existing paths
}

// note records the state of a directory before anything is made in it.
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
	b.missing = append(missing, b.missing...) // an earlier noted directory may contain this one
}

const lockName = "LOCK"

// undo removes the files of an ingest that failed before the cache was made. Files that a later run can use stay: a
// partly filled cache, and the index of shards. Errors are ignored, because lcache rm removes the remaining files.
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
				_ = os.Remove(lock) // last, because the directory may then belong to another process
			}
		}
	}
	for _, dir := range in.was.missing {
		_ = os.Remove(dir) // only if it is empty
	}
}
