// Package disk counts the files importance-<name> as part of --budget. A job that turns on importance reserves twice the size of its file, because the
// file is replaced whole. Files of jobs that are not connected are removed if their space is needed, oldest first, and 30 days after they were written.
//
// The package neither reads nor writes the files: package state does. Take and Sweep need a turn, which the caller gives to one goroutine at a time. The
// other methods may be called concurrently.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"lcache/internal/importance/state"
	"lcache/internal/serve/deliver"
	"lcache/internal/store/cache"
)

const (
	maxAge     = 30 * 24 * time.Hour
	sweepEvery = time.Hour
)

// Options configure Files.
type Options struct {
	Cache  *cache.Cache
	Now    func() time.Time
	Asleep func() []Job // lists the jobs with importance that are not connected; the job that disconnected first comes first
}

// A Job has importance, but no connected client.
type Job struct {
	Name string
	Stop func(why error) // ends its importance, and frees its space
}

// Files are the files of importance in a cache.
type Files struct {
	o    Options
	dir  string
	room room
}

// New returns the Files of a cache. No job has reserved space yet.
func New(o Options) *Files {
	return &Files{o: o, dir: o.Cache.Dirs[0], room: room{total: o.Cache.StateRoom(), taken: map[string]int64{}, other: map[string]int64{}}}
}

// Path returns the path of a job's file.
func (f *Files) Path(name string) string { return filepath.Join(f.dir, state.FilePrefix+name) }

// Take reserves twice the size of a job's file. If necessary, it removes files of jobs that are not connected. The caller has the turn.
func (f *Files) Take(name string) error {
	files, err := f.list()
	if err != nil {
		return fmt.Errorf("importance %s: %w", name, err)
	}
	bytes := 2 * f.o.Cache.StateBytes()
	for _, one := range files {
		if one.name == name {
			bytes = max(bytes, 2*one.bytes)
		}
	}
	lack, err := f.lack(name, bytes, files)
	if err == nil && lack > 0 {
		lack, err = f.makeRoom(name, bytes, lack, files)
	}
	if err != nil {
		return fmt.Errorf("reserve disk space for importance %s: %w", name, err)
	}
	if lack > 0 || !f.room.take(name, bytes) {
		return f.noRoom(bytes, max(lack, 1))
	}
	return nil
}

// GiveBack frees a job's reserved space, except the bytes of its file.
func (f *Files) GiveBack(name string) {
	bytes := int64(0)
	if info, err := os.Lstat(f.Path(name)); err == nil {
		bytes = wholeBlocks(info)
	}
	f.room.giveBack(name, bytes)
}

// Grow reserves space for a version of a job's file. It returns an error if the budget or the disk has none left.
func (f *Files) Grow(name string, bytes int64) error {
	if !f.room.take(name, 2*bytes) {
		return fmt.Errorf("the budget has no room for %s more: end another job with importance, or give lcache ingest a larger --budget", humanize.IBytes(uint64(2*bytes)))
	}
	free, err := f.o.Cache.FreeBytes()
	if err == nil && free < bytes {
		err = fmt.Errorf("%s has %s above the free-space reserve, and it needs %s: make room there", f.dir, humanize.IBytes(uint64(max(free, 0))), humanize.IBytes(uint64(bytes)))
	}
	return err
}

// Sweep removes files of jobs that are not connected and older than 30 days: at once, and then every hour until ctx
// ends. While it removes them, it has the turn, by a value in the channel turn.
func (f *Files) Sweep(ctx context.Context, turn chan struct{}) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		err := f.removeOld()
		<-turn
		if err != nil {
			f.o.Cache.Logger.Warn("cannot remove the saved importance of old jobs", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// removeOld removes the files that are older than 30 days. The caller has the turn.
func (f *Files) removeOld() error {
	files, err := f.list()
	for _, one := range files {
		if f.o.Now().Sub(one.saved) > maxAge && !f.room.has(one.name) {
			err = errors.Join(err, f.remove(one, "it is older than 30 days"))
		}
	}
	return err
}

// A file is a file importance-<name>.
type file struct {
	name  string // without the prefix
	path  string
	bytes int64 // on disk
	saved time.Time
}

// list lists the files, oldest first.
func (f *Files) list() (files []file, err error) {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name, is := strings.CutPrefix(entry.Name(), state.FilePrefix)
		if !is {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) { // another goroutine replaced it meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, filepath.Join(f.dir, entry.Name()), wholeBlocks(info), info.ModTime()})
	}
	slices.SortFunc(files, func(a, b file) int { return a.saved.Compare(b.saved) })
	return files, nil
}

// wholeBlocks returns the size of a file, rounded up to whole blocks.
func wholeBlocks(info fs.FileInfo) int64 { return (info.Size() + 4095) / 4096 * 4096 }

// lack returns the bytes that the budget and the disk lack for a job's file.
func (f *Files) lack(name string, bytes int64, files []file) (int64, error) {
	free, err := f.o.Cache.FreeBytes()
	return max(f.room.lack(name, bytes, files), bytes-free), err
}

// makeRoom removes files of jobs that are not connected, oldest first: first the files of jobs without importance, then the others. If all of them are
// not enough, it removes none. It returns the bytes that are still missing.
func (f *Files) makeRoom(name string, bytes, lack int64, files []file) (int64, error) {
	removable := int64(0)
	asleep := f.o.Asleep()
	for _, one := range files {
		if one.name != name && !f.room.has(one.name) {
			removable += one.bytes
		}
	}
	for _, j := range asleep {
		removable += f.room.of(j.Name)
	}
	if removable < lack {
		return lack, nil
	}
	for lack > 0 {
		next := slices.IndexFunc(files, func(one file) bool { return one.name != name && !f.room.has(one.name) })
		switch {
		case next >= 0:
			if err := f.remove(files[next], "its space is needed"); err != nil {
				return lack, err
			}
		case len(asleep) > 0:
			asleep[0].Stop(errRemoved)
			asleep = asleep[1:]
		default:
			return lack, nil
		}
		var err error
		if files, err = f.list(); err != nil {
			return lack, err
		}
		if lack, err = f.lack(name, bytes, files); err != nil {
			return lack, err
		}
	}
	return lack, nil
}

var errRemoved = &deliver.ArgumentError{Reason: "importance: another job took the disk space of this job's state while no client of this job was connected: call job.importance again; a larger --budget has room for both"}

func (f *Files) remove(one file, why string) error {
	if err := f.o.Cache.Store.Trace().Remove(one.path); err != nil {
		return err
	}
	f.o.Cache.Logger.Info("removing the saved importance of an earlier job", "name", one.name, "why", why, "saved", one.saved)
	return nil
}

// noRoom returns the error of a job whose file needs some bytes. lack of these are missing.
func (f *Files) noRoom(bytes, lack int64) error {
	c := f.o.Cache
	text := fmt.Sprintf("importance: its state needs %s on disk, but ", humanize.IBytes(uint64(bytes)))
	if free, err := c.FreeBytes(); err == nil && free < bytes {
		return &deliver.ArgumentError{Reason: text + fmt.Sprintf("%s has %s above the free-space reserve: make room there", f.dir, humanize.IBytes(uint64(max(free, 0))))}
	}
	need := c.Budget() // with a larger budget, a cache that does not keep all samples keeps more of them, and leaves the same space for files
	if f.room.isUsed() || c.Sizing.HoldsAll(c.Facts()) {
		need = max(need, c.WholeBudget())
	}
	need += lack
	return &deliver.ArgumentError{Reason: text + fmt.Sprintf("the budget of %s leaves %s: end another job with importance, or make the cache again with lcache ingest --budget %dMiB",
		humanize.IBytes(uint64(c.Budget())), humanize.IBytes(uint64(max(bytes-lack, 0))), need>>20+1)}
}
