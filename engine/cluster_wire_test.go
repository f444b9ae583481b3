package engine

import (
	"container/heap"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"lcache/internal/peer"
	"lcache/internal/serve/fetch"
	"lcache/sample"
)

// wire carries samples between the machines of a fleet, as bad networks do. What happens to a message depends on the seed, its way, its sample and how often that
// was sent, and not on time. The clock counts messages: a delay is a number of others that overtake the message. If nothing else is sent, the clock goes on.
type wire struct {
	seed    uint64
	running sync.WaitGroup
	stopped chan struct{}
	wake    chan struct{} // has room for one

	mu      sync.Mutex // guards the fields that follow
	weather weather
	now     uint64
	last    uint64 // message
	waiting messages
	sent    map[way]uint64
	asked   map[way]int // LISTs that named a sample
	open    map[*wireRequest]struct{}
	counts  struct{ sent, delayed, lost, flipped, broken, cut int }
}

// weather is how many of 1,000 messages suffer something. Delays are up to most.
type weather struct {
	delayed, lost, flipped, breaking int
	most                             uint64
}

// way is where a sample goes.
type way struct {
	from, to string
	index    sample.Index
}

// message is a sample on its way.
type message struct {
	due, number uint64
	of          *wireRequest
	b           peer.Brought
	bytes       []byte
}

// messages are ordered by when they are due.
type messages []message

func (m messages) Len() int { return len(m) }
func (m messages) Less(i, j int) bool {
	return m[i].due < m[j].due || m[i].due == m[j].due && m[i].number < m[j].number
}
func (m messages) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m *messages) Push(x any)   { *m = append(*m, x.(message)) }
func (m *messages) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// wireRequest is a request whose answer is on its way.
type wireRequest struct {
	to     *machineOfFleet
	cancel context.CancelCauseFunc
	ctx    context.Context

	mu   sync.Mutex // held while the sink is used
	sink fetch.Sink // nil: the request has ended

	left sync.WaitGroup // messages
}

func newWire(t *testing.T, seed uint64) *wire {
	w := &wire{seed: seed, stopped: make(chan struct{}), wake: make(chan struct{}, 1), sent: map[way]uint64{}, asked: map[way]int{}, open: map[*wireRequest]struct{}{}}
	w.running.Go(w.run)
	t.Cleanup(func() {
		close(w.stopped)
		w.running.Wait()
		t.Logf("messages: %+v", w.counts)
	})
	return w
}

func (w *wire) change(to weather) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.weather = to
}

// fetch is a request over the wire.
func (w *wire) fetch(ctx context.Context, from, to *machineOfFleet, indices []sample.Index, sink fetch.Sink) error {
	r := &wireRequest{to: to, sink: sink}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	w.mu.Lock()
	w.open[r] = struct{}{}
	for _, i := range indices {
		w.asked[way{from.name, to.name, i}]++
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.open, r)
		w.mu.Unlock()
		r.mu.Lock()
		r.sink = nil
		r.mu.Unlock()
	}()
	to.Home().Bring(r.ctx, indices, func(b peer.Brought) {
		w.send(from, r, message{of: r, b: b, bytes: slices.Clone(b.Bytes)})
		if b.Release != nil {
			b.Release()
		}
	})
	arrived := make(chan struct{})
	go func() { // it ends because the wire delivers all messages
		r.left.Wait()
		close(arrived)
	}()
	select {
	case <-arrived:
	case <-r.ctx.Done():
	}
	return context.Cause(r.ctx)
}

// send puts a message on its way.
func (w *wire) send(from *machineOfFleet, r *wireRequest, m message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	on := way{r.to.name, from.name, m.b.Index}
	n := w.sent[on]
	w.sent[on]++
	w.counts.sent++
	w.now++
	w.last++
	key := binary.LittleEndian.AppendUint64([]byte(on.from+"\x00"+on.to), w.seed)
	d := rand.New(rand.NewPCG(xxh3.HashSeed(binary.LittleEndian.AppendUint64(key, n), uint64(on.index)), w.seed))
	m.due, m.number = w.now, w.last
	if d.IntN(1000) < w.weather.delayed {
		m.due += 1 + d.Uint64N(w.weather.most)
		w.counts.delayed++
	}
	switch lot := d.IntN(1000) - w.weather.lost; {
	case lot < 0:
		w.counts.lost++
		return
	case lot < w.weather.flipped && len(m.bytes) > 0:
		m.bytes[d.IntN(len(m.bytes))] ^= 1 << d.IntN(8)
		w.counts.flipped++
	case lot >= w.weather.flipped && lot < w.weather.flipped+w.weather.breaking:
		w.counts.broken++
		r.cancel(errBroken)
		return
	}
	r.left.Add(1)
	heap.Push(&w.waiting, m)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// cut ends all requests to a machine, wherever they are.
func (w *wire) cut(to *machineOfFleet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.open {
		if r.to == to {
			w.counts.cut++
			r.cancel(errBroken)
		}
	}
}

// quiet is how long nothing is sent before the clock goes on by itself.
const quiet = 500 * time.Microsecond

// run delivers messages.
func (w *wire) run() {
	clock := time.NewTimer(quiet)
	defer clock.Stop()
	for {
		if m, ok := w.next(); ok {
			m.deliver()
			continue
		}
		clock.Reset(quiet)
		select {
		case <-w.wake:
		case <-clock.C:
			w.mu.Lock()
			if len(w.waiting) > 0 {
				w.now = max(w.now, w.waiting[0].due)
			}
			w.mu.Unlock()
		case <-w.stopped:
			return
		}
	}
}

// next returns a message that is due.
func (w *wire) next() (message, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 || w.waiting[0].due > w.now {
		return message{}, false
	}
	return heap.Pop(&w.waiting).(message), true
}

func (m *message) deliver() {
	defer m.of.left.Done()
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	if m.of.sink != nil && m.of.ctx.Err() == nil {
		arrive(m.of.sink, m.b, m.bytes)
	}
}
