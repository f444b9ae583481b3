package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"lcache/internal/errcode"
	"lcache/sample"
)

// dir is a directory as a source. A name can't leave it. A link may leave it, unless NoFollowLinks is set; then
// nothing outside is read, whatever the link says. A sample's version is its mtime in nanoseconds since 1970. If it
// is reached through a link, the version is a hash of that and of the file's identity. If it has parts, the version
// is a hash over the parts.
type dir struct {
	path    string
	id      string
	root    *os.Root
	top     *os.File // the same folder as root
	dev     uint64   // device of top
	numbers bool     // the device never gives a file's inode to another file
	opts    Options
	inodes  sync.Map // numbers, for other devices
	openat2 func(dirfd int, path string, how *unix.OpenHow) (fd int, err error)
}

func openDir(path string, opts Options) (Source, error) {
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: %w: %s", clip(path), cause(err), cmp.Or(meantShards(path), "check its path"))
	case err != nil:
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: %w", clip(path), advise(err))
	case fi.Mode().IsRegular():
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: it is a file: %s", clip(path), cmp.Or(meantShards(path), noRecords))
	case !fi.IsDir():
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: it is not a directory: give the folder that holds the samples", clip(path))
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, errcode.Errorf(errcode.SourceInvalid, "open source %s: %w", clip(path), advise(err))
	}
	top, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(errcode.Errorf(errcode.SourceInvalid, "open source %s: %w", clip(path), advise(err)), root.Close())
	}
	d := &dir{path: path, root: root, top: top, opts: opts, openat2: unix.Openat2}
	st, err := openFile{fd: int(top.Fd())}.stat() // of the open file, because the name may lead elsewhere by now
	if err != nil {
		return nil, errors.Join(errcode.Errorf(errcode.SourceInvalid, "open source %s: %w", clip(path), err), d.Close())
	}
	d.dev, d.id = uint64(st.Dev), identityOf(uint64(st.Dev), st.Ino)
	d.numbers = numbersFiles(func(fs *unix.Statfs_t) error { return unix.Fstatfs(int(top.Fd()), fs) })
	return d, nil
}

func (d *dir) String() string   { return d.path }
func (d *dir) Identity() string { return d.id }
func (d *dir) Close() error     { return errors.Join(d.top.Close(), d.root.Close()) }

// readChunk is the number of bytes read between two checks of the context.
const readChunk = 1 << 20

func (d *dir) Read(ctx context.Context, e sample.Entry, dst []byte) error {
	if len(dst) != int(e.Size) {
		return &SampleError{e.Name, "read", fmt.Errorf("room for %d bytes, the sample has %d", len(dst), e.Size)}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("read sample %s: %w", clip(e.Name), err)
	}
	if e.Parts == nil {
		_, inode, err := d.readFile(ctx, e.Name, e.Name, dst, &e.Version)
		noteInode(ctx, inode)
		return err
	}
	if err := checkParts(e); err != nil {
		return &SampleError{e.Name, "read", err}
	}
	return d.readParts(ctx, e, dst)
}

// readFile fills dst, which has the listed size, and returns the file's version and inode. It checks the version
// before and after the read. The expected version is *want, or if want is nil the version before the read. name is
// the sample's name.
func (d *dir) readFile(ctx context.Context, name, path string, dst []byte, want *uint64) (version, inode uint64, err error) {
	f, err := d.open(path, asSample)
	if err != nil {
		return 0, 0, &SampleError{name, "open", inPart(name, path, advise(err))}
	}
	defer f.close()
	if version, inode, err = d.versionOf(f, len(dst), want); err != nil {
		return 0, 0, &SampleError{name, "read", inPart(name, path, err)}
	}
	for off := 0; off < len(dst); off += readChunk {
		if err := ctx.Err(); err != nil {
			return 0, 0, fmt.Errorf("read sample %s: %w", clip(name), err)
		}
		part := dst[off:min(off+readChunk, len(dst))]
		n, err := f.readAt(part, int64(off))
		if n < len(part) && errors.Is(err, io.EOF) {
			return 0, 0, &SampleError{name, "read", inPart(name, path, fmt.Errorf("%w (it ends at %d bytes, had %d)", ErrChanged, off+n, len(dst)))}
		}
		if n < len(part) {
			return 0, 0, &SampleError{name, "read", inPart(name, path, advise(err))}
		}
	}
	// The open file is one inode. Even if another file has taken its name since, these are the listed bytes.
	if _, _, err = d.versionOf(f, len(dst), &version); err != nil {
		return 0, 0, &SampleError{name, "read", inPart(name, path, err)}
	}
	return version, inode, nil
}

// inPart adds the name of the failed file to an error, if it differs from the sample's name.
func inPart(name, path string, err error) error {
	if name == path {
		return err
	}
	return fmt.Errorf("file %s: %w", clip(path), err)
}

// versionOf returns an error if an open file has another size or, if want is given, another version.
func (d *dir) versionOf(f openFile, size int, want *uint64) (version, inode uint64, err error) {
	st, err := f.stat()
	if err != nil {
		return 0, 0, err
	}
	version, inode = d.version(&st, f.linked, func(fs *unix.Statfs_t) error { return unix.Fstatfs(f.fd, fs) },
		func() uint64 { return born(f.fd, "", unix.AT_EMPTY_PATH) })
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return 0, 0, fmt.Errorf("%w (it is not a regular file)", ErrChanged)
	case st.Size != int64(size):
		return 0, 0, fmt.Errorf("%w (it has %d bytes, had %d)", ErrChanged, st.Size, size)
	case want != nil && version != *want:
		return 0, 0, fmt.Errorf("%w (it was written to, or its link leads to another file)", ErrChanged)
	}
	return version, inode, nil
}

// advise adds advice to an error of the file system.
func advise(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %w", ErrGone, cause(err))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: make it readable for uid %d", cause(err), os.Geteuid())
	case errors.Is(err, syscall.ELOOP):
		return fmt.Errorf("%w: remove the link", cause(err))
	case errors.Is(err, escapes()):
		return errOutside
	}
	return cause(err)
}

var errOutside = errors.New("its link leaves the source (or is absolute), and nothing outside is read: put the file itself there, or leave out --no-follow-links")

// escapes returns the error of an os.Root for a path that leaves it. The os package does not export that error, so
// escapes provokes it.
var escapes = sync.OnceValue(func() error {
	_, err := os.OpenInRoot("/", "..")
	return cause(err)
})

// cause removes the path from an error, because the message already names the sample.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
