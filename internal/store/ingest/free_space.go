package ingest

import (
	"errors"
	"fmt"
	"lcache/internal/store/cachedir"

	"golang.org/x/sys/unix"
)

// volume is a file system that holds directories of a cache.
type volume struct {
	dir      string // the first of these directories
	dirs     int    // their number
	first    bool   // the cache's first directory is among them: it has the cache's metadata
	size     uint64 // bytes
	free     uint64 // bytes, for an unprivileged process
	reserved uint64 // bytes of files that are removed when the cache is made again
}

// freeBytes returns the bytes of a volume that a cache may take.
func (v volume) freeBytes() uint64 {
	have := v.free + v.reserved
	return have - min(have, cachedir.Reserve(v.size))
}

// volumes returns the file systems of the cache's directories. The files that removed lists for each directory count as free space.
func (in *run) volumes(removed func(dir string) []string) (list []volume, err error) {
	ids := map[uint64]int{} // by device: its position in list
	for i, dir := range in.cache.Dirs {
		var st unix.Stat_t
		var fs unix.Statfs_t
		if err := errors.Join(unix.Stat(dir, &st), in.askSpace(dir, &fs)); err != nil {
			return nil, fmt.Errorf("free space of %s: %w", dir, err)
		}
		at, known := ids[st.Dev]
		if !known {
			at = len(list)
			ids[st.Dev] = at
			list = append(list, volume{dir: dir, first: i == 0, size: fs.Blocks * uint64(fs.Bsize), free: fs.Bavail * uint64(fs.Bsize)})
		}
		list[at].dirs++
		for _, path := range removed(dir) {
			if unix.Lstat(path, &st) == nil {
				list[at].reserved += uint64(st.Blocks) * 512
			}
		}
	}
	return list, nil
}

// askSpace is statfs, unless a test replaces it.
func (in *run) askSpace(dir string, fs *unix.Statfs_t) error {
	if in.o.Statfs != nil {
		return in.o.Statfs(dir, fs)
	}
	return unix.Statfs(dir, fs)
}

// freeSpace returns the free bytes of a directory's file system, for an unprivileged process.
func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}
