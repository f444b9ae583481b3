package sample

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"lcache/internal/disk/durable"
	"lcache/internal/disk/offheap"
)

// Manifest is an open manifest. The slices that it returns are outside Go's heap: read-only, and invalid after Close.
type Manifest struct {
	head    header
	print   Fingerprint
	front   []byte      // the plain form up to the name offsets
	plain   []byte      // the whole plain form; nil: the manifest is too large for memory
	file    io.ReaderAt // the plain form, for reading names
	close   func() error
	classes []string
	exts    []string

	sizes      []uint32
	labels     []int32
	versions   []uint64
	hashes     []uint64
	partStarts []uint32 // nil: no sample has parts
	parts      []uint32 // (ext, size) pairs
	partSums   []uint64 // by part; nil: no part has one
	places     places

	offs, names section
	byName      func() *hashIndex
	fileBytes   uint64 // length of the file, which may be packed
}

// WriteManifest writes the manifest of a listing to path, atomically: the bytes are decoded again and compared before they replace the old
// manifest. The errors of a listing that a manifest can't hold wrap [ErrEntry].
func WriteManifest(path string, classes []string, entries []Entry) (Fingerprint, error) {
	return writeManifest(path, classes, Entries(entries), false, nil)
}

// WriteListing is WriteManifest for a listing that need not be one slice.
func WriteListing(path string, classes []string, entries Listing) (Fingerprint, error) {
	return writeManifest(path, classes, entries, false, nil)
}

// WritePacked is WriteListing in the packed form. A manifest that is too large for it is written plain.
func WritePacked(path string, classes []string, entries Listing) (Fingerprint, error) {
	return writeManifest(path, classes, entries, true, nil)
}

func writeManifest(path string, classes []string, entries Listing, packed bool, trace durable.Trace) (Fingerprint, error) {
	var print Fingerprint
	err := check(classes, entries)
	if err == nil {
		err = trace.Replace(path, func(v *durable.Version) (err error) {
			if packed {
				print, err = encodePacked(v, classes, entries, heldBytes)
			} else {
				print, err = encode(v, classes, entries)
			}
			if err != nil {
				return err
			}
			return verifyWritten(v.File, print, classes, entries)
		})
	}
	if err != nil {
		return Fingerprint{}, fmt.Errorf("write manifest %s: %w", path, err)
	}
	return print, nil
}

// verifyWritten decodes f and compares the result with the listing.
func verifyWritten(f *os.File, print Fingerprint, classes []string, entries Listing) (err error) {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	m, err := readBack(f, fi.Size())
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	defer func() {
		if e := m.Close(); err == nil {
			err = e
		}
	}()
	if m.print != print || m.Len() != entries.Len() || !slices.Equal(m.classes, classes) {
		return fmt.Errorf("read back: %w: header or classes differ from the written ones", ErrCorrupt)
	}
	names := nameReader{m: m}
	for i := range entries.Len() {
		got, err := m.entry(Index(i), &names)
		if err != nil {
			return fmt.Errorf("read back: %w", err)
		}
		want := entries.At(i)
		if got.Name != want.Name || got.Size != want.Size || got.Label != want.Label || got.Version != want.Version || !slices.Equal(got.Parts, want.Parts) || !samePlace(&got, &want) {
			return fmt.Errorf("read back: %w: sample %d differs from the written one", ErrCorrupt, i)
		}
	}
	return nil
}

// readBack opens a manifest that was just written. A plain one takes as little memory as possible, because its listing is also in memory.
func readBack(f *os.File, size int64) (*Manifest, error) {
	begin := make([]byte, min(size, fixedSize))
	if _, err := f.ReadAt(begin, 0); err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	if isPacked(begin) && size <= heldBytes {
		return holdManifest(f, int(size))
	}
	return readManifest(f, uint64(size))
}

// heldBytes is the size up to which a manifest is held in memory: two million samples or so. The names of a larger one are read on
// request.
const heldBytes = 64 << 20

// OpenManifest verifies all of a manifest except the names. A manifest that is not large is read and verified as a whole, because the disk may
// fail later, and a sample can be read from the source only by its name. Errors wrap [ErrCorrupt] or [ErrVersion] if that is the cause.
func OpenManifest(path string) (*Manifest, error) {
	f, size, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("open manifest: %w", err)
	}
	if size <= heldBytes {
		defer f.Close()
		m, err := holdManifest(f, int(size))
		if err != nil {
			return nil, fmt.Errorf("open manifest %s: %w", path, err)
		}
		return m, nil
	}
	m, err := readManifest(f, uint64(size))
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("open manifest %s: %w", path, err)
	}
	free := m.close
	m.close = func() error { return errors.Join(free(), f.Close()) }
	return m, nil
}

// holdManifest reads a manifest into memory, unpacks it there if it is packed, and makes that memory read-only.
func holdManifest(f *os.File, size int) (m *Manifest, err error) {
	mem, err := readPlain(f, size)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			offheap.Free(mem)
		}
	}()
	file := bytes.NewReader(mem)
	h, err := readHeader(file, uint64(len(mem)))
	if err != nil {
		return nil, err
	}
	if err := unix.Mprotect(mem, unix.PROT_READ); err != nil {
		return nil, fmt.Errorf("protect: %w", err)
	}
	if m, err = newManifest(h, mem[:h.find(secNameOffs).off], file); err != nil {
		return nil, err
	}
	if err = m.Verify(); err != nil {
		return nil, err
	}
	m.plain, m.fileBytes = mem, uint64(size)
	m.close = func() error { offheap.Free(mem); return nil }
	return m, nil
}

// readPlain reads a manifest into memory, in its plain form.
func readPlain(f *os.File, size int) ([]byte, error) {
	mem, err := offheap.Make[byte](size)
	if err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, int64(size)), mem); err != nil {
		offheap.Free(mem)
		return nil, fmt.Errorf("read: %w", err)
	}
	if !isPacked(mem) {
		return mem, nil
	}
	defer offheap.Free(mem)
	return unpack(mem)
}

// readManifest opens a manifest that is too large to be held as a whole. Its names stay in f, which the caller closes later. The columns are
// read and not mapped, because they are used everywhere while the server runs. A mapped page that a failing disk can't read, or that is
// beyond the end of a truncated file, would end the process with a signal.
func readManifest(f *os.File, size uint64) (*Manifest, error) {
	h, err := readHeader(f, size)
	if err != nil {
		return nil, err
	}
	mem, err := offheap.Make[byte](int(h.find(secNameOffs).off))
	if err != nil {
		return nil, err
	}
	m, err := columnsIn(mem, h, f)
	if err != nil {
		offheap.Free(mem)
		return nil, err
	}
	return m, nil
}

// columnsIn reads the columns into mem. The manifest owns mem from then on.
func columnsIn(mem []byte, h header, f *os.File) (*Manifest, error) {
	if _, err := f.ReadAt(mem, 0); err != nil {
		return nil, fmt.Errorf("read columns: %w", noEOF(err))
	}
	if err := unix.Mprotect(mem, unix.PROT_READ); err != nil {
		return nil, fmt.Errorf("protect: %w", err)
	}
	m, err := newManifest(h, mem, f)
	if err != nil {
		return nil, err
	}
	m.fileBytes = h.length
	m.close = func() error { offheap.Free(mem); return nil }
	return m, nil
}

func readHeader(r io.ReaderAt, size uint64) (header, error) {
	b := make([]byte, fixedSize, headerSize(maxSections))
	if size < fixedSize {
		return header{}, fmt.Errorf("%w: %d bytes are too few for a manifest", ErrCorrupt, size)
	}
	if _, err := r.ReadAt(b, 0); err != nil {
		return header{}, fmt.Errorf("read header: %w", err)
	}
	n, err := headerLen(b)
	if err != nil {
		return header{}, err
	}
	if uint64(n) > size {
		return header{}, fmt.Errorf("%w: %d bytes are too few for the header", ErrCorrupt, size)
	}
	b = b[:n]
	if _, err := r.ReadAt(b[fixedSize:], fixedSize); err != nil {
		return header{}, fmt.Errorf("read header: %w", err)
	}
	return decodeHeader(b, size)
}

// newManifest verifies front, the file's bytes up to the name offsets, and sets the columns from it.
func newManifest(h header, front []byte, file io.ReaderAt) (*Manifest, error) {
	m := &Manifest{head: h, print: h.fingerprint(), front: front, file: file, offs: h.find(secNameOffs), names: h.find(secNames), close: func() error { return nil }}
	end := uint64(headerSize(len(h.table)))
	for _, s := range h.table {
		if s.off > uint64(len(front)) || s.id == secNames {
			continue
		}
		for _, b := range front[end:s.off] {
			if b != 0 {
				return nil, fmt.Errorf("%w: padding before %v is not zero", ErrCorrupt, s)
			}
		}
		if end = s.off + s.len; s.id == secNameOffs {
			continue
		}
		if xxh3.Hash128(front[s.off:end]).Bytes() != s.sum {
			return nil, fmt.Errorf("%w: section of %v does not match its checksum", ErrCorrupt, s)
		}
	}
	m.sizes = column[uint32](m.section(secSizes))
	m.labels = column[int32](m.section(secLabels))
	m.versions = column[uint64](m.section(secVersions))
	m.hashes = column[uint64](m.section(secNameHashes))
	m.byName = sync.OnceValue(func() *hashIndex { return newHashIndex(m.hashes) })
	var err error
	if m.classes, err = decodeStrings(m.section(secClasses), h.classes); err != nil {
		return nil, fmt.Errorf("classes: %w", err)
	}
	if err := m.takeParts(); err != nil {
		return nil, err
	}
	switch h.version {
	case versionShards:
		err = m.takePlaces()
	case versionRecords:
		if err = m.takeRecordPlaces(); err == nil {
			err = m.takeSums()
		}
	}
	if err != nil {
		return nil, err
	}
	sum := uint64(0)
	for _, n := range m.sizes {
		sum += uint64(n)
	}
	if sum != h.bytes {
		return nil, fmt.Errorf("%w: sizes add up to %d, header says %d", ErrCorrupt, sum, h.bytes)
	}
	return m, nil
}

func (m *Manifest) section(id uint32) []byte {
	s := m.head.find(id)
	return m.front[s.off : s.off+s.len]
}

func (m *Manifest) takeParts() error {
	if m.head.find(secPartStarts).len == 0 {
		return nil
	}
	m.partStarts, m.parts = column[uint32](m.section(secPartStarts)), column[uint32](m.section(secParts))
	exts := m.section(secExts)
	if len(exts) < 4 {
		return fmt.Errorf("%w: extensions have %d bytes", ErrCorrupt, len(exts))
	}
	var err error
	if m.exts, err = decodeStrings(exts[4:], uint64(binary.LittleEndian.Uint32(exts))); err != nil {
		return fmt.Errorf("extensions: %w", err)
	}
	last := m.partStarts[0]
	for _, s := range m.partStarts {
		if s < last {
			return fmt.Errorf("%w: part starts descend", ErrCorrupt)
		}
		last = s
	}
	if m.partStarts[0] != 0 || m.head.find(secParts).len != 8*uint64(last) {
		return fmt.Errorf("%w: %d parts, the table has %d bytes", ErrCorrupt, last, m.head.find(secParts).len)
	}
	for i := range m.sizes {
		from, to := uint64(m.partStarts[i]), uint64(m.partStarts[i+1])
		sum := uint64(0)
		for p := from; p < to; p++ {
			if m.parts[2*p] >= uint32(len(m.exts)) {
				return fmt.Errorf("%w: part %d has no extension", ErrCorrupt, p)
			}
			sum += uint64(m.parts[2*p+1])
		}
		if from < to && sum != uint64(m.sizes[i]) {
			return fmt.Errorf("%w: the parts of sample %d have %d bytes, it has %d", ErrCorrupt, i, sum, m.sizes[i])
		}
	}
	return nil
}

// Close frees the memory. Slices that the manifest returned must not be used afterwards.
func (m *Manifest) Close() error { return m.close() }

// Len returns the number of samples.
func (m *Manifest) Len() int { return len(m.hashes) }

// Size of sample i in bytes.
func (m *Manifest) Size(i Index) uint32 { return m.sizes[i] }

// Sizes of all samples in bytes, by index.
func (m *Manifest) Sizes() []uint32 { return m.sizes }

// Label of sample i.
func (m *Manifest) Label(i Index) int32 { return m.labels[i] }

// Labels of all samples, by index.
func (m *Manifest) Labels() []int32 { return m.labels }

// Version of sample i: see [Entry].
func (m *Manifest) Version(i Index) uint64 { return m.versions[i] }

// NameHash of sample i's name: see the function of this name.
func (m *Manifest) NameHash(i Index) uint64 { return m.hashes[i] }

// NameHashes of all samples, by index.
func (m *Manifest) NameHashes() []uint64 { return m.hashes }

// Classes returns the names of labels 0, 1, …; empty if the source has none. The caller must not change them.
func (m *Manifest) Classes() []string { return m.classes }

// Bytes returns the sum of all sizes.
func (m *Manifest) Bytes() uint64 { return m.head.bytes }

// Fingerprint returns the manifest's fingerprint, which covers every byte of it.
func (m *Manifest) Fingerprint() Fingerprint { return m.print }
