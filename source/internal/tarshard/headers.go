package tarshard

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Index lists the members of a shard that can be part of a sample, in their order: files, and links to files. It
// reads every header, but only the bytes of labels. name is the shard's, for errors. If a shard ends before the end
// of its last member, Index returns an error.
func Index(ctx context.Context, name string, o Object) ([]Member, error) {
	w := &window{ctx: ctx, object: o}
	size := o.Size()
	if size > 0 {
		if err := checkStart(name, w); err != nil {
			return nil, err
		}
	}
	if size < blockSize {
		return nil, tooSmall(name, size)
	}
	w.pos = 0 // the bytes read so far stay in the buffer
	return list(ctx, name, w, size)
}

// A track is the byte stream of a tar, from its beginning.
type track interface {
	io.Reader
	offset() int64
	trouble() error // error of the source of the bytes; nil: none
}

// list lists the members on a track. size is the tar's; -1: unknown.
func list(ctx context.Context, name string, w track, size int64) ([]Member, error) {
	r := tar.NewReader(w)
	var members []Member
	last := ""
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return members, nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) { // names are only keys here, so they can't lead outside
			return nil, wrong(ctx, name, last, w, err)
		}
		off := w.offset()
		last = h.Name
		switch {
		case len(last) > mostName:
			return nil, fmt.Errorf("shard %s: the name of its member %s is too long, at most %d bytes: rename it", clip(name), clip(last), mostName)
		case size >= 0 && h.Size > size-off && carries(h):
			return nil, truncated(name, last, uint64(off)+uint64(h.Size), size)
		}
		m := Member{Name: strings.Clone(h.Name), Off: off, Size: h.Size}
		switch {
		case isSparse(h):
			m.Kind = Sparse
		case h.Typeflag == tar.TypeSymlink:
			m.Kind = SymbolicLink
		case h.Typeflag == tar.TypeLink:
			m.Kind = HardLink
		case h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeCont:
			continue
		}
		_, ext, ok := Split(h.Name)
		if !ok && (m.Kind != File || isMeta(h.Name)) {
			continue
		}
		if m.Kind == File && ext == labelExt && m.Size <= MaxText {
			text, err := io.ReadAll(r)
			if err != nil {
				return nil, wrong(ctx, name, last, w, err)
			}
			m.Text = string(text)
		}
		members = append(members, m)
	}
}

// mostName is the maximum length of a member's name in bytes, as for a sample.
const mostName = 64 << 10

// labelExt is the extension of the member with its sample's label.
const labelExt = "cls"

// carries reports whether a member has bytes in the shard.
func carries(h *tar.Header) bool {
	return (h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeCont) && !isSparse(h) // the size of a sparse file includes its holes
}

func isSparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// magics are the first bytes of compressed files, with the command to unpack each.
var magics = []struct{ begins, unpack string }{
	{"\x1f\x8b", "gunzip"}, {"\x28\xb5\x2f\xfd", "zstd -d"}, {"BZh", "bunzip2"}, {"\xfd7zXZ\x00", "unxz"}, {"\x04\x22\x4d\x18", "lz4 -d"},
}

// CheckName returns an error for a shard whose name says that it is compressed. stream allows the compressions that [Unpack] reads.
func CheckName(name string, stream bool) error {
	if stream && Packing(name) != "" {
		return nil
	}
	for ends, unpack := range map[string]string{".gz": "gunzip", ".tgz": "gunzip", ".zst": "zstd -d", ".tzst": "zstd -d", ".bz2": "bunzip2", ".xz": "unxz", ".lz4": "lz4 -d"} {
		if strings.HasSuffix(strings.ToLower(name), ends) {
			return compressed(name, unpack)
		}
	}
	return nil
}

func compressed(name, unpack string) error {
	if Packing(name) != "" {
		return fmt.Errorf("shard %s is compressed, and samples can't be read at random in it: unpack it (%s) and name the .tar, or give --stream to read it once, front to back", clip(name), unpack)
	}
	return fmt.Errorf("shard %s is compressed, and samples can't be read at random in it: unpack it (%s), and name the .tar", clip(name), unpack)
}

func tooSmall(name string, size int64) error {
	return fmt.Errorf("shard %s is truncated: it has %d bytes, and a tar has at least %d: copy or write it again", clip(name), size, blockSize)
}

// checkStart returns an error if a file begins like a compressed one. It may be shorter than a tar.
func checkStart(name string, r io.Reader) error {
	var b [8]byte
	n, err := io.ReadFull(r, b[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("shard %s: %w", clip(name), err)
	}
	for _, m := range magics {
		if bytes.HasPrefix(b[:n], []byte(m.begins)) {
			return compressed(name, m.unpack)
		}
	}
	return nil
}

const blockSize = 512 // the unit of a tar

func truncated(name, member string, end uint64, size int64) error {
	return fmt.Errorf("shard %s is truncated: its member %s ends at byte %d, and the shard has %d: copy or write it again", clip(name), clip(member), end, size)
}

// wrong returns the error of a shard that is damaged after member last.
func wrong(ctx context.Context, name, last string, w track, err error) error {
	where := "at its beginning"
	if last != "" {
		where = "after its member " + clip(last)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case w.trouble() != nil:
		return fmt.Errorf("shard %s: %w", clip(name), w.trouble())
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("shard %s is truncated: it ends %s: copy or write it again", clip(name), where)
	case errors.Is(err, tar.ErrHeader) && last == "":
		return fmt.Errorf("shard %s is not a tar file: check the pattern", clip(name))
	}
	return fmt.Errorf("shard %s is damaged %s: %w: copy or write it again", clip(name), where, err)
}

// A window is an object as an io.ReadSeeker that reads large pieces, because a tar reader asks for 512 bytes at a
// time.
type window struct {
	ctx    context.Context // of one Index
	object Object
	pos    int64
	buf    []byte // from offset at on
	at     int64
	err    error // of the object
}

func (w *window) offset() int64  { return w.pos }
func (w *window) trouble() error { return w.err }

const hopPiece = 32 << 10 // piece to read after a member that is larger than a piece

func (w *window) Read(p []byte) (int, error) {
	left := w.object.Size() - w.pos
	if left <= 0 {
		return 0, io.EOF
	}
	if end := w.at + int64(len(w.buf)); w.pos < w.at || w.pos >= end {
		whole := int64(w.object.Piece())
		piece := whole
		if w.pos > end+whole {
			piece = hopPiece
		}
		if w.buf == nil {
			w.buf = make([]byte, whole)
		}
		w.buf, w.at = w.buf[:min(piece, left)], w.pos
		if err := w.object.ReadAt(w.ctx, w.buf, w.at); err != nil {
			w.err, w.buf = err, w.buf[:0]
			return 0, err
		}
	}
	n := copy(p, w.buf[w.pos-w.at:])
	w.pos += int64(n)
	return n, nil
}

func (w *window) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += w.pos
	case io.SeekEnd:
		off += w.object.Size()
	}
	if off < 0 {
		return w.pos, errors.New("seek before the beginning")
	}
	w.pos = off
	return off, nil
}
