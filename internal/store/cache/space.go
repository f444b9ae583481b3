package cache

import (
	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"lcache/chunker"
	"lcache/internal/errcode"
	"lcache/internal/store/cachedir"
)

// Importance writes two kinds of files: a state for each job, and line-0 and line-1. The budget of a new cache includes both. In an older
// cache they take unused budget.

const (
	stateEach    = 32  // bytes of a usual state for each sample
	mostStates   = 8   // states that a budget includes; more than one only if they take a small part of the samples' bytes:
	shareGiven   = 128 // 1/128 with --budget, because they take room from samples
	shareDefault = 8   // 1/8 without --budget; or
	leastDefault = 16 << 20
)

// StateBytes returns the length of a usual state of importance.
func (c *Cache) StateBytes() int64 { return 8192 + stateEach*int64(c.Manifest.Len()) }

// lineBytes returns the largest size of line-0 and line-1 together.
func (c *Cache) lineBytes() uint64 {
	n := uint64(c.Manifest.Len())
	return 2 * (lineHead + n/8 + 4*n + 4096)
}

// checkLine returns an error if the budget or the disk has no room for the file of a layout.
func (c *Cache) checkLine(bytes int64) error {
	if c.StateRoom() < 0 {
		return errcode.Errorf(errcode.BudgetTooSmall, "the budget of %s has no room for its %s: make the cache again, with a larger --budget", humanize.Bytes(uint64(c.Budget())), humanize.Bytes(uint64(bytes)))
	}
	free, err := c.FreeBytes()
	if err == nil && free < bytes {
		err = errcode.Errorf(errcode.NoSpace, "%s has no room for its %s: make room", c.Dirs[0], humanize.Bytes(uint64(bytes)))
	}
	return err
}

func (c *Cache) arenaBytes() uint64 { return uint64(c.Format.Places) * uint64(c.Format.Block) }

// importanceBytes returns the part of the budget for files of importance. f has all other metadata. A state needs twice its length while it
// is replaced.
func (c *Cache) importanceBytes(f chunker.Facts) uint64 {
	state := 2 * uint64(c.StateBytes())
	small := max(leastDefault, f.Kept/shareDefault)
	if f.Budget > 0 {
		small = f.Kept / shareGiven
	}
	all := c.lineBytes() + state*max(1, min(mostStates, small/state))
	if f.Budget > 0 && c.Format.Places > 0 { // the arena stays as it is
		return min(all, f.Budget-min(f.Budget, c.arenaBytes()+f.Metadata))
	}
	return all
}

// Budget returns the bytes that the cache may take on disk: the budget given to ingest, or the size that the cache
// needs.
func (c *Cache) Budget() int64 {
	if c.Record.Budget > 0 {
		return c.Record.Budget
	}
	return int64(c.arenaBytes() + c.Facts().Metadata)
}

// StateRoom returns the bytes of the budget that are left for states of importance. It may be negative.
func (c *Cache) StateRoom() int64 {
	return c.Budget() - int64(c.arenaBytes()+c.facts().Metadata+c.lineBytes())
}

// WholeBudget returns the smallest budget with which a new cache holds all samples, approximately.
func (c *Cache) WholeBudget() int64 {
	f := c.facts()
	f.Budget = 0
	f.Metadata = c.MetadataBytes(f.Kept, f.LeastBlock())
	if f.Packed {
		f.Metadata += lengthBytes * uint64(f.Samples)
	}
	f.Metadata += c.changeBytes(f.Metadata)
	f.Metadata += c.importanceBytes(f)
	z, err := chunker.Size(f)
	if err != nil {
		return 0 // --memory is too small for it
	}
	return int64(z.Budget)
}

// FreeBytes returns the bytes that files of the cache may still take of the first directory's file system, above the free-space reserve.
func (c *Cache) FreeBytes() (int64, error) {
	var fs unix.Statfs_t
	if err := c.statfs(c.Dirs[0], &fs); err != nil {
		return 0, err
	}
	size, free := fs.Blocks*uint64(fs.Bsize), fs.Bavail*uint64(fs.Bsize)
	return int64(free) - int64(cachedir.Reserve(size)), nil
}

// statfs is unix.Statfs, unless a test replaces it.
func (c *Cache) statfs(dir string, fs *unix.Statfs_t) error {
	if c.askSpace != nil {
		return c.askSpace(dir, fs)
	}
	return unix.Statfs(dir, fs)
}
