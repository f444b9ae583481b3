package cachedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"lcache/internal/trust"
)

// A ClientLock is the lock under which a client lists a source and starts the cache's server (python/lcache/cache_lock.py). While it is held, no other client starts one.
type ClientLock struct{ f *os.File }

// TakeClientLock takes the lock of the cache in dir, and writes this process's activity for waiting clients. It returns nil if another process has the lock.
func TakeClientLock(dir, what string) (*ClientLock, error) {
	path := filepath.Join(dir, openName)
	f, err := trust.Open(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("lock the cache's clients out: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) || err == nil && !isAt(f, path) {
		f.Close()
		return nil, nil
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	text := fmt.Sprintf("%d: %s", os.Getpid(), what)
	_, _ = f.WriteAt([]byte(text), 0) // for people: a full disk must not prevent taking the lock
	_ = f.Truncate(int64(len(text)))
	return &ClientLock{f}, nil
}

// isAt reports whether path still leads to the file: its previous holder may have removed it.
func isAt(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(open, there)
}

// Close releases the lock. A nil ClientLock does nothing.
func (l *ClientLock) Close() {
	if l != nil {
		l.f.Close()
	}
}
