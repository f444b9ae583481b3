package tarshard

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// IndexZip lists the members of a zip file, in the order of its directory, which is at its end. name is the shard's, for errors. It reads the
// directory and the header of each member. A member that is encrypted is an error if it would be part of a sample, and so is a compressed one
// unless decode: the positions of members are then those in what UnpackZip writes.
func IndexZip(ctx context.Context, name string, o Object, decode bool) (members []Member, err error) {
	err = readZip(ctx, name, o, func(w *zipWindow, r *zip.Reader) error {
		members, err = zipMembers(w, r, decode)
		return err
	})
	return members, err
}

// UnpackZip writes the members of a zip file that are part of samples, without compression, one after the other.
func UnpackZip(ctx context.Context, name string, o Object, to io.Writer) error {
	return readZip(ctx, name, o, func(_ *zipWindow, r *zip.Reader) error {
		var buf bytes.Buffer
		for _, f := range r.File {
			if _, _, ok := Split(f.Name); !ok || strings.HasSuffix(f.Name, "/") {
				continue
			}
			if err := unpackMember(f, to, &buf); err != nil {
				return err
			}
		}
		return nil
	})
}

// mostChecked is the size up to which a member is unpacked as a whole, so that its checksum is compared before its bytes are used.
const mostChecked = 64 << 20

// unpackMember writes a member of exactly the size in the directory. buf is memory that it may use.
func unpackMember(f *zip.File, to io.Writer, buf *bytes.Buffer) error {
	if err := refuseZip(f, true); err != nil {
		return err
	}
	in, err := f.Open()
	if err == nil {
		defer in.Close()
		out := to
		if f.UncompressedSize64 <= mostChecked {
			buf.Reset()
			out = buf
		}
		if _, err = io.CopyN(out, in, int64(f.UncompressedSize64)); err == nil {
			var more [1]byte
			if n, end := in.Read(more[:]); n > 0 { // at the end, archive/zip compares the checksum
				err = errors.New("it is longer than the directory says")
			} else if end != io.EOF {
				err = end
			}
		}
		if err == nil && out == buf {
			_, err = to.Write(buf.Bytes())
		}
	}
	if err != nil {
		return fmt.Errorf("member %s can't be unpacked: %w: copy or write the archive again", clip(f.Name), err)
	}
	return nil
}

// readZip reads the directory of a zip file.
func readZip(ctx context.Context, name string, o Object, use func(*zipWindow, *zip.Reader) error) error {
	w := &zipWindow{ctx: ctx, o: o}
	r, err := zip.NewReader(w, o.Size())
	if errors.Is(err, zip.ErrFormat) {
		err = errors.New("it is not a zip file, or is truncated: copy or write it again")
	} else if err == nil {
		err = use(w, r)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case w.err != nil:
		err = w.err
	}
	return fmt.Errorf("shard %s: %w", clip(name), err)
}

func zipMembers(w *zipWindow, r *zip.Reader, decode bool) ([]Member, error) {
	members := make([]Member, 0, len(r.File)) // the directory has that many
	at := int64(0)
	for _, f := range r.File {
		_, ext, ok := Split(f.Name)
		if strings.HasSuffix(f.Name, "/") || !ok && isMeta(f.Name) {
			continue
		}
		m := Member{Name: f.Name}
		if ok && decode {
			if err := refuseZip(f, true); err != nil {
				return nil, err
			}
			m.Off, m.Size = at, int64(f.UncompressedSize64)
			if at += m.Size; at < m.Off {
				return nil, fmt.Errorf("member %s: the members have more than 2⁶³ bytes together: the file is damaged: copy or write it again", clip(f.Name))
			}
			if ext == labelExt && m.Size <= MaxText {
				var text strings.Builder
				if err := unpackMember(f, &text, new(bytes.Buffer)); err != nil {
					return nil, err
				}
				m.Text = text.String()
			}
			members = append(members, m)
			continue
		}
		if ok {
			if err := refuseZip(f, false); err != nil {
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

// mostDeflate is the maximum number of bytes that deflate makes of one.
const mostDeflate = 1032

// refuseZip returns an error for a member whose bytes can't be read; unless decode, also if they are not in the shard as they are.
func refuseZip(f *zip.File, decode bool) error {
	switch {
	case f.Flags&1 != 0:
		return fmt.Errorf("member %s is encrypted: write the archive without a password", clip(f.Name))
	case decode && f.Method == zip.Deflate:
		if f.UncompressedSize64/mostDeflate > f.CompressedSize64 {
			return fmt.Errorf("member %s can't have %d bytes in %d that are compressed: the file is damaged: copy or write it again", clip(f.Name), f.UncompressedSize64, f.CompressedSize64)
		}
		if f.Mode()&fs.ModeSymlink == 0 {
			return nil
		}
		return fmt.Errorf("member %s is a symbolic link: write the archive with the file itself", clip(f.Name))
	case decode && f.Method != zip.Store:
		return fmt.Errorf("member %s is compressed with method %d, which lcache does not know: write the archive with deflate or without compression (zip -0)", clip(f.Name), f.Method)
	case f.Method != zip.Store:
		what, give := fmt.Sprintf("compressed with method %d", f.Method), ""
		if f.Method == zip.Deflate {
			what, give = "compressed (deflate)", "give --stream to unpack it once, front to back, or "
		}
		return fmt.Errorf("member %s is %s, so its bytes are not in the file: %swrite the archive without compression (zip -0, or ZIP_STORED in Python)", clip(f.Name), what, give)
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
