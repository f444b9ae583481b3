package peer

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"
	"google.golang.org/grpc/mem"

	"lcache/sample"
)

// A message on a stream is one frame, in little-endian order:
//
//	head    magic u32 "lcpf" | version u8 | kind u8 | flags u16 | sum u64: xxh3-64 of the head before it and of the body
//	LIST    id u32 | deadline ms u32 | count u32 | count × index u32
//	PARCEL  id u32 | count u32 | bytes u32 | count × (index u32 | length u32 | offset u32 | why u32 | xxh3-64 of the whole sample u64), then the bytes
//	DONE    id u32
//	CANCEL  id u32                                                (of a LIST)
//	MARK    bytes brought so far u64
//	WANT    offset u64                                            (of the stream Manifest)
//	PIECE   offset u64 | total u64 | bytes u32, then the bytes
//
// The bytes of a PARCEL are not in its sum: each sample has its own. docs/protocol-peers.md describes the frames for others.
const (
	magic     = 'l' | 'c'<<8 | 'p'<<16 | 'f'<<24
	version   = 1
	headBytes = 16
	pieceHead = 24 // of a PARCEL's sample
)

// Kinds of frames.
const (
	kindList byte = iota + 1
	kindParcel
	kindDone
	kindMark
	kindWant
	kindPiece
	kindCancel
)

// Bounds of frames from a peer.
const (
	MostIndices = 4096    // of a LIST
	MostLists   = 64      // that a stream has open
	MostFrame   = 2 << 20 // bytes, without the head
)

// ErrFrame is the class of errors about a frame that no peer of this version sends.
var ErrFrame = errors.New("not a frame of this protocol")

// Why says why a sample comes as it does.
type Why uint32

// The reasons. From NotKept on the sample is absent.
const (
	Kept         Why = iota // from the peer's memory or disks
	FromSource              // the peer read the source for it
	NotKept                 // the peer does not keep it
	SourceFailed            // the peer keeps it, has not got it, and could not read the source
	Closing                 // the peer's server ends
	lastWhy      = Closing
)

// IsAbsent reports whether the sample does not come.
func (w Why) IsAbsent() bool { return w >= NotKept }

// list is a LIST.
type list struct {
	id         uint32
	deadlineMS uint32
	indices    []sample.Index
}

// entry is the head of one piece in a PARCEL.
type entry struct {
	index  sample.Index
	length uint32 // of the piece; 0 if the sample is absent
	offset uint32 // of the piece in the sample
	why    Why
	sum    uint64 // of the whole sample
}

// head begins a frame. seal completes it.
func head(kind byte, size int) []byte {
	b := make([]byte, headBytes, headBytes+size)
	binary.LittleEndian.PutUint32(b, magic)
	b[4], b[5] = version, kind
	return b
}

// seal enters the sum of a frame's head and body.
func seal(b []byte) []byte {
	binary.LittleEndian.PutUint64(b[8:], sumOf(b))
	return b
}

func sumOf(b []byte) uint64 {
	var h xxh3.Hasher
	h.Write(b[:8])
	h.Write(b[headBytes:])
	return h.Sum64()
}

func (l *list) encode() []byte {
	le := binary.LittleEndian
	b := head(kindList, 12+4*len(l.indices))
	b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, l.id), l.deadlineMS), uint32(len(l.indices)))
	for _, i := range l.indices {
		b = le.AppendUint32(b, uint32(i))
	}
	return seal(b)
}

// encodeParcel returns the head of a PARCEL. The bytes of its pieces follow in the order of the entries.
func encodeParcel(id uint32, entries []entry) []byte {
	le := binary.LittleEndian
	b := head(kindParcel, 12+pieceHead*len(entries))
	total := uint32(0)
	for _, e := range entries {
		total += e.length
	}
	b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, id), uint32(len(entries))), total)
	for _, e := range entries {
		b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, uint32(e.index)), e.length), e.offset)
		b = le.AppendUint64(le.AppendUint32(b, uint32(e.why)), e.sum)
	}
	return seal(b)
}

func encodeDone(id uint32) []byte {
	return seal(binary.LittleEndian.AppendUint32(head(kindDone, 4), id))
}

func encodeCancel(id uint32) []byte {
	return seal(binary.LittleEndian.AppendUint32(head(kindCancel, 4), id))
}

func encodeMark(brought uint64) []byte {
	return seal(binary.LittleEndian.AppendUint64(head(kindMark, 8), brought))
}

func encodeWant(offset uint64) []byte {
	return seal(binary.LittleEndian.AppendUint64(head(kindWant, 8), offset))
}

// encodePiece returns the head of a PIECE of a manifest.
func encodePiece(offset, total uint64, n int) []byte {
	le := binary.LittleEndian
	b := le.AppendUint64(le.AppendUint64(head(kindPiece, 20), offset), total)
	return seal(le.AppendUint32(b, uint32(n)))
}

// reader reads a frame from the buffers in which it arrived.
type reader struct {
	*mem.Reader
	head [headBytes]byte
	hash xxh3.Hasher
}

// open reads the head of a frame of one of some kinds.
func open(data mem.BufferSlice, kinds ...byte) (r *reader, kind byte, err error) {
	r = &reader{Reader: data.Reader()}
	if n := data.Len(); n > MostFrame+headBytes {
		return nil, 0, fmt.Errorf("%w: %d bytes, and at most %d are allowed", ErrFrame, n, MostFrame+headBytes)
	}
	if err := r.fill(r.head[:]); err != nil {
		return nil, 0, err
	}
	if binary.LittleEndian.Uint32(r.head[:]) != magic || r.head[4] != version {
		return nil, 0, fmt.Errorf("%w: magic %q, version %d", ErrFrame, r.head[:4], r.head[4])
	}
	kind = r.head[5]
	for _, k := range kinds {
		if k == kind {
			r.hash.Write(r.head[:8])
			return r, kind, nil
		}
	}
	return nil, 0, fmt.Errorf("%w: kind %d on this stream", ErrFrame, kind)
}

// fill reads exactly len(b) bytes.
func (r *reader) fill(b []byte) error {
	if r.Remaining() < len(b) {
		return fmt.Errorf("%w: %d bytes are left, and %d were announced", ErrFrame, r.Remaining(), len(b))
	}
	for len(b) > 0 {
		n, err := r.Read(b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// body reads n bytes that are in the sum.
func (r *reader) body(n int) ([]byte, error) {
	if r.Remaining() < n {
		return nil, fmt.Errorf("%w: %d bytes are left, and %d were announced", ErrFrame, r.Remaining(), n)
	}
	b := make([]byte, n)
	if err := r.fill(b); err != nil {
		return nil, err
	}
	r.hash.Write(b)
	return b, nil
}

// check compares the sum. rest is how many bytes must follow.
func (r *reader) check(rest int) error {
	if want := binary.LittleEndian.Uint64(r.head[8:]); r.hash.Sum64() != want {
		return fmt.Errorf("%w: its checksum does not match", ErrFrame)
	}
	if r.Remaining() != rest {
		return fmt.Errorf("%w: %d bytes follow instead of %d", ErrFrame, r.Remaining(), rest)
	}
	return nil
}

// list reads the body of a LIST. samples is the number of samples in the dataset.
func (r *reader) list(samples int) (l list, err error) {
	le := binary.LittleEndian
	b, err := r.body(12)
	if err != nil {
		return l, err
	}
	l.id, l.deadlineMS = le.Uint32(b), le.Uint32(b[4:])
	n := le.Uint32(b[8:])
	if n == 0 || n > MostIndices {
		return l, fmt.Errorf("%w: a LIST of %d samples, 1 to %d are allowed", ErrFrame, n, MostIndices)
	}
	if b, err = r.body(4 * int(n)); err != nil {
		return l, err
	}
	if err := r.check(0); err != nil {
		return l, err
	}
	l.indices = make([]sample.Index, n)
	for i := range l.indices {
		index := le.Uint32(b[4*i:])
		if uint64(index) >= uint64(samples) {
			return l, fmt.Errorf("%w: sample %d of %d", ErrFrame, index, samples)
		}
		l.indices[i] = sample.Index(index)
	}
	return l, nil
}

// parcel reads the head of a PARCEL. The bytes of its pieces can be read from r afterwards.
func (r *reader) parcel(samples int) (id uint32, entries []entry, err error) {
	le := binary.LittleEndian
	b, err := r.body(12)
	if err != nil {
		return 0, nil, err
	}
	id = le.Uint32(b)
	n, total := le.Uint32(b[4:]), le.Uint32(b[8:])
	if n == 0 || n > MostIndices {
		return id, nil, fmt.Errorf("%w: a PARCEL of %d samples, 1 to %d are allowed", ErrFrame, n, MostIndices)
	}
	if b, err = r.body(pieceHead * int(n)); err != nil {
		return id, nil, err
	}
	if err := r.check(int(total)); err != nil {
		return id, nil, err
	}
	entries = make([]entry, n)
	sum := uint64(0)
	for i := range entries {
		f := b[pieceHead*i:]
		e := entry{sample.Index(le.Uint32(f)), le.Uint32(f[4:]), le.Uint32(f[8:]), Why(le.Uint32(f[12:])), le.Uint64(f[16:])}
		switch {
		case uint64(e.index) >= uint64(samples):
			return id, nil, fmt.Errorf("%w: sample %d of %d", ErrFrame, e.index, samples)
		case e.why > lastWhy, e.why.IsAbsent() && (e.length != 0 || e.offset != 0):
			return id, nil, fmt.Errorf("%w: sample %d has %d bytes for reason %d", ErrFrame, e.index, e.length, e.why)
		}
		sum += uint64(e.length)
		entries[i] = e
	}
	if sum != uint64(total) {
		return id, nil, fmt.Errorf("%w: pieces of %d bytes in %d", ErrFrame, sum, total)
	}
	return id, entries, nil
}

func (r *reader) done() (id uint32, err error) {
	b, err := r.body(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), r.check(0)
}

func (r *reader) mark() (brought uint64, err error) {
	b, err := r.body(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), r.check(0)
}

func (r *reader) want() (offset uint64, err error) { return r.mark() }

// piece reads the head of a PIECE. Its bytes can be read from r afterwards.
func (r *reader) piece() (offset, total uint64, n int, err error) {
	le := binary.LittleEndian
	b, err := r.body(20)
	if err != nil {
		return 0, 0, 0, err
	}
	offset, total, n = le.Uint64(b), le.Uint64(b[8:]), int(le.Uint32(b[16:]))
	if err := r.check(n); err != nil {
		return 0, 0, 0, err
	}
	if offset > total || uint64(n) > total-offset || n == 0 {
		return 0, 0, 0, fmt.Errorf("%w: %d bytes at %d of %d", ErrFrame, n, offset, total)
	}
	return offset, total, n, nil
}
