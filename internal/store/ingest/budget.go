package ingest

import (
	"errors"
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"lcache/chunker"
	"lcache/internal/errcode"
	"lcache/internal/store/cachedir"
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

// mostBudget returns the largest budget, in whole MiB, that leaves every file system its free-space reserve, and the file system that limits
// it. The first directory has metadata, and the arena is spread evenly over all directories. 0: no room for a cache.
func mostBudget(volumes []volume, metadata uint64) (most uint64, tightest volume) {
	dirs := 0
	for _, v := range volumes {
		dirs += v.dirs
	}
	most = math.MaxUint64
	for _, v := range volumes {
		room := v.freeBytes()
		if v.first {
			room -= min(room, metadata)
		}
		each := room / uint64(v.dirs)
		each -= min(each, 1<<20) // a directory may get a block more than another one
		if arena := each * uint64(dirs); arena < most {
			most, tightest = arena, v
		}
	}
	if most > 0 {
		most = (most + metadata) >> 20 << 20
	}
	return most, tightest
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

// fit sizes a new cache so that every file system keeps its free-space reserve. Without a budget the cache takes as much as the dataset needs,
// or the free space if that is less. If a budget is too large, the error has the largest possible one.
func (in *run) fit(f *chunker.Facts) (z chunker.Sizing, err error) {
	volumes, err := in.volumes(in.cache.Made)
	if err != nil {
		return z, err
	}
	z, err = chunker.Size(*f)
	if err != nil {
		return z, err
	}
	most, tightest := mostBudget(volumes, f.Metadata)
	takes := z.Arena + f.Metadata
	if takes <= most {
		if f.Budget == 0 {
			in.defaulted("budget", z.Budget, "what the dataset needs")
		}
		return z, nil
	}
	least := *f
	least.Budget = most
	fits, tooSmall := chunker.Size(least)
	space := fmt.Sprintf("%s has %s free, and %s must stay free", tightest.dir, humanize.Bytes(tightest.free+tightest.reserved), humanize.Bytes(cachedir.Reserve(tightest.size)))
	switch {
	case most == 0 || tooSmall != nil:
		return z, errcode.Errorf(errcode.NoSpace, "no room for a cache: %s; make room, or give another --cache", space)
	case f.Budget > 0:
		return z, errcode.Errorf(errcode.NoSpace, "with a budget of %s the cache takes %s, and %s: give --budget %dMiB or less, or make room", humanize.Bytes(f.Budget), humanize.Bytes(takes), space, most>>20)
	}
	f.Budget, in.cache.Record.Budget = most, int64(most)
	in.defaulted("budget", most, "free space less a reserve: the dataset needs "+humanize.Bytes(takes))
	return fits, nil
}

// freeSpace returns the free bytes of a directory's file system, for an unprivileged process.
func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}
