package engine

import (
	"fmt"
	"os"

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

// refuseFileSystem keeps caches off file systems where they make no sense. LCACHE_TMPFS=1 allows memory, for tests.
func refuseFileSystem(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	return refuseKind(dir, int64(st.Type))
}

func refuseKind(dir string, magic int64) error {
	name, nature := caches.FileSystem(magic)
	switch {
	case nature == caches.Network:
		return fmt.Errorf("%s is on a network file system (%s): a cache belongs on a local SSD; give another --cache", dir, name)
	case nature == caches.RAM && os.Getenv("LCACHE_TMPFS") != "1":
		return fmt.Errorf("%s is in memory (%s), which the cache would take from training: a cache belongs on a local SSD; give another --cache", dir, name)
	}
	return nil
}
