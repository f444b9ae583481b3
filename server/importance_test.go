package server

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"lcache/engine"
	"lcache/internal/importance/score"
	"lcache/internal/serve/status"
)

// observation is the body of OBSERVE.
func observation(o score.Observation) []byte {
	b := columnOf(uint32(o.Kind)|uint32(o.Rank)<<16, o.Epoch, o.Batch, uint32(len(o.Index)))
	b = appendColumn(b, o.Index)
	for _, v := range o.Loss {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	if o.Kind == score.Counts {
		for _, column := range [][]uint16{o.Same, o.Other} {
			for _, v := range column {
				b = binary.LittleEndian.AppendUint16(b, v)
			}
		}
		b = appendColumn(appendColumn(b, []uint32{o.Node, uint32(len(o.Neighbours))}), o.Neighbours)
	}
	return b
}

// tell sends a frame that gets no answer.
func (c *client) tell(kind uint8, body []byte) {
	c.t.Helper()
	c.write(finish(append(begin(nil, kind, 0), body...), 0))
}

// status is the status of the importance of the server's own job.
func (c *client) status() status.Importance {
	c.t.Helper()
	var s status.Document
	if err := json.Unmarshal(c.ask(typeStatus, nil).body, &s); err != nil || s.Jobs[0].Importance == nil {
		c.t.Fatalf("status: %v, %+v", err, s.Jobs[0].Importance)
	}
	return *s.Jobs[0].Importance
}

// order is a rank's order of an epoch, a page at a time.
func (c *client) order(epoch, rank, page uint32) (order []uint32) {
	c.t.Helper()
	for {
		f := c.ask(typeOrder, columnOf(epoch, rank, uint32(len(order)), page))
		if f.kind != typeIndicesAre {
			c.t.Fatalf("ORDER was answered with type %d: %s", f.kind, f.body)
		}
		r := body{b: f.body}
		total := r.u32()
		order = append(order, r.column(uint64(r.u32()))...)
		if err := r.end("INDICES"); err != nil || len(order) > int(total) {
			c.t.Fatalf("%v, %d of %d", err, len(order), total)
		}
		if len(order) == int(total) {
			return order
		}
	}
}

// begin requests importance.
func (c *client) importance(text string) frame {
	c.t.Helper()
	return c.ask(typeImportance, []byte(text))
}

// A client requests importance, observes two ranks' losses, and reads the resulting order: by pages, and as batches.
func TestImportance(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	c := attach(t, s, "")
	if !slices.Contains(c.info.Features, "importance") {
		t.Fatalf("features %v", c.info.Features)
	}
	for rank := range 2 {
		f := c.importance(`{"method":"shade","lag":0,"rank":` + string(rune('0'+rank)) + `,"run":"a"}`)
		var info engine.ImportanceInfo
		if err := json.Unmarshal(f.body, &info); err != nil || f.kind != typeJSON || info.Length != testSamples || info.WorldSize != 2 || info.BatchSize != testBatch || info.Lag != "0" {
			t.Fatalf("type %d: %s", f.kind, f.body)
		}
	}
	for rank := range uint32(2) {
		order := c.order(0, rank, 7)
		if len(order) != testSamples/2 {
			t.Fatalf("rank %d has %d samples", rank, len(order))
		}
		for b, indices := range slices.Collect(slices.Chunk(order, testBatch)) {
			if got := indicesOf(t, c.ask(typeChunk, columnOf(0, rank, uint32(b)))); !slices.Equal(got, indices) {
				t.Errorf("rank %d batch %d is %v, the order has %v", rank, b, got, indices)
			}
			o := score.Observation{Kind: score.Losses, Rank: uint16(rank), Batch: uint32(b), Index: indices, Loss: make([]float32, len(indices))}
			for k, i := range indices {
				o.Loss[k] = float32(i)
			}
			c.tell(typeObserve, observation(o))
			c.tell(typeObserve, observation(o)) // a repetition is ignored
		}
	}
	c.tell(typeEpochEnd, []byte(`{"epoch":0,"rank":0,"accuracy":0.5}`))
	c.tell(typeEpochEnd, []byte(`{"epoch":0,"rank":1,"accuracy":null}`))
	seen := map[uint32]bool{}
	for rank := range uint32(2) {
		for _, i := range c.order(1, rank, 1000) {
			seen[i] = true
		}
	}
	if st := c.status(); len(seen) == testSamples || st.Observations != testSamples || st.ObservedShare != 1 || st.Epoch != 1 || st.EpochLength != testSamples {
		t.Errorf("%d distinct samples, %+v", len(seen), st)
	}
	f := c.ask(typeWeights, columnOf(1, 2, 3, 60))
	r := body{b: f.body}
	if n := r.u32(); f.kind != typeWeightsAre || n != 2 {
		t.Fatalf("type %d, %d weights", f.kind, n)
	}
	if bits := r.column(2); math.Abs(float64(math.Float32frombits(bits[0])+math.Float32frombits(bits[1]))-2) > 1e-5 {
		t.Errorf("weights %x do not have a mean of 1", bits)
	}
	if f := c.ask(typeReevaluate, columnOf(nowhere, 0, 0, 9)); f.kind != typeIndicesAre {
		t.Errorf("REEVALUATE was answered with type %d", f.kind)
	}
}

// served decodes a BATCH, or a SERVED with its requested samples; nil: the same as the served ones.
func (c *client) served(f frame) (b batch, requested []uint32) {
	c.t.Helper()
	if f.kind != typeServed {
		b = c.batch(f)
		b.check(c.t)
		return b, nil
	}
	n := binary.LittleEndian.Uint32(f.body[8:])
	if len(f.body) != batchHead+24*int(n) {
		c.t.Fatalf("a SERVED of %d samples has %d bytes", n, len(f.body))
	}
	end := batchHead + 20*int(n)
	b = c.columns(binary.LittleEndian.Uint64(f.body), f.body[batchHead:end], n)
	b.check(c.t)
	last := body{b: f.body[end:]}
	return b, last.column(uint64(n))
}

// A client with the feature in its HELLO learns the requested sample for each served one: by position, by index and with temporary leases. Another client gets the same batch by position, and exactly its requested samples by index.
func TestSubstitutes(t *testing.T) {
	s := start(t, testEngine(t, func(o *engine.Options) { o.LateEpoch = time.Minute }), nil)
	c, old := attach(t, s, "", "lend", "requested"), attach(t, s, "", "lend")
	for rank := range 2 {
		c.importance(fmt.Sprintf(`{"method":"impact","substitute":"low","cache":0,"rank":%d,"run":"a","params":{"s_share":0}}`, rank))
	}
	for rank := range uint32(2) {
		for b, indices := range slices.Collect(slices.Chunk(c.order(0, rank, 1000), testBatch)) {
			got, requested := c.served(c.ask(typeChunk, columnOf(0, rank, uint32(b))))
			if requested != nil || !slices.Equal(got.indices, indices) {
				t.Errorf("epoch 0 has substitutes: %v for %v", got.indices, indices)
			}
			o := score.Observation{Kind: score.Losses, Rank: uint16(rank), Batch: uint32(b), Index: indices, Loss: make([]float32, len(indices))}
			for k, i := range indices {
				o.Loss[k] = float32(i)
			}
			c.tell(typeObserve, observation(o))
		}
	}
	c.tell(typeEpochEnd, []byte(`{"epoch":0,"rank":0}`))
	c.tell(typeEpochEnd, []byte(`{"epoch":0,"rank":1}`))
	replaced := 0
	for rank := range uint32(2) {
		for b, asked := range slices.Collect(slices.Chunk(c.order(1, rank, 7), testBatch)) {
			at := columnOf(1, rank, uint32(b))
			got, requested := c.served(c.ask(typeChunk, at))
			if requested == nil {
				requested = got.indices
			}
			if !slices.Equal(requested, asked) {
				t.Fatalf("rank %d batch %d: for %v, the order has %v", rank, b, requested, asked)
			}
			for k, i := range got.indices {
				if i != asked[k] {
					replaced++
				}
			}
			get := append(append(slices.Clone(at), columnOf(uint32(len(asked)))...), columnOf(asked...)...)
			if byIndex, _ := c.served(c.ask(typeGet, get)); !slices.Equal(byIndex.indices, got.indices) {
				t.Errorf("by index: %v, by position %v", byIndex.indices, got.indices)
			}
			if plain, requested := old.served(old.ask(typeGet, get)); requested != nil || !slices.Equal(plain.indices, asked) {
				t.Errorf("by index, for a client that did not ask: %v for %v", plain.indices, asked)
			}
			if plain, requested := old.served(old.ask(typeChunk, at)); requested != nil || !slices.Equal(plain.indices, got.indices) {
				t.Errorf("by position, for a client that did not ask: %v, want %v", plain.indices, got.indices)
			}
			f := c.ask(typeLend, lendBody(0, get))
			if want := uint8(typeServedLoan); !slices.Equal(got.indices, asked) && f.kind != want {
				t.Errorf("lent as type %d, want %d", f.kind, want)
			}
			c.ask(typeCopied, copiedBody(binary.LittleEndian.Uint64(f.body)))
		}
	}
	if st := c.status(); replaced == 0 || st.Substituted < int64(replaced) || st.Substitute != "low" {
		t.Errorf("%d substitutes, status %+v", replaced, st)
	}
}

// Bad observations are rejected one by one and counted, and the connection stays. A frame that is shorter than its counts ends it.
func TestBadObservations(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	c := attach(t, s, "")
	c.tell(typeObserve, observation(score.Observation{Kind: score.Losses, Index: []uint32{1}, Loss: []float32{1}})) // before importance was requested
	c.importance(`{"method":"impact","lag":0,"params":{"s_share":0}}`)
	nan, many := float32(math.NaN()), make([]uint32, score.MaxSamples+1)
	for batch, o := range []score.Observation{
		{Index: []uint32{1, 2, 3}, Loss: []float32{nan, 2, float32(math.Inf(-1))}},
		{Index: []uint32{1, testSamples, math.MaxUint32}, Loss: []float32{1, 1, 1}},
		{Index: []uint32{4, 4}, Loss: []float32{1, -1}},
		{},
		{Index: many, Loss: make([]float32, len(many))},
		{Index: []uint32{1}, Loss: []float32{1}, Epoch: 9},
		{Kind: score.Counts, Index: []uint32{1}, Same: []uint16{1}, Other: []uint16{1}},
	} {
		o.Batch, o.Kind = uint32(batch), max(o.Kind, score.Losses)
		c.tell(typeObserve, observation(o))
	}
	c.order(0, 0, 9)
	c.tell(typeEpochEnd, []byte(`{}`))
	c.order(1, 0, 9)
	st := c.status()
	if want := (status.Refused{Unknown: 2, NotFinite: 2, Stale: 1, Shape: 3}); st.Refused != want || st.Observations != 4 {
		t.Errorf("%d observed, refused %+v, want %+v", st.Observations, st.Refused, want)
	}
	for name, b := range map[string][]byte{
		"lies about its length": columnOf(1, 0, 0, 1<<31, 1, 1),
		"too long":              columnOf(1, 0, 0, 1, 1, 1, 1),
		"kind 4":                columnOf(4, 0, 0, 1, 1, 1),
		"a byte that is not 0":  columnOf(1|1<<8, 0, 0, 1, 1, 1),
		"neighbours":            append(columnOf(2, 0, 0, 1, 1, 1), columnOf(math.MaxUint32, 1<<31)...),
	} {
		c := attach(t, s, "")
		c.tell(typeObserve, b)
		if said := c.fails(); said.Kind != "protocol" || !strings.Contains(said.Message, "OBSERVE") {
			t.Errorf("%s: %+v", name, said)
		}
	}
	for _, said := range []string{`{"method":"mine"}`, `{"method":"impact","substitute":"class"}`, `{"method":"impact","cache":"9EB","params":{"s_share":0}}`, `{"method":"shade","local_world_size":1}`} {
		c.send(typeImportance, []byte(said))
		if got := c.fails(); got.Kind != "argument" {
			t.Errorf("%s: %+v", said, got)
		}
	}
}

// Observations may arrive faster than they are processed, for the current epoch or the next one. They take a limited memory, and no client waits for them.
func TestFloodOfObservations(t *testing.T) {
	s := start(t, testEngine(t, nil), nil)
	c := attach(t, s, "")
	c.importance(`{"method":"shade","lag":1}`)
	indices := make([]uint32, score.MaxSamples)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for batch := range uint32(160) { // 80 MB
		c.tell(typeObserve, observation(score.Observation{Kind: score.Losses, Epoch: 1, Batch: batch, Index: indices, Loss: make([]float32, len(indices))}))
	}
	c.ask(typeStatus, nil)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 100<<20 {
		t.Errorf("%d bytes more on the heap", grown)
	}
}
