package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"lcache/internal/disk/durable"
	"lcache/internal/errcode"
	"lcache/internal/trust"

	"golang.org/x/sys/unix"
)

// ErrExists is the class of errors about a directory that belongs to a cache already.
var ErrExists = errcode.New(errcode.CacheExists, "there is a cache already")

// NoSpaceError reports that a directory has too little room for its part of the arena.
type NoSpaceError struct {
	Dir        string
	Need, Have int64 // bytes; Have is the space available to an unprivileged process
}

// Code returns the code of the error.
func (*NoSpaceError) Code() errcode.Code { return errcode.NoSpace }

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("arena in %s needs %d bytes, %d are available: free some space or give a smaller budget", e.Dir, e.Need, e.Have)
}

// Create makes an empty cache over dirs. It first reserves the arena, so that later writes meet neither a full disk nor the budget. Then
// it writes FORMAT, in the first directory last: that file marks the cache as complete. Create returns ErrExists for a directory with
// a FORMAT or a journal. An arena without these files is left from an interrupted Create, and is reused.
func Create(dirs []string, f Format) error { return create(dirs, f, nil) }

func create(dirs []string, f Format, trace durable.Trace) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("create cache: %w", err)
	}
	if len(dirs) == 0 || len(dirs) > f.Places {
		return fmt.Errorf("create cache: %d directories for %d places", len(dirs), f.Places)
	}
	for i, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create cache: %w", err)
		}
		if err := refuseUsed(dir); err != nil {
			return fmt.Errorf("create cache: %w", err)
		}
		if err := checkSpace(dir, f.arenaSize(i, len(dirs))); err != nil {
			return fmt.Errorf("create cache: %w", err)
		}
	}
	for i, dir := range dirs {
		if err := reserve(filepath.Join(dir, arenaName), f.arenaSize(i, len(dirs))); err != nil {
			return fmt.Errorf("create cache: reserve the arena: %w", err)
		}
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := trace.ReplaceFile(filepath.Join(dirs[i], formatName), encodeFormat(f, i, len(dirs))); err != nil {
			return fmt.Errorf("create cache: %w", err)
		}
	}
	return nil
}

func (f Format) arenaSize(dir, dirs int) int64 {
	return int64(f.placesIn(dir, dirs)) * int64(f.Block)
}

func refuseUsed(dir string) error {
	for _, name := range []string{formatName, journalPrefix + "0", journalPrefix + "1", packsName} {
		_, err := os.Lstat(filepath.Join(dir, name))
		if err == nil {
			return fmt.Errorf("%w: %s holds %s; remove that directory or name another one", ErrExists, dir, name)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// checkSpace returns an error with both numbers if the space is too small. fallocate would report that only after it has filled the disk.
func checkSpace(dir string, need int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("ask for free space in %s: %w", dir, err)
	}
	have := int64(st.Bavail) * int64(st.Bsize)
	var old unix.Stat_t
	if unix.Lstat(filepath.Join(dir, arenaName), &old) == nil {
		have += old.Blocks * 512 // left by an interrupted Create
	}
	if have < need {
		return &NoSpaceError{Dir: dir, Need: need, Have: have}
	}
	// Growing a file beyond this limit would end the process with a signal.
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &lim) == nil && lim.Cur < uint64(need) {
		return fmt.Errorf("arena in %s needs a file of %d bytes, this process may write %d: raise ulimit -f", dir, need, lim.Cur)
	}
	return nil
}

func reserve(path string, size int64) (err error) {
	f, err := trust.Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(size); err != nil {
		return err
	}
	switch err := durable.Reserve(f, 0, size); {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		_ = os.Remove(path) // otherwise the failed arena would fill the disk
		return &NoSpaceError{Dir: filepath.Dir(path), Need: size}
	case err != nil:
		return err
	}
	return f.Sync()
}
