package source

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openFile is a file of the source, open for reading. Where samples are small most of their cost is system calls, so it is a bare
// descriptor, found by one openat2 beneath the source. Where that fails, for whatever reason, an os.Root has the last word: it does the
// same by several calls on any kernel, and under any seccomp profile.
type openFile struct {
	fd   int
	slow *os.File // owns fd; nil: fd is ours
}

// open never waits: O_NONBLOCK, because a fifo put in a sample's place must not make it wait for a writer.
func (d *dir) open(path string) (openFile, error) {
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	if fd, err := unix.Openat2(int(d.top.Fd()), path, &how); err == nil {
		return openFile{fd: fd}, nil
	}
	f, err := d.root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return openFile{}, err
	}
	return openFile{fd: int(f.Fd()), slow: f}, nil
}

func (f openFile) close() {
	if f.slow != nil {
		f.slow.Close()
		return
	}
	unix.Close(f.fd) // nothing was written: there is nothing that it could report
}

// readAt fills b, or says with io.EOF that the file ends before.
func (f openFile) readAt(b []byte, off int64) (n int, err error) {
	for n < len(b) {
		m, err := unix.Pread(f.fd, b[n:], off+int64(n))
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return n, err
		case m == 0:
			return n, io.EOF
		default:
			n += m
		}
	}
	return n, nil
}

func (f openFile) stat() (st unix.Stat_t, err error) {
	for {
		if err = unix.Fstat(f.fd, &st); !errors.Is(err, unix.EINTR) {
			return st, err
		}
	}
}
