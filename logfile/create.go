package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrExists is the class of errors about a directory that belongs to a cache already.
var ErrExists = errors.New("there is a cache already")

// NoSpaceError says that a directory has too little room for its part of the arena.
type NoSpaceError struct {
	Dir        string
	Need, Have int64 // bytes; Have is what an unprivileged process may take
}

func (e *NoSpaceError) Error() string {
	return fmt.Sprintf("arena in %s needs %d bytes, %d are available: free some space or give a smaller budget", e.Dir, e.Need, e.Have)
}

// Create makes an empty cache over dirs: it reserves the arena, so that neither a full disk nor the budget can be met later, and then
// writes FORMAT, first directory last, whose presence says that all is complete. A directory that holds a FORMAT or a
// journal is refused with ErrExists; an arena without them is the rest of a Create that was interrupted, and is taken over.
func Create(dirs []string, f Format) error { return create(dirs, f, nil) }

func create(dirs []string, f Format, trace tracer) error {
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
		if err := trace.replaceFile(filepath.Join(dirs[i], formatName), encodeFormat(f, i, len(dirs))); err != nil {
			return fmt.Errorf("create cache: %w", err)
		}
	}
	return nil
}

func (f Format) arenaSize(dir, dirs int) int64 {
	return int64(f.placesIn(dir, dirs)) * int64(f.Block)
}

func refuseUsed(dir string) error {
	for _, name := range []string{formatName, journalPrefix + "0", journalPrefix + "1"} {
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

// checkSpace refuses early, with both numbers, what fallocate would refuse late after taking the rest of the disk.
func checkSpace(dir string, need int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("ask for free space in %s: %w", dir, err)
	}
	have := int64(st.Bavail) * int64(st.Bsize)
	var old unix.Stat_t
	if unix.Lstat(filepath.Join(dir, arenaName), &old) == nil {
		have += old.Blocks * 512 // of an interrupted Create
	}
	if have < need {
		return &NoSpaceError{Dir: dir, Need: need, Have: have}
	}
	// Growing a file beyond this limit would be answered by a signal that ends the process.
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &lim) == nil && lim.Cur < uint64(need) {
		return fmt.Errorf("arena in %s needs a file of %d bytes, this process may write %d: raise ulimit -f", dir, need, lim.Cur)
	}
	return nil
}

func reserve(path string, size int64) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(size); err != nil {
		return err
	}
	switch err := fallocate(f, 0, size); {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
		if err := writeZeros(f, size); err != nil {
			return err
		}
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		_ = os.Remove(path) // else the refused arena would fill the disk
		return &NoSpaceError{Dir: filepath.Dir(path), Need: size}
	case err != nil:
		return fmt.Errorf("reserve %d bytes for %s: %w", size, path, err)
	}
	return f.Sync()
}

func fallocate(f *os.File, mode uint32, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), mode, 0, size)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// writeZeros reserves space where the file system can't do it by a call.
func writeZeros(f *os.File, size int64) error {
	zeros := make([]byte, 1<<20)
	for off := int64(0); off < size; off += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off); err != nil {
			return fmt.Errorf("reserve %d bytes by writing them: %w", size, err)
		}
	}
	return nil
}

// replaceFile puts b at path so that after a crash there is the old file or the new one.
func (t tracer) replaceFile(path string, b []byte) (err error) {
	f, err := t.createBeside(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := t.write(f, b); err != nil {
		return err
	}
	return t.moveInPlace(f, path)
}

// createBeside opens path.tmp, empty, for what will be moved to path.
func (t tracer) createBeside(path string) (*os.File, error) {
	if err := t.tell(change{kind: changeCreate, path: path + ".tmp"}); err != nil {
		return nil, fmt.Errorf("create %s.tmp: %w", path, err)
	}
	return os.OpenFile(path+".tmp", os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
}

// write writes a new file's first bytes.
func (t tracer) write(f *os.File, b []byte) error {
	err := t.tell(change{kind: changeWrite, path: f.Name(), data: b})
	if err == nil {
		_, err = f.Write(b)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", f.Name(), err)
	}
	return nil
}

// moveInPlace makes the contents of f durable, then its name.
func (t tracer) moveInPlace(f *os.File, path string) error {
	if err := t.sync(f); err != nil {
		return fmt.Errorf("sync %s: %w", f.Name(), err)
	}
	if err := t.tell(change{kind: changeRename, path: f.Name(), to: path}); err != nil {
		return fmt.Errorf("rename %s: %w", f.Name(), err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return t.syncDir(filepath.Dir(path))
}

func (t tracer) sync(f *os.File) error {
	err := t.tell(change{kind: changeSyncing, path: f.Name()})
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = t.tell(change{kind: changeSync, path: f.Name()})
	}
	return err
}

func (t tracer) syncDir(dir string) error {
	if err := t.tell(change{kind: changeSyncing, path: dir}); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err = errors.Join(d.Sync(), d.Close()); err == nil {
		err = t.tell(change{kind: changeSyncDir, path: dir})
	}
	return err
}
