package sample

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// The manifest file. All numbers are little-endian and of fixed width, n is the number of samples.
//
//	┌──────────────┬───────────────────────┬──────────┬─────────────────────────────────────────────┐
//	│ fixed, 64 B  │ table, 40 B a section │ sum, 8 B │ sections, each at the next multiple of 64 … │
//	└──────────────┴───────────────────────┴──────────┴─────────────────────────────────────────────┘
//
//	fixed    0  magic     "lcachemf"
//	         8  version   u32 = 1; 2 if the samples are in tar shards, 4 if they are records of larger files; 3 and 5: packed, see packed.go
//	        12  sections  u32, rows of the table
//	        16  samples   u64 = n
//	        24  classes   u64
//	        32  bytes     u64, sum of all sizes
//	        40  length    u64, of the whole file
//	        48  zero      16 bytes
//	table    0  id        u32, in the order below
//	         4  zero      u32
//	         8  offset    u64
//	        16  length    u64, in bytes
//	        24  sum       xxh3-128 of the section, canonical (big-endian) bytes
//	sum      0  xxh3-64 of everything before it
//
// Sections, in file order ("?" = only if some sample has parts):
//
//	 1  sizes       u32[n]
//	 2  labels      i32[n]
//	 3  versions    u64[n]
//	 4  namehashes  u64[n]
//	 5  classes     strings
//	 6? partstarts  u32[n+1]: sample i has the parts [partstarts[i], partstarts[i+1])
//	 7? parts       {ext u32, size u32}[partstarts[n]]; ext is a place in exts
//	 8? exts        strings
//	 9  places      only in versions 2 and 4, and there always, as are 6 to 8: see places.go and recordplaces.go
//	12? sums        u64[partstarts[n]], of each part, 0: not known. Only in version 4, and only if some sum is known
//	10  nameoffs    u64[n+1]: name i is names[nameoffs[i]:nameoffs[i+1]]
//	11  names       the names' bytes, back to back
//
// strings: a u32 length for each, then their bytes back to back. The count is known from elsewhere (classes: fixed part)
// or from the section itself (exts: first a u32 count).
//
// Reasons: the columns are used in place, mapped, hence fixed widths and alignment. A reader verifies all sections before the names at open (24 bytes a
// sample: 0.05 s for 14 M). It leaves the names, which are most of the file, on disk: a name is verified by its hash, which is in a verified
// section. The fingerprint is the xxh3-128 of header and table. The table has the checksums of all sections, and padding is zero, so the
// fingerprint covers every byte of the file without reading them all. A listing has only one encoding, so equal listings have equal
// fingerprints on every machine.
const (
	manifestMagic  = "lcachemf"
	versionPlain   = 1
	versionShards  = 2 // the samples are in tar shards
	versionRecords = 4 // the samples are records of larger files

	fixedSize    = 64
	rowSize      = 40
	sumSize      = 8
	sectionAlign = 64
	maxSections  = 16 // bounds the bytes of a header that are read before its checksum is verified
)

const (
	secSizes = iota + 1
	secLabels
	secVersions
	secNameHashes
	secClasses
	secPartStarts
	secParts
	secExts
	secPlaces
	secNameOffs
	secNames
	secSums // is before the names
)

var sectionNames = [...]string{secSizes: "sizes", secLabels: "labels", secVersions: "versions", secNameHashes: "name hashes", secClasses: "classes",
	secPartStarts: "part starts", secParts: "parts", secExts: "extensions", secPlaces: "places", secNameOffs: "name offsets", secNames: "names", secSums: "sums"}

// section is a row of the table.
type section struct {
	id       uint32
	off, len uint64
	sum      [16]byte
}

func (s section) String() string { return sectionNames[s.id] }

// rank returns the position of a section in the order of the file.
func (s section) rank() uint32 {
	if s.id == secSums {
		return 2*secPlaces + 1
	}
	return 2 * s.id
}

// header is the fixed part and the table.
type header struct {
	version                         uint32
	samples, classes, bytes, length uint64
	table                           []section
}

func headerSize(sections int) int { return fixedSize + rowSize*sections + sumSize }

func alignUp(off uint64) uint64 { return (off + sectionAlign - 1) &^ (sectionAlign - 1) }

// find returns the section with this id, or an empty one.
func (h *header) find(id uint32) section {
	for _, s := range h.table {
		if s.id == id {
			return s
		}
	}
	return section{id: id}
}

func (h *header) encode() []byte {
	b := make([]byte, 0, headerSize(len(h.table)))
	b = append(b, manifestMagic...)
	b = binary.LittleEndian.AppendUint32(b, h.version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(h.table)))
	for _, v := range [...]uint64{h.samples, h.classes, h.bytes, h.length, 0, 0} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	for _, s := range h.table {
		b = binary.LittleEndian.AppendUint64(b, uint64(s.id))
		b = binary.LittleEndian.AppendUint64(b, s.off)
		b = binary.LittleEndian.AppendUint64(b, s.len)
		b = append(b, s.sum[:]...)
	}
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
}

// headerLen returns the length of the header, from its fixed part.
func headerLen(fixed []byte) (int, error) {
	if len(fixed) < fixedSize || string(fixed[:8]) != manifestMagic {
		return 0, fmt.Errorf("%w: not a manifest of lcache", ErrCorrupt)
	}
	switch v := binary.LittleEndian.Uint32(fixed[8:]); v {
	case versionPlain, versionShards, versionRecords:
	case versionPacked, versionPackedRecords:
		return 0, fmt.Errorf("%w: a packed manifest of more than %d bytes, or in another one", ErrCorrupt, heldBytes)
	default:
		return 0, fmt.Errorf("%w %d, this lcache reads versions %d to %d: use the lcache that wrote it, or remove the cache and ingest again", ErrVersion, v, versionPlain, versionPackedRecords)
	}
	n := binary.LittleEndian.Uint32(fixed[12:])
	if n > maxSections {
		return 0, fmt.Errorf("%w: header has %d sections", ErrCorrupt, n)
	}
	return headerSize(int(n)), nil
}

// decodeHeader verifies b, a whole header, and that its sections are in their places in a file of this length.
func decodeHeader(b []byte, length uint64) (header, error) {
	var h header
	want, err := headerLen(b)
	if err != nil {
		return h, err
	}
	if len(b) != want {
		return h, fmt.Errorf("%w: header has %d bytes, want %d", ErrCorrupt, len(b), want)
	}
	body := b[:len(b)-sumSize]
	if xxh3.Hash(body) != binary.LittleEndian.Uint64(b[len(body):]) {
		return h, fmt.Errorf("%w: header does not match its checksum", ErrCorrupt)
	}
	le := binary.LittleEndian.Uint64
	h.version = binary.LittleEndian.Uint32(b[8:])
	h.samples, h.classes, h.bytes, h.length = le(b[16:]), le(b[24:]), le(b[32:]), le(b[40:])
	for row := body[fixedSize:]; len(row) > 0; row = row[rowSize:] {
		h.table = append(h.table, section{id: binary.LittleEndian.Uint32(row), off: le(row[8:]), len: le(row[16:]), sum: [16]byte(row[24:40])})
	}
	if !bytes.Equal(h.encode(), b) {
		return h, fmt.Errorf("%w: header has bytes that must be zero", ErrCorrupt)
	}
	return h, h.check(length)
}

// check compares the table with the layout above. No length in the table is used before.
func (h *header) check(length uint64) error {
	if h.length != length {
		return fmt.Errorf("%w: file has %d bytes, header says %d", ErrCorrupt, length, h.length)
	}
	if h.samples > MaxSamples {
		return fmt.Errorf("%w: header has %d samples", ErrCorrupt, h.samples)
	}
	n := h.samples
	want := map[uint32]uint64{secSizes: 4 * n, secLabels: 4 * n, secVersions: 8 * n, secNameHashes: 8 * n, secPartStarts: 4*n + 4, secNameOffs: 8*n + 8}
	var seen, last uint32
	end := uint64(headerSize(len(h.table)))
	for _, s := range h.table {
		if s.id == 0 || s.id >= uint32(len(sectionNames)) || s.rank() <= last {
			return fmt.Errorf("%w: section %d is unknown or out of place", ErrCorrupt, s.id)
		}
		seen, last = seen|1<<s.id, s.rank()
		if w, fixed := want[s.id]; s.off != alignUp(end) || s.off > length || s.len > length-s.off || fixed && s.len != w {
			return fmt.Errorf("%w: section of %v is at byte %d with %d bytes", ErrCorrupt, s, s.off, s.len)
		}
		end = s.off + s.len
	}
	const must = 1<<secSizes | 1<<secLabels | 1<<secVersions | 1<<secNameHashes | 1<<secClasses | 1<<secNameOffs | 1<<secNames
	const parts = 1<<secPartStarts | 1<<secParts | 1<<secExts
	if h.version == versionRecords {
		seen &^= 1 << secSums
	}
	if h.version == versionPlain && seen != must && seen != must|parts || h.version != versionPlain && seen != must|parts|1<<secPlaces {
		return fmt.Errorf("%w: a section is missing, or one too many", ErrCorrupt)
	}
	if end != length {
		return fmt.Errorf("%w: %d bytes behind the last section", ErrCorrupt, length-end)
	}
	return nil
}

// fingerprint returns the manifest's fingerprint; the format's comment defines it.
func (h *header) fingerprint() Fingerprint {
	b := h.encode()
	return xxh3.Hash128(b[:len(b)-sumSize]).Bytes()
}

// decodeStrings reads count strings. It allocates at most as much as the section's own length allows.
func decodeStrings(b []byte, count uint64) ([]string, error) {
	if count > uint64(len(b))/4 {
		return nil, fmt.Errorf("%w: %d strings in %d bytes", ErrCorrupt, count, len(b))
	}
	list := make([]string, count)
	body := b[4*count:]
	for i := range list {
		n := uint64(binary.LittleEndian.Uint32(b[4*i:]))
		if n > uint64(len(body)) || n > MaxName {
			return nil, fmt.Errorf("%w: string %d of %d has %d bytes", ErrCorrupt, i, count, n)
		}
		list[i], body = string(body[:n]), body[n:]
	}
	if len(body) > 0 {
		return nil, fmt.Errorf("%w: %d bytes behind the last string", ErrCorrupt, len(body))
	}
	return list, nil
}

// column views verified bytes as integers, without a copy. Sections are aligned to 64 bytes, in a file mapped at a page.
func column[T uint32 | int32 | uint64](b []byte) []T {
	var t T
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}
