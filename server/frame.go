package server

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"lcache/internal/errcode"
	"lcache/internal/jsonbytes"
	"lcache/internal/serve/deliver"
	"lcache/internal/usage"
)

// The frame of docs/protocol.md:
//
//	0        4    5    6       8          12
//	┌────────┬────┬────┬───────┬──────────┬──────────────┐
//	│ length │ver │type│ flags │ request  │ body …       │
//	│  u32   │ u8 │ u8 │  u16  │   u32    │ length−8 B   │
//	└────────┴────┴────┴───────┴──────────┴──────────────┘
//
// The length comes first, and it alone determines how many bytes are read. So a frame of an unknown type or version can be skipped, and ERROR is
// readable in all versions.
const (
	protocolVersion = 1
	headerBytes     = 12
	maxFrame        = 16 << 20 // largest length: 8 and the body
	maxHello        = 64 << 10
	batchHead       = 16                             // of a BATCH body: lease, count, pinned
	loanHead        = 20                             // of a LOAN body: loan, count, next, total
	maxBatch        = (maxFrame - 8 - loanHead) / 20 // samples: 20 bytes in a BATCH's columns for each
	maxPushed       = 64 << 20                       // indices in one order, over all its pieces
	readStep        = 256 << 10                      // bytes that are allocated before any of a body have arrived
	nowhere         = 0xffffffff                     // value of the three numbers of a missing position
)

// Types of requests and answers.
const (
	typeHello   = 1
	typeChunk   = 2
	typeGet     = 3
	typeRelease = 4
	typePush    = 5
	typeStatus  = 6
	typeNames   = 7
	typeBye     = 8
	typeCancel  = 9
	typeReport  = 10
	typeParts   = 11
	typeLend    = 12
	typeCopied  = 13
	typeStop    = 14
	typeLabels  = 15
	typeJob     = 16

	typeDiagnose = 23

	typeJSON     = 129
	typeBatch    = 130
	typeEnd      = 131
	typeNamesAre = 132
	typeOK       = 133
	typePartsAre = 134
	typeLoan     = 135

	typeLabelsAre  = 137
	typeServed     = 140
	typeServedLoan = 141
	typeError      = 255
)

// A protocolError names the rule of docs/protocol.md that the client broke. It ends the connection.
type protocolError struct{ reason string }

func (e *protocolError) Error() string { return e.reason }

func broken(format string, args ...any) error { return &protocolError{fmt.Sprintf(format, args...)} }

type frame struct {
	version uint8
	kind    uint8
	job     int // flags: 0, or a number from an answer to JOB
	request uint32
	body    []byte
}

// readFrame reads one frame of at most limit bytes after the length. io.EOF means that the stream ended between frames.
func readFrame(r *bufio.Reader, limit int) (frame, error) {
	f, rest, err := readHead(r, limit)
	if err == nil {
		f.body, err = readBody(r, rest)
	}
	return f, err
}

// readHead reads the header of a frame. It returns the length of the body.
func readHead(r *bufio.Reader, limit int) (f frame, rest int, err error) {
	var head [headerBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return f, 0, err
	}
	f = frame{version: head[4], kind: head[5], job: int(binary.LittleEndian.Uint16(head[6:])), request: binary.LittleEndian.Uint32(head[8:])}
	length := binary.LittleEndian.Uint32(head[:])
	switch {
	case length < 8 || length > uint32(limit):
		return f, 0, broken("frame length %d is not within 8 to %d", length, limit)
	case f.version != protocolVersion:
		return f, 0, broken("server speaks protocol %d, client %d: install the client that belongs to this server", protocolVersion, f.version)
	}
	return f, int(length) - 8, nil
}

// readBody reads n bytes. It allocates memory for a long body only after its first bytes have arrived.
func readBody(r *bufio.Reader, n int) ([]byte, error) {
	b := make([]byte, min(n, readStep))
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, noEOF(err)
	}
	if n > len(b) {
		first := b
		b = make([]byte, n)
		if _, err := io.ReadFull(r, b[copy(b, first):]); err != nil {
			return nil, noEOF(err)
		}
	}
	return b, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// begin appends the header of a frame to b; finish fills in its length.
func begin(b []byte, kind uint8, request uint32) []byte {
	b = append(b, 0, 0, 0, 0, protocolVersion, kind, 0, 0)
	return binary.LittleEndian.AppendUint32(b, request)
}

func finish(b []byte, at int) []byte {
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// hello is the body of HELLO. Unknown keys are ignored.
type hello struct {
	Protocol int    `json:"protocol"`
	Client   string `json:"client"`
	Token    string `json:"token"`
	// Features names the extensions of the protocol's first version that the client understands.
	Features []string `json:"features"`
}

// failure is the body of ERROR. Kind and message are frozen for all versions.
type failure struct {
	Kind    string       `json:"kind"`
	Message string       `json:"message"`
	Sample  string       `json:"sample,omitempty"`
	Reason  string       `json:"reason,omitempty"` // why the sample can't be read: not_found or permission
	Code    errcode.Code `json:"code"`
}

func appendJSON(b []byte, kind uint8, request uint32, v any) ([]byte, error) {
	body, err := jsonbytes.Marshal(v)
	if err != nil {
		return b, err
	}
	if len(body)+8 > maxFrame {
		return b, fmt.Errorf("an answer of %d bytes does not fit a frame", len(body))
	}
	at := len(b)
	return finish(append(begin(b, kind, request), body...), at), nil
}

func appendFailure(b []byte, request uint32, f failure) []byte {
	f.Message = usage.UTF8(f.Message[:min(len(f.Message), 64<<10)]) // a message contains names, which may be long, and have any bytes
	f.Sample = f.Sample[:min(len(f.Sample), 64<<10)]
	b, _ = appendJSON(b, typeError, request, f) // can't fail: five strings that fit
	return b
}

// appendBatch appends BATCH. If the batch has substitutes and the client accepts SERVED, it appends that.
func appendBatch(b []byte, request uint32, batch *deliver.Batch, acceptsServed bool) []byte {
	at := len(b)
	acceptsServed = acceptsServed && hasSubstitutes(batch)
	kind := uint8(typeBatch)
	if acceptsServed {
		kind = typeServed
	}
	b = begin(b, kind, request)
	b = binary.LittleEndian.AppendUint64(b, batch.Lease)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(batch.Indices)))
	b = binary.LittleEndian.AppendUint32(b, pinned(batch))
	b = appendColumns(b, batch)
	if acceptsServed {
		b = appendColumn(b, batch.Requested)
	}
	return finish(b, at)
}

// hasSubstitutes reports whether a batch has substitutes.
func hasSubstitutes(batch *deliver.Batch) bool {
	return batch.Requested != nil && !slices.Equal(batch.Requested, batch.Indices)
}

// appendLoan appends LOAN. If told is true and the loan has substitutes, it appends SERVEDLOAN.
func appendLoan(b []byte, request uint32, loan *deliver.LentPart, told bool) []byte {
	at := len(b)
	told = told && hasSubstitutes(loan.Batch)
	kind := uint8(typeLoan)
	if told {
		kind = typeServedLoan
	}
	b = begin(b, kind, request)
	b = binary.LittleEndian.AppendUint64(b, loan.Lease)
	b = appendColumn(b, []uint32{uint32(len(loan.Indices)), uint32(loan.Next), uint32(loan.Total)})
	b = appendColumns(b, loan.Batch)
	if told {
		b = appendColumn(b, loan.Requested)
	}
	return finish(b, at)
}

func appendColumns(b []byte, batch *deliver.Batch) []byte {
	for _, v := range batch.Offsets {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = appendColumn(b, batch.Lengths)
	b = appendColumn(b, batch.Indices)
	for _, v := range batch.Labels {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// pinned returns the shared memory that a batch's lease pins, in KiB rounded up.
func pinned(batch *deliver.Batch) uint32 { return uint32(min((batch.Pinned+1023)>>10, 1<<32-1)) }

// appendNames appends NAMES with as many names as fit a frame, at least one. A name that does not fit a frame is an error.
func appendNames(b []byte, request uint32, names []string) ([]byte, error) {
	size, n := 12, 0
	for n < len(names) && size+4+len(names[n]) <= maxFrame {
		size += 4 + len(names[n])
		n++
	}
	if n == 0 && len(names) > 0 {
		return b, fmt.Errorf("a name of %d bytes does not fit a frame", len(names[0]))
	}
	at := len(b)
	b = binary.LittleEndian.AppendUint32(begin(b, typeNamesAre, request), uint32(n))
	for _, name := range names[:n] {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(name)))
	}
	for _, name := range names[:n] {
		b = append(b, name...)
	}
	return finish(b, at), nil
}

// appendLabels appends LABELS with as many labels as fit a frame.
func appendLabels(b []byte, request uint32, labels []int32) []byte {
	labels = labels[:min(len(labels), (maxFrame-headerBytes)/4)]
	at := len(b)
	b = binary.LittleEndian.AppendUint32(begin(b, typeLabelsAre, request), uint32(len(labels)))
	for _, v := range labels {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return finish(b, at)
}

func appendEmpty(b []byte, kind uint8, request uint32) []byte {
	return finish(begin(b, kind, request), len(b))
}

func appendColumn(b []byte, column []uint32) []byte {
	for _, v := range column {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}
