package blockio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"lcache/internal/trust"
)

// defaultAlign is used if the kernel does not report the alignment: no device in use has larger sectors.
const defaultAlign = 4096

// File is a regular file opened for reading and writing of blocks.
type File struct {
	io                 *IO
	path               string
	fd                 int
	direct             bool
	memAlign, offAlign int

	queues [directions]fileQueue

	mu     sync.Mutex // guards the fields that follow
	users  int        // operations and calls that use fd
	closed bool
}

// OpenFile opens a regular file for reading and writing. With create it creates a missing file (mode 0600). It returns an error if the last
// element is a symbolic link, or if other users can write to the file. It uses O_DIRECT unless Direct is "off". If the file system has no
// O_DIRECT, the file gets buffered I/O, or with "on" an error that matches unix.EINVAL.
func (io *IO) OpenFile(path string, create bool) (*File, error) {
	flags := unix.O_RDWR
	if create {
		flags |= unix.O_CREAT
	}
	f := &File{io: io, path: path, fd: -1, memAlign: 1, offAlign: 1}
	var why error
	if io.direct != "off" {
		f.fd, why = trust.OpenFd(path, flags|unix.O_DIRECT)
		if why == nil {
			f.direct = true
			why = f.askAlignment()
		} else if !errors.Is(why, unix.EINVAL) {
			return nil, why
		}
		if at := new(os.PathError); errors.As(why, &at) {
			why = at.Err // the text below names the path
		}
		if why != nil && io.direct == "on" {
			f.closeFd()
			return nil, fmt.Errorf("open %s with O_DIRECT: %w (choose another file system, or allow buffered I/O)", path, why)
		}
	}
	if why != nil {
		io.setReason("%s has no O_DIRECT (%v), so it is read through the page cache", path, why)
		io.log.Warn("no O_DIRECT", "file", path, "error", why)
		f.closeFd()
	}
	if f.fd < 0 {
		f.direct, f.memAlign, f.offAlign = false, 1, 1
		var err error
		if f.fd, err = trust.OpenFd(path, flags); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *File) closeFd() {
	if f.fd >= 0 {
		_ = unix.Close(f.fd)
		f.fd = -1
	}
}

// askAlignment queries the alignment of direct transfers of this file. It returns an error if the file supports no direct transfers.
func (f *File) askAlignment() error {
	f.memAlign, f.offAlign = defaultAlign, defaultAlign
	var st unix.Statx_t
	err := unix.Statx(f.fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return nil // before Linux 6.1, or the file system does not report it
	}
	if st.Dio_mem_align == 0 || st.Dio_offset_align == 0 {
		return fmt.Errorf("the file system says that this file can't: %w", unix.EINVAL)
	}
	f.memAlign, f.offAlign = int(st.Dio_mem_align), int(st.Dio_offset_align)
	return nil
}

// MemAlign returns the alignment of buffers' addresses in bytes; 1 if the file is buffered.
func (f *File) MemAlign() int { return f.memAlign }

// OffAlign returns the alignment of offsets and lengths in bytes; 1 if the file is buffered.
func (f *File) OffAlign() int { return f.offAlign }

// Direct reports whether transfers bypass the page cache.
func (f *File) Direct() bool { return f.direct }

// Fd returns the File's own descriptor: valid until Close, and not to be closed by callers.
func (f *File) Fd() int { return f.fd }

// Name is the path given to OpenFile.
func (f *File) Name() string { return f.path }

// Allocate reserves disk space for the first size bytes of the file, and makes the file at least that long. New bytes read as zeros. If the
// space is missing, the error matches unix.ENOSPC (or EDQUOT, EFBIG) and the length is unchanged.
func (f *File) Allocate(size int64) error {
	if !f.attach() {
		return fmt.Errorf("reserve %s: %w", f.path, ErrClosed)
	}
	defer f.detach()
	text := fmt.Sprintf("reserve %d bytes in %s", size, f.path)
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(f.fd, &st), unix.Fstatfs(f.fd, &fs)); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	// Checked first, because ext4 takes all free space before it returns ENOSPC, and other users of the device would suffer.
	free := int64(fs.Bavail) * fs.Bsize
	if missing := size - st.Blocks*512; missing > free {
		return fmt.Errorf("%s: %s more are needed and %s are free; free some or ask for less: %w", text,
			humanize.IBytes(uint64(missing)), humanize.IBytes(uint64(free)), unix.ENOSPC)
	}
	var err error
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Fallocate(f.fd, 0, 0, size)
	}
	if err == nil {
		return nil
	}
	if size > st.Size {
		_ = unix.Ftruncate(f.fd, st.Size) // frees the space that was reserved before the error
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%s: this file system can't reserve space; use another: %w", text, err)
	}
	return fmt.Errorf("%s: %w", text, err)
}

// Size returns the file's length in bytes.
func (f *File) Size() (int64, error) {
	if !f.attach() {
		return 0, fmt.Errorf("size of %s: %w", f.path, ErrClosed)
	}
	defer f.detach()
	var st unix.Stat_t
	if err := unix.Fstat(f.fd, &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: f.path, Err: err}
	}
	return st.Size, nil
}

// Sync makes written data durable (fdatasync) and waits for that, as an operation of the engine. An error is final: the kernel has dropped
// data that it could not write, and the next Sync may succeed. So all data that this Sync covers counts as lost. It must not be called from
// a Done.
func (f *File) Sync() error {
	return f.io.wait(context.Background(), &Op{File: f, Write: true, sync: true})
}

// Close makes further operations fail with ErrClosed. It does not wait: the descriptor is closed when the last operation has ended, so that a
// transfer in flight never reaches another file with the same number.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("close %s: %w", f.path, ErrClosed)
	}
	f.closed = true
	if f.users > 0 {
		return nil
	}
	if err := unix.Close(f.fd); err != nil {
		return &os.PathError{Op: "close", Path: f.path, Err: err}
	}
	return nil
}

func (f *File) attach() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.users++
	return true
}

func (f *File) detach() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users--; f.users == 0 && f.closed {
		_ = unix.Close(f.fd) // Sync has reported the errors of the data
	}
}
