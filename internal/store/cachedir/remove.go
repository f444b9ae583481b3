package cachedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"lcache/internal/errcode"
	"lcache/internal/trust"
)

// Remove removes the cache in dir: the files that lcache makes, then the directory. Other files stay, and then the directory stays too; left
// has their names. The error is an *InUse if a process uses the cache. It wraps ErrNotCache if dir is not a cache.
func Remove(dir string) (c Cache, left []string, err error) {
	if c, err = look(dir, true); err != nil {
		return c, nil, err
	}
	// A process that serves, ingests or verifies holds the first lock. A Python process that is about to start a server holds the second.
	for _, name := range []string{lockName, openName} {
		release, err := lock(dir, name)
		if err != nil {
			return c, nil, err
		}
		defer release()
	}
	if left, err = foreign(dir); err != nil {
		return c, nil, fmt.Errorf("remove the cache: %w", err)
	}
	for _, name := range c.files() {
		if name == lockName && len(left) > 0 {
			continue // otherwise two processes could hold locks on two files of one name
		}
		if err := removeFile(filepath.Join(dir, name)); err != nil {
			return c, left, fmt.Errorf("remove the cache: %w", err)
		}
	}
	if len(left) > 0 {
		return c, left, nil
	}
	if err := os.Remove(dir); err != nil {
		return c, nil, fmt.Errorf("remove the cache's directory: %w", err)
	}
	return c, nil, nil
}

// removeFile removes a file, and never a directory.
func removeFile(path string) error {
	if err := unix.Unlink(path); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EISDIR) {
		return &fs.PathError{Op: "unlink", Path: path, Err: err}
	}
	return nil
}

// lock locks a file, if it exists.
func lock(dir, name string) (release func(), err error) {
	f, err := trust.Open(filepath.Join(dir, name), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			pid, ends := readHolder(f)
			return nil, &InUse{Dir: dir, Pid: pid, Ends: ends}
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// Removed is a directory of a cache that was removed.
type Removed struct {
	Cache
	Left []string `json:"left"` // files that lcache did not make: they stay, and so does the directory
}

// RemoveAll removes the directories of one cache. It checks all of them before it touches the first. If it returns an error, done has the
// directories that were removed before it.
func RemoveAll(dirs []string) (done []Removed, err error) {
	for _, dir := range dirs {
		c, err := look(dir, true)
		switch {
		case errors.Is(err, ErrNotCache) && Within(dir) != "":
			return nil, errcode.Errorf(errcode.NotACache, "%s is not a cache, it holds caches: give one of %s; nothing was removed", dir, Within(dir))
		case errors.Is(err, ErrNotCache):
			return nil, fmt.Errorf("%w; nothing was removed", err)
		case err != nil:
			return nil, err
		case c.Pid != 0:
			return nil, &InUse{Dir: dir, Pid: c.Pid, Ends: c.Ends}
		}
	}
	for _, dir := range dirs {
		c, left, err := Remove(dir)
		if err != nil {
			return done, err
		}
		if left == nil {
			left = []string{}
		}
		done = append(done, Removed{c, left})
	}
	return done, nil
}
