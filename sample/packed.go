package sample

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"lcache/internal/disk/offheap"
)

// The packed manifest. It is another form of the same file: unpacked, it is byte for byte a manifest of version 1, 2 or 4, and has the same fingerprint.
//
//	┌──────────────┬─────────────────────┬──────────────┬──────────────────┬──────────┐
//	│ fixed, 32 B  │ rows, 8 B a section │ plain header │ sections, packed │ sum, 8 B │
//	└──────────────┴─────────────────────┴──────────────┴──────────────────┴──────────┘
//
//	fixed    0  magic     "lcachemf"
//	         8  version   u32 = 3, or 5 if the plain manifest has version 4
//	        12  sections  u32, of the plain manifest
//	        16  plain     u64, bytes of the plain manifest: at most 64 MiB
//	        24  length    u64, of the whole file
//	rows     0  way       u32
//	         4  length    u32, packed bytes of the section
//	sum      0  xxh3-64 of everything before it
//
// The plain header is the unchanged header of the plain manifest: fixed part, table and sum. It has the unpacked length of each section. Sections follow each other without padding. The way is how a section is packed:
//
//	0  as it is
//	1  deflated (RFC 1951)
//	2  in planes, deflated: the first bytes of all numbers, then the second bytes, …
//	3  as steps in planes, deflated: the difference of each number from the one before, and of the first from 0
//	4  left out, with a length of 0: name hashes, which follow from the names
//
// Numbers have 4 or 8 bytes, as in the format's comment (parts, places and sums: 8). Planes and steps leave the bytes after a section's last whole number unchanged.
//
// Reasons: a manifest lists all samples, and a cache whose budget has no room for most of them should not lose much of it to their list.
// Labels rarely change from one sample to the next. Versions share their upper bytes. Steps of name offsets are the lengths of names, and
// names resemble the names before them. A sample with a name of 30 bytes takes 62 bytes. Packed, it takes some 5 if names are numbered, and 19
// if they are random digits. The packer chooses the way with fewest bytes. A reader knows all ways, so the packer can improve without a new
// format.
//
// The file is unpacked when it is opened, into the same memory that a plain manifest of its size has. So only a manifest of up to 64 MiB may be
// packed. The checksum is verified before any field is used. A file that claims impossible sizes is refused before memory is allocated. The
// unpacked bytes are verified as if they had been read. The magic is that of a plain manifest, so that an lcache that does not know
// the version reports what to do. Version 4 has a packed version of its own for that reason.
const (
	versionPacked        = 3
	versionPackedRecords = 5

	packedFixed = 32
	packedRow   = 8
	leastPacked = 64 << 10 // smallest plain manifest that is packed: a smaller one is negligible next to the smallest log
	mostRatio   = 1032     // largest ratio of deflate: 258 bytes from 2 bits
)

const (
	wayAsIs = iota
	wayDeflated
	wayPlanes
	waySteps
	wayLeftOut
)

// widths has the bytes of a section's numbers. Planes and steps are useless for other sections.
var widths = [...]int{secSizes: 4, secLabels: 4, secVersions: 8, secPartStarts: 4, secParts: 8, secPlaces: 8, secNameOffs: 8, secSums: 8}

// isPacked reports whether a file that begins with b is a packed manifest.
func isPacked(b []byte) bool {
	if len(b) < 12 || string(b[:8]) != manifestMagic {
		return false
	}
	v := binary.LittleEndian.Uint32(b[8:])
	return v == versionPacked || v == versionPackedRecords
}

// packedVersion returns the version of the packed form of a plain manifest.
func packedVersion(plain uint32) uint32 {
	if plain == versionRecords {
		return versionPackedRecords
	}
	return versionPacked
}

// unpack returns the plain form of a packed manifest, in memory outside Go's heap. The plain form is not verified yet.
func unpack(b []byte) (plain []byte, err error) {
	h, rows, body, err := decodePacked(b)
	if err != nil {
		return nil, err
	}
	if plain, err = offheap.Make[byte](int(h.length)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			offheap.Free(plain)
			plain = nil
		}
	}()
	scratch, err := offheap.Make[byte](h.longest())
	if err != nil {
		return plain, err
	}
	defer offheap.Free(scratch)
	copy(plain, h.encode())
	for i, s := range h.table {
		way, n := binary.LittleEndian.Uint32(rows[packedRow*i:]), binary.LittleEndian.Uint32(rows[packedRow*i+4:])
		if uint64(n) > uint64(len(body)) {
			return plain, fmt.Errorf("%w: packed section of %v has %d bytes, %d are left", ErrCorrupt, s, n, len(body))
		}
		if !unpackSection(plain[s.off:s.off+s.len], body[:n], s.id, way, scratch) {
			return plain, fmt.Errorf("%w: section of %v can't be unpacked", ErrCorrupt, s)
		}
		body = body[n:]
	}
	if len(body) > 0 {
		return plain, fmt.Errorf("%w: %d bytes behind the last packed section", ErrCorrupt, len(body))
	}
	return plain, hashNames(plain, &h)
}

// decodePacked verifies b, a whole file, and returns the plain header, the rows, and the packed sections.
func decodePacked(b []byte) (h header, rows, body []byte, err error) {
	if !isPacked(b) || len(b) < packedFixed+sumSize {
		return h, nil, nil, fmt.Errorf("%w: %d bytes are too few for a packed manifest", ErrCorrupt, len(b))
	}
	sections, plain, length := binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	if length != uint64(len(b)) {
		return h, nil, nil, fmt.Errorf("%w: file has %d bytes, its packed header says %d", ErrCorrupt, len(b), length)
	}
	body = b[:len(b)-sumSize]
	if xxh3.Hash(body) != binary.LittleEndian.Uint64(b[len(body):]) {
		return h, nil, nil, fmt.Errorf("%w: packed bytes do not match their checksum", ErrCorrupt)
	}
	if plain > heldBytes || plain/mostRatio > length {
		return h, nil, nil, fmt.Errorf("%w: %d packed bytes can't be %d", ErrCorrupt, length, plain)
	}
	if sections > maxSections || packedFixed+packedRow*int(sections)+headerSize(int(sections)) > len(body) {
		return h, nil, nil, fmt.Errorf("%w: %d sections in %d bytes", ErrCorrupt, sections, len(b))
	}
	rows, body = body[packedFixed:][:packedRow*sections], body[packedFixed+packedRow*sections:]
	head := headerSize(int(sections))
	h, err = decodeHeader(body[:head], plain)
	if err == nil && packedVersion(h.version) != binary.LittleEndian.Uint32(b[8:]) {
		err = fmt.Errorf("%w: a manifest of version %d in a packed one of version %d", ErrCorrupt, h.version, binary.LittleEndian.Uint32(b[8:]))
	}
	return h, rows, body[head:], err
}

// unpackSection fills a section. It returns false unless exactly that many bytes were packed in this way.
func unpackSection(section, packed []byte, id, way uint32, scratch []byte) bool {
	switch {
	case way == wayLeftOut:
		return id == secNameHashes && len(packed) == 0
	case way == wayAsIs:
		return copy(section, packed) == len(section) && len(packed) == len(section)
	case way == wayDeflated:
		return inflate(section, packed)
	case (way == wayPlanes || way == waySteps) && widths[id] > 0:
		turned := scratch[:len(section)]
		if !inflate(turned, packed) {
			return false
		}
		fromPlanes(section, turned, widths[id], way == waySteps)
		return true
	}
	return false
}

// inflate fills dst. It returns false unless the deflated data has exactly that many bytes.
func inflate(dst, deflated []byte) bool {
	from := bytes.NewReader(deflated)
	r := flate.NewReader(from)
	if _, err := io.ReadFull(r, dst); err != nil {
		return false
	}
	n, err := r.Read(make([]byte, 1))
	return n == 0 && err == io.EOF && from.Len() == 0
}

// fromPlanes is the reverse of toPlanes.
func fromPlanes(b, planes []byte, width int, steps bool) {
	n, before := len(b)/width, uint64(0)
	for i := range n {
		v := uint64(0)
		for k := range width {
			v |= uint64(planes[k*n+i]) << (8 * k)
		}
		if steps {
			v += before
			before = v
		}
		if width == 4 {
			binary.LittleEndian.PutUint32(b[4*i:], uint32(v))
		} else {
			binary.LittleEndian.PutUint64(b[8*i:], v)
		}
	}
	copy(b[n*width:], planes[n*width:])
}

// hashNames computes the name hashes of a plain manifest without them.
func hashNames(plain []byte, h *header) error {
	part := func(id uint32) []byte { s := h.find(id); return plain[s.off : s.off+s.len] }
	offs, names, hashes := column[uint64](part(secNameOffs)), part(secNames), column[uint64](part(secNameHashes))
	for i := range hashes {
		from, to := offs[i], offs[i+1]
		if from > to || to > uint64(len(names)) || to-from > MaxName {
			return fmt.Errorf("name %d: %w: it is from byte %d to %d of %d", i, ErrCorrupt, from, to, len(names))
		}
		hashes[i] = xxh3.Hash(names[from:to])
	}
	return nil
}

// longest returns the length of the longest section.
func (h *header) longest() (n int) {
	for _, s := range h.table {
		n = max(n, int(s.len))
	}
	return n
}
