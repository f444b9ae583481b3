package server

import (
	"encoding/binary"
	"slices"

	"lcache/engine"
	"lcache/internal/jsonbytes"
	"lcache/internal/serve/deliver"
	"lcache/internal/serve/schedule"
	"lcache/sample"
)

// body reads the numbers and columns of a request's body in turn. It remembers a missing one; end reports that, or leftover bytes.
type body struct {
	b   []byte
	bad bool
}

func (r *body) u32() uint32 {
	if len(r.b) < 4 {
		r.bad, r.b = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

// numbers are some u32 of a frame.
type numbers []byte

func (n numbers) len() int { return len(n) / 4 }

func (n numbers) each(yield func(uint32) bool) {
	for ; len(n) > 0 && yield(binary.LittleEndian.Uint32(n)); n = n[4:] {
	}
}

// numbers reads n numbers. The client chose n, so there may be fewer bytes left.
func (r *body) numbers(n uint64) numbers {
	if n > uint64(len(r.b))/4 {
		r.bad, r.b = true, nil
		return nil
	}
	column := numbers(r.b[:4*n])
	r.b = r.b[4*n:]
	return column
}

// column reads and copies n numbers.
func (r *body) column(n uint64) []uint32 {
	from := r.numbers(n)
	if r.bad {
		return nil
	}
	column := make([]uint32, 0, n)
	for v := range from.each {
		column = append(column, v)
	}
	return column
}

// end returns an error that names the request, unless its whole body was read.
func (r *body) end(request string) error {
	if r.bad || len(r.b) > 0 {
		return broken("%s is shorter than its counts", request)
	}
	return nil
}

type chunkRequest struct{ epoch, rank, batch int }

func decodeChunk(b []byte) (chunkRequest, error) {
	r := body{b: b}
	q := chunkRequest{int(r.u32()), int(r.u32()), int(r.u32())}
	return q, r.end("CHUNK")
}

type getRequest struct {
	at      *deliver.Position
	indices []sample.Index
}

func decodeGet(b []byte) (getRequest, error) {
	r := body{b: b}
	epoch, rank, batch := r.u32(), r.u32(), r.u32()
	q := getRequest{indices: r.column(uint64(r.u32()))}
	if epoch != nowhere || rank != nowhere || batch != nowhere {
		q.at = &deliver.Position{Epoch: int(epoch), Rank: int(rank), Batch: int(batch)}
	}
	return q, r.end("GET")
}

func decodeRelease(b []byte) ([]uint64, error) {
	r := body{b: b}
	halves := r.column(2 * uint64(r.u32()))
	leases := make([]uint64, len(halves)/2)
	for i := range leases {
		leases[i] = uint64(halves[2*i]) | uint64(halves[2*i+1])<<32
	}
	return leases, r.end("RELEASE")
}

// decodeList decodes the body of a request that is one list: NAMES, PARTS and CANCEL.
func decodeList(b []byte, request string) ([]uint32, error) {
	r := body{b: b}
	list := r.column(uint64(r.u32()))
	return list, r.end(request)
}

// labelsRequest requests the labels of consecutive samples.
type labelsRequest struct{ first, count uint32 }

func decodeLabels(b []byte) (labelsRequest, error) {
	r := body{b: b}
	q := labelsRequest{first: r.u32(), count: r.u32()}
	return q, r.end("LABELS")
}

// pushRequest is one piece of an order. Its numbers stay in the frame until memory is reserved for them.
type pushRequest struct {
	epoch, rank    int
	first          int  // number of batches in earlier pieces
	more           bool // another piece follows
	sizes, indices numbers
}

// bytes returns the memory that the piece needs.
func (q *pushRequest) bytes() int64 { return int64(len(q.sizes) + len(q.indices)) }

// addTo appends the piece to the earlier ones.
func (q *pushRequest) addTo(o *schedule.Batches) {
	end := uint32(len(o.Indices))
	o.Ends, o.Indices = slices.Grow(o.Ends, q.sizes.len()), slices.Grow(o.Indices, q.indices.len())
	for size := range q.sizes.each {
		end += size
		o.Ends = append(o.Ends, end)
	}
	for index := range q.indices.each {
		o.Indices = append(o.Indices, index)
	}
}

func decodePush(b []byte) (pushRequest, error) {
	r := body{b: b}
	q := pushRequest{epoch: int(r.u32()), rank: int(r.u32()), first: int(r.u32())}
	more := r.u32()
	q.sizes = r.numbers(uint64(r.u32()))
	sum := uint64(0)
	for size := range q.sizes.each {
		sum += uint64(size)
	}
	q.indices = r.numbers(sum)
	if err := r.end("PUSH"); err != nil {
		return q, err
	}
	if more > 1 {
		return q, broken("PUSH has %d in its field more", more)
	}
	q.more = more == 1
	return q, nil
}

// lendRequest requests the samples of a CHUNK or GET, beginning with one of them.
type lendRequest struct {
	kind  uint8 // typeChunk or typeGet
	from  int   // number of the first sample in the batch
	chunk chunkRequest
	get   getRequest
}

func decodeLend(b []byte) (lendRequest, error) {
	r := body{b: b}
	kind, from := r.u32(), int(r.u32())
	q := lendRequest{from: from}
	var err error
	switch {
	case r.bad:
		err = broken("LEND is shorter than its counts")
	case kind == typeChunk:
		q.kind = typeChunk
		q.chunk, err = decodeChunk(r.b)
	case kind == typeGet:
		q.kind = typeGet
		q.get, err = decodeGet(r.b)
	default:
		err = broken("LEND names a request of type %d: it must be a CHUNK or GET", kind)
	}
	return q, err
}

func decodeCopied(b []byte) (uint64, error) {
	r := body{b: b}
	half := r.column(2)
	if err := r.end("COPIED"); err != nil {
		return 0, err
	}
	return uint64(half[0]) | uint64(half[1])<<32, nil
}

// mostSeconds bounds the times in a report.
const mostSeconds = 1e7

// decodeReport decodes the body of REPORT. Unknown keys are ignored. A report without an epoch comes from a worker of the loader.
func decodeReport(b []byte) (engine.Report, error) {
	said := struct {
		Epoch    *uint32 `json:"epoch"`
		Rank     uint32  `json:"rank"`
		LoopWait float64 `json:"loop_wait_seconds"`
		Loop     float64 `json:"loop_seconds"`
		Decode   float64 `json:"decode_seconds"`
		Workers  uint16  `json:"workers"`
		First    uint32  `json:"first"`
		Had      uint32  `json:"had"`
	}{}
	if err := jsonbytes.Unmarshal(b, &said); err != nil {
		return engine.Report{}, broken("REPORT: %v", err)
	}
	for _, seconds := range []float64{said.LoopWait, said.Loop, said.Decode} {
		if seconds < 0 || seconds > mostSeconds {
			return engine.Report{}, broken("REPORT of %g seconds", seconds)
		}
	}
	r := engine.Report{Epoch: -1, Rank: int(said.Rank), LoopWait: said.LoopWait, Loop: said.Loop, Decode: said.Decode, Workers: int(said.Workers),
		First: int(said.First), Had: int(said.Had)}
	if said.Epoch != nil {
		r.Epoch = int(*said.Epoch)
	}
	return r, nil
}
