package engine

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"lcache/caches"
)

// freeForCache is what a cache may take by default: free space less the larger of 10 GB and 5 % of each file system.
func freeForCache(dirs []string) (uint64, error) {
	least := ^uint64(0)
	for _, d := range dirs {
		var st unix.Statfs_t
		if err := unix.Statfs(d, &st); err != nil {
			return 0, fmt.Errorf("free space of %s: %w", d, err)
		}
		free, total := st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize)
		reserve := caches.Floor(total)
		if free <= reserve {
			return 0, fmt.Errorf("%s has %s free, and %s are to stay free: make room, or give --budget", d, bytesText(free), bytesText(reserve))
		}
		least = min(least, free-reserve)
	}
	return least * uint64(len(dirs)), nil
}

func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// refuseInside keeps a cache out of its own source, which would list the cache's files as samples.
func refuseInside(dir, source string) error {
	src, err := filepath.EvalSymlinks(source)
	if err != nil {
		return nil // it is no directory
	}
	there := dir // the part of dir that is there
	real, err := filepath.EvalSymlinks(there)
	for ; err != nil && there != filepath.Dir(there); real, err = filepath.EvalSymlinks(there) {
		there = filepath.Dir(there)
	}
	if rel, err := filepath.Rel(src, filepath.Join(real, dir[len(there):])); err != nil || !filepath.IsLocal(rel) {
		return nil
	}
	return fmt.Errorf("the cache %s is inside its source %s, which would list it as samples: give another --cache", dir, source)
}

// refuseFileSystem keeps caches off file systems where they make no sense. LCACHE_TMPFS=1 allows memory, for tests.
func refuseFileSystem(dir string) error {
	name, nature, err := caches.FileSystem(dir)
	if err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	return refuseKind(dir, name, nature)
}

func refuseKind(dir, name string, nature caches.Nature) error {
	switch {
	case nature == caches.Network:
		return fmt.Errorf("%s is on a network file system (%s): a cache belongs on a local SSD; give another --cache", dir, name)
	case nature == caches.RAM && os.Getenv("LCACHE_TMPFS") != "1":
		return fmt.Errorf("%s is in memory (%s), which the cache would take from training: a cache belongs on a local SSD; give another --cache", dir, name)
	}
	return nil
}
