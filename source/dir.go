package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"lcache/sample"
)

// dir is a directory as a source. Everything is opened through an os.Root: whatever names and links say, nothing outside is read.
// A sample's version is its mtime in nanoseconds since 1970.
type dir struct {
	path string
	root *os.Root
	opts Options
}

func openDir(path string, opts Options) (Source, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("open source: %w", advise(err))
	}
	// OpenRoot needs no right to list; without it nothing else would work.
	f, err := root.Open(".")
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("open source %s: %w", clip(path), advise(err))
	}
	f.Close()
	return &dir{path: path, root: root, opts: opts}, nil
}

func (d *dir) String() string { return d.path }
func (d *dir) Close() error   { return d.root.Close() }

// readChunk is how much is read between two looks at the context.
const readChunk = 1 << 20

func (d *dir) Read(ctx context.Context, e sample.Entry, dst []byte) error {
	if len(dst) != int(e.Size) {
		return &SampleError{e.Name, "read", fmt.Errorf("room for %d bytes, the sample has %d", len(dst), e.Size)}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("read sample %s: %w", clip(e.Name), err)
	}
	// O_NONBLOCK: a fifo put in the sample's place must not make the open wait for a writer.
	f, err := d.root.OpenFile(e.Name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return &SampleError{e.Name, "open", advise(err)}
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return &SampleError{e.Name, "stat", err}
	}
	if err := sameVersion(before, e); err != nil {
		return &SampleError{e.Name, "read", err}
	}
	for off := 0; off < len(dst); off += readChunk {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read sample %s: %w", clip(e.Name), err)
		}
		part := dst[off:min(off+readChunk, len(dst))]
		n, err := f.ReadAt(part, int64(off))
		if n < len(part) && errors.Is(err, io.EOF) {
			return &SampleError{e.Name, "read", fmt.Errorf("%w (it ends at %d bytes, had %d)", ErrChanged, off+n, e.Size)}
		}
		if n < len(part) {
			return &SampleError{e.Name, "read", advise(err)}
		}
	}
	after, err := f.Stat()
	if err != nil {
		return &SampleError{e.Name, "stat", err}
	}
	if err := sameVersion(after, e); err != nil {
		return &SampleError{e.Name, "read", fmt.Errorf("while it was read: %w", err)}
	}
	return d.stillThere(before, e)
}

// stillThere looks whether the name still leads to the file that was read: replaced files keep the old one's bytes for those who have it open.
func (d *dir) stillThere(read fs.FileInfo, e sample.Entry) error {
	now, err := d.root.Stat(e.Name)
	if err != nil {
		return &SampleError{e.Name, "stat", advise(err)}
	}
	if !os.SameFile(read, now) {
		return &SampleError{e.Name, "read", fmt.Errorf("%w (replaced by another file while it was read)", ErrChanged)}
	}
	return nil
}

func sameVersion(fi fs.FileInfo, e sample.Entry) error {
	switch {
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%w (it is no longer a regular file)", ErrChanged)
	case fi.Size() != int64(e.Size):
		return fmt.Errorf("%w (it has %d bytes, had %d)", ErrChanged, fi.Size(), e.Size)
	case uint64(fi.ModTime().UnixNano()) != e.Version:
		return fmt.Errorf("%w (it was written to)", ErrChanged)
	}
	return nil
}

// advise adds to an error of the file system what to do about it.
func advise(err error) error {
	var errno syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %w", ErrGone, cause(err))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: make it readable for uid %d", cause(err), os.Geteuid())
	case errors.Is(err, syscall.ELOOP):
		return fmt.Errorf("%w: remove the link", cause(err))
	case errors.Is(err, fs.ErrClosed), errors.As(err, &errno):
		return cause(err)
	}
	return errOutside // the one error of os.Root that the kernel did not give
}

// cause drops the path from an error, since the message names the sample already.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
