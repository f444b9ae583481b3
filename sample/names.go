package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"
)

// Name reads sample i's name from disk (two small reads, usually from the page cache) and verifies it by its hash.
func (m *Manifest) Name(i Index) (string, error) {
	var pair [16]byte
	if _, err := m.file.ReadAt(pair[:], int64(m.offs.off+8*uint64(i))); err != nil {
		return "", fmt.Errorf("read offset of name %d: %w", i, noEOF(err))
	}
	from, to := binary.LittleEndian.Uint64(pair[:8]), binary.LittleEndian.Uint64(pair[8:])
	if err := m.checkSpan(i, from, to); err != nil {
		return "", err
	}
	b := make([]byte, to-from)
	if _, err := m.file.ReadAt(b, int64(m.names.off+from)); err != nil {
		return "", fmt.Errorf("read name %d: %w", i, noEOF(err))
	}
	return m.checkName(i, b)
}

func (m *Manifest) checkSpan(i Index, from, to uint64) error {
	if from > to || to > m.names.len || to-from > MaxName {
		return fmt.Errorf("name %d: %w: it is from byte %d to %d of %d: list the source again", i, ErrCorrupt, from, to, m.names.len)
	}
	return nil
}

func (m *Manifest) checkName(i Index, b []byte) (string, error) {
	if xxh3.Hash(b) != m.hashes[i] {
		return "", fmt.Errorf("name %d: %w: it does not match its hash: list the source again", i, ErrCorrupt)
	}
	return string(b), nil
}

// noEOF turns an end of file into ErrUnexpectedEOF: the header promises more bytes, so the file was truncated while it was open.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Entry returns all data of sample i.
func (m *Manifest) Entry(i Index) (Entry, error) {
	name, err := m.Name(i)
	return m.withName(i, name), err
}

// Entries returns all samples, for a listing that continues from this one. Each takes about a hundred bytes and its name.
func (m *Manifest) Entries() ([]Entry, error) {
	entries := make([]Entry, m.Len())
	names := nameReader{m: m}
	for i := range entries {
		var err error
		if entries[i], err = m.entry(Index(i), &names); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// EachName calls yield with every sample's name, in order, until it returns false. It holds a few names in memory at a time.
func (m *Manifest) EachName(yield func(i Index, name string) bool) error {
	names := nameReader{m: m}
	for i := range m.sizes {
		name, err := names.at(Index(i))
		if err != nil {
			return err
		}
		if !yield(Index(i), name) {
			return nil
		}
	}
	return nil
}

func (m *Manifest) entry(i Index, names *nameReader) (Entry, error) {
	name, err := names.at(i)
	return m.withName(i, name), err
}

func (m *Manifest) withName(i Index, name string) Entry {
	e := Entry{Name: name, Size: m.sizes[i], Label: m.labels[i], Version: m.versions[i], Parts: m.Parts(i)}
	m.setPlace(i, &e)
	return e
}

// Parts returns the parts of sample i, or nil if it has only one.
func (m *Manifest) Parts(i Index) []Part {
	if m.partStarts == nil || m.partStarts[i] == m.partStarts[i+1] {
		return nil
	}
	from, to := m.partStarts[i], m.partStarts[i+1]
	list := make([]Part, 0, to-from)
	for p := uint64(from); p < uint64(to); p++ {
		list = append(list, Part{Ext: m.exts[m.parts[2*p]], Size: m.parts[2*p+1]})
	}
	if m.partSums != nil {
		for k, sum := range m.partSums[from:to] {
			list[k].Sum = sum
		}
	}
	return list
}

// HasParts reports whether some sample has parts.
func (m *Manifest) HasParts() bool { return m.partStarts != nil }

// Lookup finds the sample with this name. The first call builds an index over the name hashes (4.5 bytes a sample). An error means that a
// name could not be read, so it is unknown whether the sample exists.
func (m *Manifest) Lookup(name string) (i Index, found bool, err error) {
	for i := range m.byName().candidates(NameHash(name)) {
		got, err := m.Name(i)
		if err != nil {
			return 0, false, fmt.Errorf("look up %s: %w", clip(name), err)
		}
		if got == name {
			return i, true, nil
		}
	}
	return 0, false, nil
}

// Verify also reads all names, and compares every section with its checksum. It is for checking a cache, not for opening it.
func (m *Manifest) Verify() error {
	end := uint64(len(m.front))
	for _, s := range []section{m.offs, m.names} {
		h := xxh3.New()
		pad := make([]byte, s.off-end)
		if _, err := m.file.ReadAt(pad, int64(end)); err != nil {
			return fmt.Errorf("verify %v: %w", s, noEOF(err))
		}
		for _, b := range pad {
			if b != 0 {
				return fmt.Errorf("verify %v: %w: padding is not zero: list the source again", s, ErrCorrupt)
			}
		}
		if _, err := io.Copy(h, io.NewSectionReader(m.file, int64(s.off), int64(s.len))); err != nil {
			return fmt.Errorf("verify %v: %w", s, err)
		}
		if h.Sum128().Bytes() != s.sum {
			return fmt.Errorf("verify %v: %w: checksum differs: list the source again", s, ErrCorrupt)
		}
		end = s.off + s.len
	}
	names := nameReader{m: m}
	for i := range m.hashes {
		if _, err := names.at(Index(i)); err != nil {
			return fmt.Errorf("verify names: %w", err)
		}
	}
	return nil
}

// A Reader reads entries in about ascending order with few reads of the names, to scan a whole manifest. It must not be used concurrently.
type Reader struct{ names nameReader }

// Reader returns a Reader of the manifest.
func (m *Manifest) Reader() *Reader { return &Reader{nameReader{m: m}} }

// Entry is Manifest.Entry.
func (r *Reader) Entry(i Index) (Entry, error) { return r.names.m.entry(i, &r.names) }

// nameReader reads names in about ascending order with few reads. It must not be used concurrently.
type nameReader struct {
	m           *Manifest
	offs, names window
}

// window is a buffered part of one section.
type window struct {
	buf  []byte
	from uint64 // offset of buf in the section
}

func (r *nameReader) at(i Index) (string, error) {
	b, err := r.offs.get(r.m.file, r.m.offs, 8*uint64(i), 16, 16<<10)
	if err != nil {
		return "", fmt.Errorf("read offset of name %d: %w", i, err)
	}
	from, to := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	if err := r.m.checkSpan(i, from, to); err != nil {
		return "", err
	}
	if b, err = r.names.get(r.m.file, r.m.names, from, to-from, 2*MaxName); err != nil {
		return "", fmt.Errorf("read name %d: %w", i, err)
	}
	return r.m.checkName(i, b)
}

// get returns n bytes at off of section s, which contains them. If it must read, it reads ahead up to most bytes.
func (w *window) get(file io.ReaderAt, s section, off, n, most uint64) ([]byte, error) {
	if off < w.from || off+n > w.from+uint64(len(w.buf)) {
		size := min(most, s.len-off)
		if uint64(cap(w.buf)) < size {
			w.buf = make([]byte, size, most)
		}
		w.buf, w.from = w.buf[:size], off
		if _, err := file.ReadAt(w.buf, int64(s.off+off)); err != nil {
			w.buf = w.buf[:0]
			return nil, noEOF(err)
		}
	}
	return w.buf[off-w.from:][:n], nil
}
