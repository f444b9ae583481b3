package ingest

import (
	"fmt"
	"lcache/chunker"
	"lcache/internal/errcode"
	"lcache/internal/store/cachedir"
	"math"

	"github.com/dustin/go-humanize"
)

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
