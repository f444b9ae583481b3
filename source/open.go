package source

import (
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// openFile is a file of the source, open for reading. For small samples, most of the cost is system calls. So it is a
// bare descriptor, opened by one openat2 if the path has no link. If that fails for any reason, the path is opened
// name by name, which works on any kernel, under any seccomp profile, and for paths of any length.
type openFile struct {
	fd     int
	linked bool     // the path has a link
	slow   *os.File // owns fd; nil: the openFile owns fd
}

// Opening never waits. O_NONBLOCK: if a fifo takes the place of a sample, a read must not wait for a writer.
// O_DIRECTORY refuses a fifo before it is opened.
const (
	asSample = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC
	asFolder = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	asName   = unix.O_PATH | unix.O_CLOEXEC
)

// beneath makes openat2 stay inside the source. Links in /proc to open files of a process count as leaving it.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS

func (d *dir) open(path string, flags int) (openFile, error) {
	how := unix.OpenHow{Flags: uint64(flags), Resolve: beneath | unix.RESOLVE_NO_SYMLINKS}
	fd, err := d.openat2(int(d.top.Fd()), path, &how)
	if err == nil {
		return openFile{fd: fd}, nil
	}
	if errors.Is(err, unix.ELOOP) && !isOdd(path) {
		if how.Resolve = beneath; d.opts.NoFollowLinks {
			fd, err = d.openat2(int(d.top.Fd()), path, &how)
		} else {
			fd, err = unix.Openat(int(d.top.Fd()), path, flags, 0)
		}
		if err == nil {
			return openFile{fd: fd, linked: true}, nil
		}
	}
	return d.openByName(path, flags)
}

// openByName opens one name of the path after the other. It follows no link, unless links may leave the source. If
// they may not, an os.Root decides about a path with a link.
func (d *dir) openByName(path string, flags int) (openFile, error) {
	if isOdd(path) {
		return d.openBeneath(path, flags)
	}
	at, linked, last := int(d.top.Fd()), false, false
	for rest := path; !last; {
		var name string
		var more bool
		name, rest, more = strings.Cut(rest, "/")
		last = !more
		how := unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
		if last {
			how = flags
		}
		fd, err := openat(at, name, how|unix.O_NOFOLLOW)
		if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) { // a link, or an error that the next attempt will report
			if d.opts.NoFollowLinks {
				d.leave(at)
				return d.openBeneath(path, flags)
			}
			linked = true
			fd, err = openat(at, name, how)
		}
		d.leave(at)
		if err != nil {
			return openFile{}, err
		}
		at = fd
	}
	return openFile{fd: at, linked: linked}, nil
}

// leave closes a folder on the path, unless it is the source itself.
func (d *dir) leave(fd int) {
	if fd != int(d.top.Fd()) {
		unix.Close(fd)
	}
}

// openBeneath opens a file only inside the source, if its path has a link or can't be opened otherwise.
func (d *dir) openBeneath(path string, flags int) (openFile, error) {
	f, err := d.root.OpenFile(path, flags, 0)
	if err != nil {
		return openFile{}, err
	}
	return openFile{fd: int(f.Fd()), linked: true, slow: f}, nil
}

// isOdd reports names that no listing contains, and that could lead upward.
func isOdd(path string) bool {
	if path == "." {
		return false
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." {
			return true
		}
	}
	return false
}

func openat(at int, name string, flags int) (fd int, err error) {
	for {
		if fd, err = unix.Openat(at, name, flags, 0); !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// file wraps the descriptor in an os.File.
func (f openFile) file(path string) *os.File {
	if f.slow != nil {
		return f.slow
	}
	return os.NewFile(uintptr(f.fd), path)
}

func (f openFile) close() {
	if f.slow != nil {
		f.slow.Close()
		return
	}
	unix.Close(f.fd) // only read from, so closing can't lose data
}

// readAt fills b. It returns io.EOF if the file ends before.
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
