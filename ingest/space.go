package ingest

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"lcache/cachedir"
	"lcache/chunker"
)

// volume is a file system that holds directories of a cache.
type volume struct {
	dir      string // the first of them
	dirs     int    // so many
	first    bool   // the cache's first directory is there, which holds all that is not arena
	size     uint64
	free     uint64 // for an unprivileged process
	reserved uint64 // taken by files that making the cache again removes
}

// freeBytes is what a cache may take of it.
func (v volume) freeBytes() uint64 {
	have := v.free + v.reserved
	return have - min(have, cachedir.Floor(v.size))
}

// mostBudget is the largest budget, in whole MiB, with which no file system goes below its floor, and the one that sets it. The first directory holds
// metadata, and the arena is dealt evenly over all; 0: there is no room for any.
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
		each -= min(each, 1<<20) // blocks may not come out even
		if arena := each * uint64(dirs); arena < most {
			most, tightest = arena, v
		}
	}
	if most > 0 {
		most = (most + metadata) >> 20 << 20
	}
	return most, tightest
}

// volumes looks at the file systems of the cache's directories. What removed names in each of them counts as free.
func (in *run) volumes(removed func(dir string) []string) (list []volume, err error) {
	ids := map[uint64]int{} // where in list a device is
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

func (in *run) askSpace(dir string, fs *unix.Statfs_t) error {
	if in.o.Statfs != nil {
		return in.o.Statfs(dir, fs)
	}
	return unix.Statfs(dir, fs)
}

// fit sizes a new cache so that every file system keeps its floor: without a budget it takes what the dataset needs, or what there is; one
// that is too large is refused, with the largest that is not.
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
	space := fmt.Sprintf("%s has %s free, of which %s are to stay free", tightest.dir, humanize.Bytes(tightest.free+tightest.reserved), humanize.Bytes(cachedir.Floor(tightest.size)))
	switch {
	case most == 0 || tooSmall != nil:
		return z, fmt.Errorf("%s: too little is left for a cache; make room, or give another --cache", space)
	case f.Budget > 0:
		return z, fmt.Errorf("with a budget of %s the cache takes %s, and %s: give --budget %dMiB or less, or make room", humanize.Bytes(f.Budget), humanize.Bytes(takes), space, most>>20)
	}
	f.Budget, in.cache.Record.Budget = most, int64(most)
	in.defaulted("budget", most, "free space less a reserve: the dataset needs "+humanize.Bytes(takes))
	return fits, nil
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
	name, nature, err := cachedir.FileSystem(dir)
	if err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	return refuseKind(dir, name, nature)
}

func refuseKind(dir, name string, nature cachedir.Nature) error {
	switch {
	case nature == cachedir.Network:
		return fmt.Errorf("%s is on a network file system (%s): a cache belongs on a local SSD; give another --cache", dir, name)
	case nature == cachedir.RAM && os.Getenv("LCACHE_TMPFS") != "1":
		return fmt.Errorf("%s is in memory (%s), which the cache would take from training: a cache belongs on a local SSD; give another --cache", dir, name)
	}
	return nil
}
