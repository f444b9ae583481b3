package tarshard

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// IndexZip lists the members of a zip file, in the order of its directory, which is at its end. name is the shard's, for errors. It reads the
// directory and the header of each member. A member that is compressed or encrypted is an error if it would be part of a sample: its bytes are
// not in the shard.
func IndexZip(ctx context.Context, name string, o Object) ([]Member, error) {
	w := &zipWindow{ctx: ctx, o: o}
	r, err := zip.NewReader(w, o.Size())
	if err == nil {
		var members []Member
		if members, err = zipMembers(w, r); err == nil {
			return members, nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case w.err != nil:
		err = w.err
	case errors.Is(err, zip.ErrFormat):
		err = errors.New("it is not a zip file, or is truncated: copy or write it again")
	}
	return nil, fmt.Errorf("shard %s: %w", clip(name), err)
}

func zipMembers(w *zipWindow, r *zip.Reader) ([]Member, error) {
	members := make([]Member, 0, len(r.File)) // the directory has that many
	for _, f := range r.File {
		_, ext, ok := Split(f.Name)
		if strings.HasSuffix(f.Name, "/") || !ok && isMeta(f.Name) {
			continue
		}
		m := Member{Name: f.Name}
		if ok {
			if err := refuseZip(f); err != nil {
				return nil, err
			}
			var err error
			if m.Off, err = f.DataOffset(); err != nil {
				return nil, fmt.Errorf("member %s: its header is not where the directory says: the file is damaged, or not written completely: copy or write it again (%w)", clip(f.Name), err)
			}
			if f.UncompressedSize64 > uint64(w.o.Size()) || m.Off < 0 || m.Off > w.o.Size()-int64(f.UncompressedSize64) {
				return nil, fmt.Errorf("member %s: it has %d bytes from byte %d on, but the file has %d: the file is damaged: copy or write it again", clip(f.Name), f.UncompressedSize64, m.Off, w.o.Size())
			}
			m.Size = int64(f.UncompressedSize64)
		}
		if ext == labelExt && m.Size <= MaxText {
			text := make([]byte, m.Size)
			if _, err := w.ReadAt(text, m.Off); err != nil {
				return nil, err
			}
			m.Text = string(text)
		}
		members = append(members, m)
	}
	return members, nil
}

// refuseZip returns an error for a member whose bytes are not in the shard as they are.
func refuseZip(f *zip.File) error {
	switch {
	case f.Flags&1 != 0:
		return fmt.Errorf("member %s is encrypted: write the archive without a password", clip(f.Name))
	case f.Method != zip.Store:
		what := fmt.Sprintf("compressed with method %d", f.Method)
		if f.Method == zip.Deflate {
			what = "compressed (deflate)"
		}
		return fmt.Errorf("member %s is %s, so its bytes are not in the file: write the archive without compression (zip -0, or ZIP_STORED in Python), or unpack it", clip(f.Name), what)
	case f.CompressedSize64 != f.UncompressedSize64:
		return fmt.Errorf("member %s is not compressed but has two sizes, %d and %d: the file is damaged: copy or write it again", clip(f.Name), f.CompressedSize64, f.UncompressedSize64)
	case f.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("member %s is a symbolic link: write the archive with the file itself", clip(f.Name))
	}
	return nil
}

const (
	// mostHop is the distance up to which bytes between two reads are read too.
	mostHop = 1 << 20

	// littlePiece is read where the next read is probably far away.
	littlePiece = 4 << 10
)

// zipWindow is an io.ReaderAt that reads an Object in pieces. It is for one goroutine.
type zipWindow struct {
	ctx  context.Context
	o    Object
	buf  []byte
	from int64
	err  error // of the object
}

func (w *zipWindow) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 || off > w.o.Size() {
		return 0, io.EOF
	}
	for n < len(p) && err == nil {
		if at := off + int64(n); at < w.from || at >= w.from+int64(len(w.buf)) {
			if at == w.o.Size() {
				return n, io.EOF
			}
			err = w.fill(at)
			continue
		}
		n += copy(p[n:], w.buf[off+int64(n)-w.from:])
	}
	return n, err
}

// fill reads a piece from a position on.
func (w *zipWindow) fill(at int64) error {
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	if w.err != nil {
		return w.err
	}
	size := int64(littlePiece)
	if end := w.from + int64(len(w.buf)); at >= end && at-end < mostHop {
		size = int64(w.o.Piece())
	}
	size = min(size, w.o.Size()-at)
	if int64(cap(w.buf)) < size {
		w.buf = make([]byte, size)
	}
	w.buf, w.from = w.buf[:size], at
	if w.err = w.o.ReadAt(w.ctx, w.buf, at); w.err != nil {
		w.buf = w.buf[:0]
	}
	return w.err
}
