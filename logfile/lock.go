package logfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// LockFile is the right to use a cache directory. The kernel takes it back when the process ends, however it ends.
type LockFile struct{ f *os.File }

// BusyError says that another process holds a cache directory.
type BusyError struct {
	Dir string
	Pid int // 0 if the holder has not written it yet
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("cache directory %s is in use by process %d: stop it or take another directory", e.Dir, e.Pid)
}

// Lock takes the cache directory dir for this process, until Close or the process's end. If another one holds it the error is a *BusyError.
func Lock(dir string) (*LockFile, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock cache directory: %w", err)
	}
	// flock belongs to the open file, not to the process: a second Lock in the same process is refused too.
	if err := flock(f); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &BusyError{Dir: dir, Pid: readPid(f)}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// The pid is for people; a full disk must not keep a cache from being served, so its errors are ignored.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return &LockFile{f}, nil
}

// Close gives the directory back. The file stays: removing it would let two processes hold locks on two files of one name.
func (l *LockFile) Close() error { return l.f.Close() }

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func readPid(f *os.File) int {
	var b [32]byte
	n, _ := f.ReadAt(b[:], 0)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(b[:n])))
	return pid
}
