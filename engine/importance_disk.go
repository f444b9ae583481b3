package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"lcache/deliver"
	"lcache/drawn"
)

// The files importance-<name> count against --budget. A job that asks for importance takes room for twice its file, because the file is replaced whole.
// Files of jobs that are not connected are removed if their room is needed, oldest first, and 30 days after they were written.

const (
	stateAge   = 30 * 24 * time.Hour
	sweepEvery = time.Hour
)

// stateRoom counts the part of the budget that files of importance take.
type stateRoom struct {
	mu    sync.Mutex       // guards the fields that follow; held for sums only
	room  int64            // bytes of the budget for all of them
	taken map[string]int64 // by a job's name: of jobs that have importance
	other map[string]int64 // by file name without the prefix: of all others
}

// left returns the free bytes. mu is held.
func (r *stateRoom) left() int64 {
	n := r.room
	for _, bytes := range r.taken {
		n -= bytes
	}
	for _, bytes := range r.other {
		n -= bytes
	}
	return n
}

// isTaken reports whether a file belongs to a job that has importance. A file that is being replaced has a longer name. mu is held.
func (r *stateRoom) isTaken(name string) bool {
	_, is := r.taken[name]
	_, replaced := r.taken[strings.TrimSuffix(name, ".new")]
	return is || replaced
}

// lack notes the existing files, and returns the missing bytes of a job.
func (r *stateRoom) lack(name string, bytes int64, files []stateFile) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.other = map[string]int64{}
	for _, f := range files {
		if f.name != name && !r.isTaken(f.name) {
			r.other[f.name] = f.bytes
		}
	}
	return bytes - r.left()
}

// take raises a job's room to the given bytes. It reports whether they were free.
func (r *stateRoom) take(name string, bytes int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	has := r.taken[name]
	if bytes <= has {
		return true
	}
	if bytes-has > r.left() {
		return false
	}
	r.taken[name] = bytes
	return true
}

// giveBack takes a job's room back, except its file.
func (r *stateRoom) giveBack(name string, file int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.taken, name)
	r.other[name] = file
}

// has reports whether a file belongs to a job that has importance.
func (r *stateRoom) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.isTaken(name)
}

// isUsed reports whether a job has importance.
func (r *stateRoom) isUsed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.taken) > 0
}

// of returns a job's room in bytes.
func (r *stateRoom) of(name string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken[name]
}

// A stateFile is a file importance-<name>.
type stateFile struct {
	name  string // without the prefix
	path  string
	bytes int64 // on disk
	saved time.Time
}

// stateFiles lists the files of importance, oldest first.
func (e *Engine) stateFiles() (files []stateFile, err error) {
	entries, err := os.ReadDir(e.cache.Dirs[0])
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name, is := strings.CutPrefix(entry.Name(), drawn.FilePrefix)
		if !is {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) { // it was replaced meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		files = append(files, stateFile{name, filepath.Join(e.cache.Dirs[0], entry.Name()), wholeBlocks(info), info.ModTime()})
	}
	slices.SortFunc(files, func(a, b stateFile) int { return a.saved.Compare(b.saved) })
	return files, nil
}

// takeDisk takes room for twice a job's file. The caller has the turn importing.
func (e *Engine) takeDisk(name string) error {
	files, err := e.stateFiles()
	if err != nil {
		return fmt.Errorf("importance %s: %w", name, err)
	}
	bytes := 2 * e.cache.StateBytes()
	for _, f := range files {
		if f.name == name {
			bytes = max(bytes, 2*f.bytes)
		}
	}
	lack, err := e.lackOnDisk(name, bytes, files)
	if err == nil && lack > 0 {
		lack, err = e.makeRoom(name, bytes, lack, files)
	}
	if err != nil {
		return fmt.Errorf("room for importance %s: %w", name, err)
	}
	if lack > 0 || !e.disk.take(name, bytes) {
		return e.noRoom(bytes, max(lack, 1))
	}
	return nil
}

func (e *Engine) statePath(name string) string {
	return filepath.Join(e.cache.Dirs[0], drawn.FilePrefix+name)
}

// giveBackDisk takes a job's room back, except the bytes of its file.
func (e *Engine) giveBackDisk(name string) {
	bytes := int64(0)
	if info, err := os.Lstat(e.statePath(name)); err == nil {
		bytes = wholeBlocks(info)
	}
	e.disk.giveBack(name, bytes)
}

// wholeBlocks returns the bytes of a file in whole blocks.
func wholeBlocks(info fs.FileInfo) int64 { return (info.Size() + 4095) / 4096 * 4096 }

// lackOnDisk returns the bytes that are missing for a job's file in the budget and on the disk.
func (e *Engine) lackOnDisk(name string, bytes int64, files []stateFile) (int64, error) {
	free, err := e.cache.FreeBytes()
	return max(e.disk.lack(name, bytes, files), bytes-free), err
}

// makeRoom removes states of jobs that are not connected, oldest first: those without a session, then the others. If all together are too few it removes
// none. It returns the bytes that are still missing.
func (e *Engine) makeRoom(name string, bytes, lack int64, files []stateFile) (int64, error) {
	removable := int64(0)
	asleep := e.asleep()
	for _, f := range files {
		if f.name != name && !e.disk.has(f.name) {
			removable += f.bytes
		}
	}
	for _, p := range asleep {
		removable += e.disk.of(p.config.Name)
	}
	if removable < lack {
		return lack, nil
	}
	for lack > 0 {
		next := slices.IndexFunc(files, func(f stateFile) bool { return f.name != name && !e.disk.has(f.name) })
		switch {
		case next >= 0:
			if err := e.removeState(files[next], "room is needed"); err != nil {
				return lack, err
			}
		case len(asleep) > 0:
			asleep[0].stop(errStateRemoved)
			asleep = asleep[1:]
		default:
			return lack, nil
		}
		var err error
		if files, err = e.stateFiles(); err != nil {
			return lack, err
		}
		if lack, err = e.lackOnDisk(name, bytes, files); err != nil {
			return lack, err
		}
	}
	return lack, nil
}

var errStateRemoved = &deliver.ArgumentError{Reason: "importance: another job needed the disk space of this job's state while none of its clients was connected: call job.importance again; with a larger --budget both fit"}

// asleep lists the sessions of jobs without connections, the one that was left first at the front.
func (e *Engine) asleep() (list []*important) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.states {
		if p.j.token != "" && p.j.users == 0 {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *important) int { return a.j.left.Compare(b.j.left) })
	return list
}

func (e *Engine) removeState(f stateFile, why string) error {
	if err := e.cache.Store.Trace().Remove(f.path); err != nil {
		return err
	}
	e.cache.Logger.Info("the saved importance of an earlier job is removed", "name", f.name, "why", why, "saved", f.saved)
	return nil
}

// noRoom returns the error of a job whose file needs bytes, of which some are missing.
func (e *Engine) noRoom(bytes, lack int64) error {
	text := fmt.Sprintf("importance: its state needs %s on disk, and ", humanize.IBytes(uint64(bytes)))
	if free, err := e.cache.FreeBytes(); err == nil && free < bytes {
		return &deliver.ArgumentError{Reason: text + fmt.Sprintf("%s has %s above the free-space reserve: make room there", e.cache.Dirs[0], humanize.IBytes(uint64(max(free, 0))))}
	}
	need := e.cache.Budget() // a larger one of a cache that lacks samples has more of them, and room for as many states
	if e.disk.isUsed() || e.cache.Sizing.HoldsAll(e.cache.Facts()) {
		need = max(need, e.cache.WholeBudget())
	}
	need += lack
	return &deliver.ArgumentError{Reason: text + fmt.Sprintf("the budget of %s leaves %s: end another job with importance, or make the cache again with lcache ingest --budget %dMiB",
		humanize.IBytes(uint64(e.cache.Budget())), humanize.IBytes(uint64(max(bytes-lack, 0))), need>>20+1)}
}

// sweepStates removes the files that are older than 30 days, of jobs that are not connected, at once and then every hour.
func (e *Engine) sweepStates() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case e.importing <- struct{}{}:
		case <-e.ctx.Done():
			return
		}
		err := e.removeOldStates()
		<-e.importing
		if err != nil {
			e.cache.Logger.Warn("the saved importance of old jobs can't be removed", "err", err)
		}
		select {
		case <-tick.C:
		case <-e.ctx.Done():
			return
		}
	}
}

// removeOldStates removes the files that are older than 30 days. The caller has the turn importing.
func (e *Engine) removeOldStates() error {
	files, err := e.stateFiles()
	for _, f := range files {
		if e.opts.Now().Sub(f.saved) > stateAge && !e.disk.has(f.name) {
			err = errors.Join(err, e.removeState(f, "it is older than 30 days"))
		}
	}
	return err
}

// roomToSave returns an error if the budget or the disk has no room for a version of a job's file.
func (p *important) roomToSave(bytes int64) error {
	if !p.e.disk.take(p.config.Name, 2*bytes) {
		return fmt.Errorf("the budget has no room for %s: end another job with importance, or give lcache ingest a larger --budget", humanize.IBytes(uint64(2*bytes)))
	}
	free, err := p.e.cache.FreeBytes()
	if err == nil && free < bytes {
		err = fmt.Errorf("%s has %s above the free-space reserve, and it needs %s: make room", p.e.cache.Dirs[0], humanize.IBytes(uint64(max(free, 0))), humanize.IBytes(uint64(bytes)))
	}
	return err
}
