package server

import (
	"context"
	"encoding/binary"
	"math"

	"lcache/engine"
	"lcache/internal/importance/score"
	"lcache/internal/jsonbytes"
	"lcache/sample"
)

// Requests and answers of importance (docs/protocol.md). OBSERVE and EPOCHEND are not answered.
const (
	typeImportance = 17
	typeObserve    = 18
	typeEpochEnd   = 19
	typeReevaluate = 20
	typeOrder      = 21
	typeWeights    = 22

	typeIndicesAre = 138
	typeWeightsAre = 139
)

// mostIndices is how many indices fit an INDICES or WEIGHTS answer.
const mostIndices = (maxFrame - 8 - 8) / 4

// u16s reads n numbers of two bytes. Like column, it first compares n with the remaining bytes.
func (r *body) u16s(n int) []uint16 {
	if n > len(r.b)/2 {
		r.bad, r.b = true, nil
		return nil
	}
	column := make([]uint16, n)
	for i := range column {
		column[i] = binary.LittleEndian.Uint16(r.b[2*i:])
	}
	r.b = r.b[2*n:]
	return column
}

// floats reads n numbers of four bytes, like u16s.
func (r *body) floats(n int) []float32 {
	if n > len(r.b)/4 {
		r.bad, r.b = true, nil
		return nil
	}
	column := make([]float32, n)
	from := r.b[:4*n]
	for i := range column {
		column[i], from = math.Float32frombits(binary.LittleEndian.Uint32(from)), from[4:]
	}
	r.b = r.b[4*n:]
	return column
}

// decodeObserve decodes OBSERVE. A number of samples out of range gives an observation without samples, which is refused and counted later. A frame that
// is shorter than its counts breaks the protocol.
func decodeObserve(b []byte) (o score.Observation, err error) {
	r := body{b: b}
	head := r.u32()
	o = score.Observation{Kind: uint8(head), Rank: uint16(head >> 16), Epoch: r.u32(), Batch: r.u32(), Node: sample.None}
	n := uint64(r.u32())
	if head>>8&0xff != 0 {
		return o, broken("OBSERVE has %#x in a field that must be 0", head>>8&0xff)
	}
	each := uint64(8) // bytes of a sample: index and loss, or index and two counts
	if r.bad || uint64(len(r.b)) < n*each {
		return o, broken("OBSERVE is shorter than its counts")
	}
	if n > score.MaxSamples {
		return o, nil
	}
	switch o.Kind {
	case score.Losses, score.Reevaluated:
		o.Index, o.Loss = r.column(n), r.floats(int(n))
	case score.Counts:
		o.Index, o.Same, o.Other = r.column(n), r.u16s(int(n)), r.u16s(int(n))
		o.Node = r.u32()
		k := uint64(r.u32())
		if k > score.MaxNeighbours && uint64(len(r.b)) == 4*k {
			o.Index = nil
			return o, nil
		}
		o.Neighbours = r.column(k)
	default:
		return o, broken("OBSERVE has kind %d: use 1, 2 or 3", o.Kind)
	}
	return o, r.end("OBSERVE")
}

// observe carries out OBSERVE.
func (c *conn) observe(job int, b []byte) error {
	o, err := decodeObserve(b)
	if err == nil {
		c.s.engine.Observe(job, o)
	}
	return err
}

// observeRead carries out complete OBSERVE frames in the read buffer, up to the first other frame. They arrive many at once, and need neither memory nor
// a deadline of their own.
func (c *conn) observeRead() error {
	for {
		b, err := c.r.Peek(c.r.Buffered())
		if err != nil {
			return err
		}
		n := uint64(0)
		if len(b) >= headerBytes {
			n = 4 + uint64(binary.LittleEndian.Uint32(b))
		}
		if n < headerBytes || n > uint64(len(b)) || b[4] != protocolVersion || b[5] != typeObserve {
			return nil // readFrame reports the error
		}
		f := frame{kind: typeObserve, job: int(binary.LittleEndian.Uint16(b[6:]))}
		if err := c.resolve(&f); err != nil {
			return err
		}
		if err := c.observe(f.job, b[headerBytes:n]); err != nil {
			return err
		}
		if _, err := c.r.Discard(int(n)); err != nil {
			return err
		}
	}
}

// decodeEpochEnd decodes EPOCHEND. Unknown keys are ignored.
func decodeEpochEnd(b []byte) (rank int, p score.Progress, unsent engine.Unsent, err error) {
	said := struct {
		Epoch    uint32   `json:"epoch"`
		Rank     uint32   `json:"rank"`
		Accuracy *float64 `json:"accuracy"`
		Loss     *float64 `json:"loss"`
		Off      bool     `json:"off"`
		Changed  bool     `json:"changed"`
		Dropped  uint32   `json:"dropped"`
		Refused  struct {
			Shape     uint32 `json:"shape"`
			NotFinite uint32 `json:"notfinite"`
			Dimension uint32 `json:"dimension"`
		} `json:"refused"`
	}{}
	if err := jsonbytes.Unmarshal(b, &said); err != nil {
		return 0, p, unsent, broken("EPOCHEND: %v", err)
	}
	p = score.Progress{Epoch: int(said.Epoch), Accuracy: said.Accuracy, Loss: said.Loss, Off: said.Off}
	r := said.Refused
	return int(said.Rank), p, engine.Unsent{Dropped: int64(said.Dropped), Shape: int64(r.Shape), NotFinite: int64(r.NotFinite), Dimension: int64(r.Dimension), Changed: said.Changed}, nil
}

// epochEnd carries out EPOCHEND.
func (c *conn) epochEnd(job int, b []byte) error {
	rank, p, unsent, err := decodeEpochEnd(b)
	if err == nil {
		c.s.engine.EndEpoch(job, rank, p, unsent)
	}
	return err
}

// importance answers IMPORTANCE.
func (c *conn) importance(ctx context.Context, q *request) error {
	said := struct {
		Rank uint16 `json:"rank"`
		Run  string `json:"run"`
	}{}
	if len(q.body) > maxHello {
		return argument("IMPORTANCE has %d bytes", len(q.body))
	}
	if err := jsonbytes.Unmarshal(q.body, &said); err != nil {
		return broken("IMPORTANCE: %v", err)
	}
	info, err := c.s.engine.Importance(ctx, q.job, int(said.Rank), said.Run[:min(len(said.Run), 64)], q.body)
	if err == nil {
		c.out, err = appendJSON(c.out, typeJSON, q.request, info)
	}
	return err
}

// pageRequest requests a part of a list of indices.
type pageRequest struct{ epoch, rank, first, count uint32 }

func decodePage(b []byte, request string) (pageRequest, error) {
	r := body{b: b}
	q := pageRequest{r.u32(), r.u32(), r.u32(), r.u32()}
	return q, r.end(request)
}

// order answers ORDER with a part of a rank's order in an epoch.
func (c *conn) order(ctx context.Context, q *request) error {
	p, err := decodePage(q.body, "ORDER")
	if err != nil {
		return err
	}
	if err := c.roomFor(ctx, headerBytes+8+4*int(min(p.count, mostIndices))); err != nil {
		return err
	}
	page, total, err := c.s.engine.OrderPage(ctx, q.job, int(p.epoch), int(p.rank), p.first, min(p.count, mostIndices))
	if err == nil {
		c.out = appendIndices(c.out, q.request, page, total)
	}
	return err
}

// reevaluate answers REEVALUATE with a part of the samples that a rank evaluates again.
func (c *conn) reevaluate(ctx context.Context, q *request) error {
	p, err := decodePage(q.body, "REEVALUATE")
	if err != nil {
		return err
	}
	if err := c.roomFor(ctx, headerBytes+8+4*int(min(p.count, mostIndices))); err != nil {
		return err
	}
	all, err := c.s.engine.Unstable(q.job, int(p.rank))
	if err == nil {
		from := min(int(p.first), len(all))
		c.out = appendIndices(c.out, q.request, all[from:min(len(all), from+int(min(p.count, mostIndices)))], len(all))
	}
	return err
}

// weightsRequest requests weights of samples in an epoch.
type weightsRequest struct {
	epoch   uint32
	indices []sample.Index
}

func decodeWeights(b []byte) (weightsRequest, error) {
	r := body{b: b}
	q := weightsRequest{epoch: r.u32()}
	q.indices = r.column(uint64(r.u32()))
	return q, r.end("WEIGHTS")
}

// weights answers WEIGHTS.
func (c *conn) weights(ctx context.Context, q *request) error {
	p, err := decodeWeights(q.body)
	if err != nil {
		return err
	}
	if len(p.indices) > mostIndices {
		return tooLarge("weights of %d samples: at most %d fit an answer", len(p.indices), mostIndices)
	}
	if err := c.roomFor(ctx, headerBytes+4+4*len(p.indices)); err != nil {
		return err
	}
	weights, err := c.s.engine.Weights(q.job, int(p.epoch), p.indices)
	if err == nil {
		c.out = appendWeights(c.out, q.request, weights)
	}
	return err
}

func appendWeights(b []byte, request uint32, weights []float32) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint32(begin(b, typeWeightsAre, request), uint32(len(weights)))
	for _, w := range weights {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(w))
	}
	return finish(b, at)
}

// appendIndices appends INDICES: the total count, the count of this page, and the indices.
func appendIndices(b []byte, request uint32, indices []uint32, total int) []byte {
	at := len(b)
	b = appendColumn(begin(b, typeIndicesAre, request), []uint32{uint32(total), uint32(len(indices))})
	return finish(appendColumn(b, indices), at)
}
