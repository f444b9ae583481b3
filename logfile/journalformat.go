package logfile

import (
	"encoding/binary"
	"errors"
	"fmt"

	"lcache/sample"

	"github.com/zeebo/xxh3"
)

// A journal is a header and then records, appended as blocks reach the disk. All fields are little-endian, everything begins at a
// multiple of 8, and both end in a checksum: xxh3-64, seeded with the hash of the cache's uuid, of all bytes before it.
//
//	header
//	 0        8         12       16           24          40     56      60         64              68      72      76   80       88
//	+--------+---------+--------+------------+-----------+------+-------+----------+---------------+-------+-------+----+--------+-----------------+-----+----------+
//	| magic  | version | length | generation | finger-   | key  | epoch | segments | segmentBlocks | align | block | 0  | start  | room            | pad | checksum |
//	| 8      | u32     | u32    | u64        | print 16  | 16   | u32   | u32      | u32           | u32   | u32   | 4  | u64    | u32 × segments  | → 8 | u64      |
//	+--------+---------+--------+------------+-----------+------+-------+----------+---------------+-------+-------+----+--------+-----------------+-----+----------+
//
//	record
//	 0        4        8            16      20        24         28      32   36     40      44      48
//	+--------+--------+------------+-------+---------+----------+-------+----+------+-------+-------+---------------+-----+----------+
//	| magic  | length | generation | epoch | segment | sequence | place | at | used | first | count | indices       | pad | checksum |
//	| u32    | u32    | u64        | u32   | u32     | u32      | u32   | u32| u32  | u32   | u32   | u32 × count   | → 8 | u64      |
//	+--------+--------+------------+-------+---------+----------+-------+----+------+-------+-------+---------------+-----+----------+
//
// A record is self-contained: it locates its samples without other records. So a lost record costs only its own block, reading continues
// after it, and the order in which blocks finish does not matter. Sequence is the block's number in its segment. at and used are bytes
// within the place: 0 and the block's size, except for tails, because several tails share a place. first is the offset in the block of the
// first sample that begins there, or used if none does. The bytes before it belong to a sample that begins in an earlier block. The
// manifest has the lengths of samples.
//
// The journal of packages has version 2. In its header, the number of open packages replaces the 0, and a record's epoch is the round of
// its package: see [Packages].
//
// A record with used 0 and place 2³²-1 means that all blocks of the segment before sequence are freed. Only a clean stop writes such
// records. After a crash it is better to find recently freed blocks again if they are not overwritten, because newer copies of their
// samples may have been only in memory.
const (
	journalMagic   = "LCACHEJ\n"
	journalVersion = 1
	packsVersion   = 2 // of the journal of packages
	headerFixed    = 88
	recordMagic    = 0x314a4c7f // bytes 7f 'L' 'J' '1': a run of zeros is not a record
	recordFixed    = 48
	checksumSize   = 8

	maxSegments = 1 << 24
)

var errNoRecord = errors.New("not a record")

// Header describes the manifest, order and geometry of a Logfile.
type Header struct {
	Fingerprint   sample.Fingerprint // of the manifest whose indices the journal names
	Key           [16]byte           // the caller's name for the order
	Epoch         uint32
	Segments      uint32
	SegmentBlocks uint32   // capacity of a segment, in blocks
	Align         uint32   // as in Format
	Block         uint32   // as in Format
	Starts        []uint64 // len Segments+1: segment k holds at most Starts[k+1]-Starts[k] samples
	Open          uint32   // number of open packages; 0: a Logfile
}

// version returns the version of the journal.
func (h *Header) version() uint32 {
	if h.Open > 0 {
		return packsVersion
	}
	return journalVersion
}

// record is one block, or one tail, in the journal.
type record struct {
	generation         uint64
	epoch              uint32 // for a package: its round
	segment, sequence  uint32
	place, at          uint32
	used, first, count uint32
	indices            []byte // u32 × count, still encoded
}

func (r *record) index(i int) sample.Index { return binary.LittleEndian.Uint32(r.indices[4*i:]) }

// isFreed reports whether the record frees blocks.
func (r *record) isFreed() bool { return r.place == noPlace && r.used == 0 && r.count == 0 }

func checksum(b []byte, seed uint64) uint64 { return xxh3.HashSeed(b, seed) }

func up8(n int) int { return (n + 7) &^ 7 }

func headerSize(segments int) int { return up8(headerFixed+4*segments) + checksumSize }

func recordSize(count int) int { return up8(recordFixed+4*count) + checksumSize }

// recordLimit returns the length of the longest possible record of this format.
func (f Format) recordLimit() int { return recordSize(f.Block / f.Align) }

func encodeHeader(h *Header, generation, seed uint64) []byte {
	b := make([]byte, headerSize(int(h.Segments)))
	copy(b, journalMagic)
	le := binary.LittleEndian
	le.PutUint32(b[8:], h.version())
	le.PutUint32(b[12:], uint32(len(b)))
	le.PutUint64(b[16:], generation)
	copy(b[24:], h.Fingerprint[:])
	copy(b[40:], h.Key[:])
	for i, v := range []uint32{h.Epoch, h.Segments, h.SegmentBlocks, h.Align, h.Block, h.Open} {
		le.PutUint32(b[56+4*i:], v)
	}
	le.PutUint64(b[80:], h.Starts[0])
	for k := range int(h.Segments) {
		le.PutUint32(b[headerFixed+4*k:], uint32(h.Starts[k+1]-h.Starts[k]))
	}
	le.PutUint64(b[len(b)-checksumSize:], checksum(b[:len(b)-checksumSize], seed))
	return b
}

// headerLength returns the length of the whole header, from its first headerFixed bytes.
func headerLength(b []byte) (int, error) {
	le := binary.LittleEndian
	if len(b) < headerFixed || string(b[:8]) != journalMagic {
		return 0, errors.New("not a journal")
	}
	if v := le.Uint32(b[8:]); v != journalVersion && v != packsVersion {
		return 0, fmt.Errorf("%w %d (this program knows %d and %d)", ErrVersion, v, journalVersion, packsVersion)
	}
	segments := le.Uint32(b[60:])
	if segments < 1 || segments > maxSegments || int(le.Uint32(b[12:])) != headerSize(int(segments)) {
		return 0, fmt.Errorf("header of %d bytes for %d segments: it is damaged", le.Uint32(b[12:]), segments)
	}
	return headerSize(int(segments)), nil
}

// decodeHeader accepts exactly the bytes that encodeHeader makes; b must have the length that headerLength returned.
func decodeHeader(b []byte, seed uint64) (h *Header, generation uint64, err error) {
	n, err := headerLength(b)
	if err != nil {
		return nil, 0, err
	}
	le := binary.LittleEndian
	if len(b) != n || le.Uint64(b[n-checksumSize:]) != checksum(b[:n-checksumSize], seed) {
		return nil, 0, errors.New("the header's checksum does not match: it is damaged, or belongs to another cache")
	}
	h = &Header{}
	copy(h.Fingerprint[:], b[24:])
	copy(h.Key[:], b[40:])
	for i, p := range []*uint32{&h.Epoch, &h.Segments, &h.SegmentBlocks, &h.Align, &h.Block, &h.Open} {
		*p = le.Uint32(b[56+4*i:])
	}
	if le.Uint32(b[8:]) != h.version() {
		return nil, 0, errors.New("the header has fields of another version: it is damaged")
	}
	h.Starts = make([]uint64, h.Segments+1)
	h.Starts[0] = le.Uint64(b[80:])
	for k := range int(h.Segments) {
		h.Starts[k+1] = h.Starts[k] + uint64(le.Uint32(b[headerFixed+4*k:]))
	}
	return h, le.Uint64(b[16:]), nil
}

// appendRecord encodes r. The samples are a separate argument because they are not encoded yet.
func appendRecord(dst []byte, r *record, indices []sample.Index, seed uint64) []byte {
	le := binary.LittleEndian
	begin, n := len(dst), recordSize(len(indices))
	dst = le.AppendUint32(dst, recordMagic)
	dst = le.AppendUint32(dst, uint32(n))
	dst = le.AppendUint64(dst, r.generation)
	for _, v := range []uint32{r.epoch, r.segment, r.sequence, r.place, r.at, r.used, r.first, uint32(len(indices))} {
		dst = le.AppendUint32(dst, v)
	}
	for _, i := range indices {
		dst = le.AppendUint32(dst, i)
	}
	if len(indices)%2 == 1 {
		dst = le.AppendUint32(dst, 0)
	}
	return le.AppendUint64(dst, checksum(dst[begin:], seed))
}

// recordLength returns the claimed length of a record, from its first eight bytes. It is at most limit.
func recordLength(b []byte, limit int) (int, error) {
	le := binary.LittleEndian
	if le.Uint32(b) != recordMagic {
		return 0, errNoRecord
	}
	n := int(le.Uint32(b[4:]))
	if n < recordSize(0) || n > limit || n%8 != 0 {
		return 0, errNoRecord
	}
	return n, nil
}

// decodeRecord decodes b into r. recordLength has returned the length of b. r.indices points into b.
func decodeRecord(b []byte, r *record, seed uint64) error {
	le := binary.LittleEndian
	n := len(b)
	if n < recordSize(0) || le.Uint32(b) != recordMagic || int(le.Uint32(b[4:])) != n {
		return errNoRecord
	}
	if le.Uint64(b[n-checksumSize:]) != checksum(b[:n-checksumSize], seed) {
		return errNoRecord
	}
	r.generation = le.Uint64(b[8:])
	for i, p := range []*uint32{&r.epoch, &r.segment, &r.sequence, &r.place, &r.at, &r.used, &r.first, &r.count} {
		*p = le.Uint32(b[16+4*i:])
	}
	if uint64(r.count) > uint64(n) || recordSize(int(r.count)) != n {
		return errNoRecord
	}
	r.indices = b[recordFixed : recordFixed+4*int(r.count)]
	return nil
}
