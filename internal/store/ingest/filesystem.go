package ingest

import (
	"fmt"
	"os"
	"path/filepath"

	"lcache/internal/errcode"
	"lcache/internal/store/cachedir"
)

// refuseInside returns an error for a cache inside its own source, because the listing would take the cache's files as samples.
func refuseInside(dir, source string) error {
	src, err := filepath.EvalSymlinks(source)
	if err != nil {
		return nil // the source is not a directory
	}
	there := dir // the part of dir that exists
	real, err := filepath.EvalSymlinks(there)
	for ; err != nil && there != filepath.Dir(there); real, err = filepath.EvalSymlinks(there) {
		there = filepath.Dir(there)
	}
	if rel, err := filepath.Rel(src, filepath.Join(real, dir[len(there):])); err != nil || !filepath.IsLocal(rel) {
		return nil
	}
	return errcode.Errorf(errcode.OtherCache, "the cache %s is inside its source %s, which would list it as samples: give another --cache", dir, source)
}

// refuseFileSystem returns an error for a cache on a network file system or in memory. LCACHE_TMPFS=1 allows memory, for tests.
func refuseFileSystem(dir string) error {
	name, nature, err := cachedir.FileSystem(dir)
	if err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	return refuseKind(dir, name, nature)
}

// refuseKind is refuseFileSystem for a known file system.
func refuseKind(dir, name string, nature cachedir.Nature) error {
	switch {
	case nature == cachedir.Network:
		return errcode.Errorf(errcode.UnfitDisk, "%s is on a network file system (%s): a cache belongs on a local SSD; give another --cache", dir, name)
	case nature == cachedir.RAM && os.Getenv("LCACHE_TMPFS") != "1":
		return errcode.Errorf(errcode.UnfitDisk, "%s is in memory (%s), which the cache would take from training: a cache belongs on a local SSD; give another --cache", dir, name)
	}
	return nil
}
