package cache

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"lcache/internal/store/cachedir"
	"lcache/internal/usage"
	"lcache/logfile"
)

// CleanDirs returns the absolute paths of a cache's directories. It returns an error for an empty list, a directory given twice, a
// symbolic link, and a directory to which, or to whose files, other users could have written: that error is a *trust.Error.
func CleanDirs(dirs []string) ([]string, error) {
	if len(dirs) == 0 || dirs[0] == "" {
		return nil, &usage.Error{Reason: "no cache given: give --cache DIR"}
	}
	clean := make([]string, len(dirs))
	seen := map[string]bool{}
	for i, d := range dirs {
		abs, err := filepath.Abs(d)
		if err != nil {
			return nil, err
		}
		if seen[abs] {
			return nil, usage.Errorf("cache directory %s is given twice", d)
		}
		if err := cachedir.CheckLink(abs); err != nil {
			return nil, err
		}
		if err := cachedir.CheckTrust(abs); err != nil {
			return nil, err
		}
		seen[abs] = true
		clean[i] = abs
	}
	return clean, nil
}

// Lock locks the directories for this process. With lacking, a missing directory is skipped, unless it is the first: the lock of the
// first directory is the lock of the cache. After an error none is locked.
func (c *Cache) Lock(lacking bool) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, c.unlock())
		}
	}()
	for i, d := range c.Dirs {
		if _, err := os.Lstat(filepath.Join(d, "FORMAT")); err != nil && lacking && i > 0 {
			continue // the store reports it; nothing is created there
		}
		l, err := logfile.Lock(d)
		var busy *logfile.BusyError
		// A server that was just killed holds its lock until the kernel has ended the process.
		for tries := 0; errors.As(err, &busy) && tries < 20; tries++ {
			time.Sleep(50 * time.Millisecond)
			l, err = logfile.Lock(d)
		}
		switch {
		case errors.As(err, &busy):
			return busy
		case err != nil && lacking && i > 0:
			c.Logger.Warn("a directory of the cache can't be locked", "dir", d, "error", err)
			continue
		case err != nil:
			return err
		}
		c.locks = append(c.locks, l)
	}
	return nil
}

func (c *Cache) unlock() (err error) {
	for _, l := range c.locks {
		err = errors.Join(err, l.Close())
	}
	c.locks = nil
	return err
}

// SetEnds writes into the locks when this process will exit; zero: never. Other processes that want the cache report that.
func (c *Cache) SetEnds(at time.Time) {
	for _, l := range c.locks {
		l.SetEnds(at)
	}
}

// SetStopped writes into the locks that this process was told to stop, for clients that could start a server.
func (c *Cache) SetStopped() {
	for _, l := range c.locks {
		l.SetStopped()
	}
}
