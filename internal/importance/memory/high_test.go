package memory

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"lcache/internal/importance/policy"
	"lcache/internal/importance/state"
	"lcache/internal/serve/staging"
	"lcache/sample"
)

// slowPolicy is a memory policy whose work at a boundary ends when the test allows it.
type slowPolicy struct {
	policy.Policy
	began, goOn chan struct{}
}

func (p *slowPolicy) wait() {
	p.began <- struct{}{}
	<-p.goOn
}

func (p *slowPolicy) Begin(epoch int, values []float64, order []sample.Index) {
	p.wait()
	p.Policy.Begin(epoch, values, order)
}

func (p *slowPolicy) Clone() (policy.Policy, error) {
	p.wait()
	return p.Policy.Clone()
}

// shared is the shared memory of deliveries.
type shared []byte

func (m shared) slice(offset uint64, n int) []byte { return m[offset:][:n] }

// high returns a memory with room for four samples.
func (s *samples) high(t *testing.T, name, more string) (*High, shared) {
	t.Helper()
	room := 4 * newCells(s.Manifest).round(size)
	c, err := state.Parse(fmt.Appendf(nil, `{"method":"spider","policy":%q,"batch_size":4,"cache":%d,"lag":0%s}`, name, room, more), state.Defaults{Seed: "1", BatchSize: 4, WorldSize: 1, Lag: "0"})
	if err != nil {
		t.Fatal(err)
	}
	m := make(shared, 1<<20)
	h, err := NewHigh(c, Options{Dataset: s.Dataset, Slice: m.slice, Read: func(context.Context, sample.Index, func([]byte)) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h, m
}

// delivery returns a delivery of some samples, with bytes in the shared memory.
func (m shared) delivery(epoch int, data []byte, indices ...sample.Index) Delivery {
	d := Delivery{Epoch: epoch, Indices: indices}
	for k := range indices {
		d.Addresses = append(d.Addresses, staging.Address{Offset: uint64(k) * 4096})
		copy(m[k*4096:], data)
	}
	return d
}

// TestRequestsAtABoundary: while a memory policy scans all samples at a boundary, samples can be copied and the
// status is answered. Deliveries are counted afterwards.
func TestRequestsAtABoundary(t *testing.T) {
	for what, boundary := range map[string]func(h *High){
		"an epoch begins":     func(h *High) { h.Begin(1, make([]float64, 40), nil, nil, state.Config{}) },
		"an epoch is planned": func(h *High) { r, _ := h.Rehearsal(); r.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			d := newSamples(t)
			h, m := d.high(t, "lru", `,"substitute":"class"`)
			slow := &slowPolicy{h.inner(), make(chan struct{}), make(chan struct{})}
			goOn := sync.OnceFunc(func() { close(slow.goOn) })
			t.Cleanup(goOn)
			h.pair = policy.NewHomophily(slow, h.pair.Nodes(), h.total, 1)
			h.policy = h.pair
			h.Served(m.delivery(0, d.bytes[7], 7))
			done := make(chan struct{})
			go func() { defer close(done); boundary(h) }()
			<-slow.began
			returns(t, "a request at a boundary", func() {
				if got := make([]byte, size); !h.held.Copy(7, got) || string(got) != string(d.bytes[7]) {
					t.Error("a sample that is kept is not copied")
				}
				h.Served(m.delivery(1, d.bytes[7], 7))
				h.Served(m.delivery(1, d.bytes[8], 8))
				if held, err := h.held.Set(); err != nil || held.Len() != 1 || !held.Has(7) {
					t.Errorf("%v, %d samples are held", err, held.Len())
				} else {
					held.Close()
				}
				if c := h.Counts(); c.Requested() != 1 || c.Taken != h.held.Size(7) {
					t.Errorf("%+v", c)
				}
				if n := h.Undelivered([]sample.Index{7, 9, 41}); n != 1 {
					t.Errorf("%d samples were observed without a delivery", n)
				}
			})
			goOn()
			<-done
			if c := h.Counts(); c.HighHits != 1 || c.LogHits != 2 || h.Undelivered([]sample.Index{8, 9}) != 1 || h.held.Has(8) {
				t.Errorf("%+v, after the boundary", c)
			}
			if h.Served(m.delivery(1, d.bytes[8], 8)); !h.held.Has(8) {
				t.Error("nothing is kept after a boundary")
			}
		})
	}
}

// TestManyDeliveriesAtABoundary: all deliveries are counted, even if they are not queued for the policy.
func TestManyDeliveriesAtABoundary(t *testing.T) {
	d := newSamples(t)
	h, m := d.high(t, "lru", "")
	h.Served(m.delivery(0, d.bytes[7], 7))
	const n = mostNoted + 1000
	h.alone(func() {
		many := Delivery{Indices: make([]sample.Index, n)}
		for k := range many.Indices {
			many.Indices[k] = 7
		}
		h.Served(many)
	})
	if c := h.Counts(); c.HighHits != n || c.Requested() != n+1 || len(h.noted) != 0 {
		t.Errorf("%+v, want %d hits", c, n)
	}
}

// TestWrongBytesAreNotAHit: a sample with wrong bytes is not a hit, although the policy keeps it. Its bytes are kept
// when they are right.
func TestWrongBytesAreNotAHit(t *testing.T) {
	for _, name := range []string{"lru", "minio", "next-use", "paper"} {
		t.Run(name, func(t *testing.T) {
			d := newSamples(t)
			h, m := d.high(t, name, "")
			order := []sample.Index{7, 7, 7, 7, 7, 7}
			values := make([]float64, 40)
			for i := range values {
				values[i] = 1
			}
			h.Begin(0, values, values, order, state.Config{Cache: h.total})
			for k := range 3 {
				if h.Served(m.delivery(0, d.bytes[8], 7)); h.held.Has(7) {
					t.Fatal("bytes of another sample are kept")
				}
				if c := h.Counts(); c.HighHits != 0 || int(c.LogHits) != k+1 {
					t.Fatalf("%+v after %d misses", c, k+1)
				}
			}
			if h.Served(m.delivery(0, d.bytes[7], 7)); !h.held.Has(7) {
				t.Error("right bytes are not kept")
			}
			if h.Served(m.delivery(0, d.bytes[7], 7)); h.Counts().HighHits != 1 {
				t.Errorf("%+v, want a hit", h.Counts())
			}
		})
	}
}
