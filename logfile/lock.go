package logfile

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lcache/internal/errcode"
	"lcache/internal/trust"
)

// LockFile is the lock of a cache directory. The kernel releases it when the process ends for any reason.
type LockFile struct {
	f         *os.File
	isStopped atomic.Bool
}

// BusyError reports that another process holds a cache directory.
type BusyError struct {
	Dir  string
	Pid  int       // 0 if the holder has not written it yet
	Ends time.Time // when the holder exits if no client connects; zero: never
}

// Code returns the code of the error.
func (*BusyError) Code() errcode.Code { return errcode.InUse }

func (e *BusyError) Error() string {
	left := ""
	if !e.Ends.IsZero() {
		left = fmt.Sprintf(", which has no client and exits in %d s", max(0, int(math.Ceil(time.Until(e.Ends).Seconds()))))
	}
	return fmt.Sprintf("%s is in use by process %d%s: stop it with lcache stop %d, or use another cache", e.Dir, e.Pid, left, e.Pid)
}

// Words of the file's second line. The first is there while the holder waits for a client, and the second after it was told to stop.
const (
	endsWord    = "ends "
	stoppedWord = "stopped"
)

// Lock locks the cache directory dir for this process, until Close or the process's end. If another process holds it, the error is a *BusyError.
func Lock(dir string) (*LockFile, error) {
	path := filepath.Join(dir, lockName)
	for {
		l, err := lock(dir, path)
		if err != nil || l.isAt(path) {
			return l, err
		}
		_ = l.Close() // the previous holder has removed the file
	}
}

func lock(dir, path string) (*LockFile, error) {
	f, err := trust.Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("lock cache directory: %w%s", err, lockAdvice(err))
	}
	// flock belongs to the open file, not to the process: a second Lock in the same process fails too.
	if err := flock(f); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			pid, ends := readHolder(f)
			return nil, &BusyError{Dir: dir, Pid: pid, Ends: ends}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	l := &LockFile{f: f}
	l.SetEnds(time.Time{})
	return l, nil
}

// lockAdvice returns advice for a lock file that can't be opened.
func lockAdvice(err error) string {
	switch {
	case errors.Is(err, unix.EACCES):
		return ": another user made this cache, perhaps root through sudo: ask its owner to remove it, or give another --cache"
	case errors.Is(err, unix.EROFS):
		return ": give a --cache on a file system that can be written"
	}
	return ""
}

// SetEnds writes the holder of the directory, and when it will exit; zero: never. People read this. Errors are ignored, because a full
// disk must not keep a cache from being served.
func (l *LockFile) SetEnds(at time.Time) {
	switch {
	case l.isStopped.Load():
	case at.IsZero():
		l.write("")
	default:
		l.write(endsWord + at.UTC().Format(time.RFC3339Nano) + "\n")
	}
}

// SetStopped writes that this process was told to stop. The line stays after its end. Clients that could start a server then wait a
// moment for another one to start. They measure from the file's time.
func (l *LockFile) SetStopped() {
	if !l.isStopped.Swap(true) {
		l.write(stoppedWord + "\n")
	}
}

// write writes the second line after the pid.
func (l *LockFile) write(second string) {
	text := strconv.Itoa(os.Getpid()) + "\n" + second
	_, _ = l.f.WriteAt([]byte(text), 0)
	_ = l.f.Truncate(int64(len(text)))
}

// Close unlocks the directory. The file stays.
func (l *LockFile) Close() error { return l.f.Close() }

// Remove removes the file. The lock is held until Close. A process that has opened the old file then locks the path again.
func (l *LockFile) Remove() error { return os.Remove(l.f.Name()) }

// isAt reports whether path still leads to the locked file.
func (l *LockFile) isAt(path string) bool {
	mine, err1 := l.f.Stat()
	there, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(mine, there)
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func readHolder(f *os.File) (pid int, ends time.Time) {
	var b [128]byte
	n, _ := f.ReadAt(b[:], 0)
	first, rest, _ := strings.Cut(string(b[:n]), "\n")
	pid, _ = strconv.Atoi(strings.TrimSpace(first))
	if at, found := strings.CutPrefix(rest, endsWord); found {
		at, _, _ = strings.Cut(at, "\n")
		ends, _ = time.Parse(time.RFC3339Nano, at) // a partly written line has no valid time
	}
	return pid, ends
}
