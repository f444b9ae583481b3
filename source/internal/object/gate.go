package object

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// gate starts requests in order of arrival, as far as the control's limit and the room for their bytes allow.
type gate struct {
	began time.Time

	mu       sync.Mutex // guards the fields that follow
	control  control
	requests int // in flight
	bytes    int64
	most     int64     // maximum of bytes so far
	waiting  list.List // of *turn
	// The current measurement window:
	since time.Duration
	came  int64
	full  bool
}

type turn struct {
	bytes int64
	ready chan struct{} // closed when the request may start
}

func newGate(c control) *gate { return &gate{began: time.Now(), control: c} }

// expect sets the first control by the median size of objects. It has no effect after the first measurement.
func (g *gate) expect(median int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.control.rate == 0 && g.control.halved < 0 {
		g.control = startControl(median)
		g.admit()
	}
}

// mostBytes returns the maximum number of bytes in flight so far.
func (g *gate) mostBytes() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

// fits reports whether a request may start. A single request always may, however large it is.
func (g *gate) fits(bytes int64) bool {
	return g.requests == 0 || g.requests < g.control.limit && g.bytes+bytes <= inFlight
}

func (g *gate) begin(bytes int64) {
	g.requests++
	g.bytes += bytes
	g.most = max(g.most, g.bytes)
	if g.requests >= g.control.limit {
		g.full = true
	}
}

// enter waits until a request for bytes may start. The caller must call leave afterwards.
func (g *gate) enter(ctx context.Context, bytes int64) error {
	g.mu.Lock()
	if g.waiting.Len() == 0 && g.fits(bytes) {
		g.begin(bytes)
		g.mu.Unlock()
		return nil
	}
	t := &turn{bytes, make(chan struct{})}
	at := g.waiting.PushBack(t)
	g.mu.Unlock()
	select {
	case <-t.ready:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-t.ready: // it became ready at the same moment
		g.end(bytes)
	default:
		g.waiting.Remove(at)
	}
	g.admit()
	return ctx.Err()
}

// try is enter without waiting.
func (g *gate) try(bytes int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting.Len() > 0 || !g.fits(bytes) {
		return false
	}
	g.begin(bytes)
	return true
}

func (g *gate) end(bytes int64) {
	g.requests--
	g.bytes -= bytes
}

func (g *gate) admit() {
	for at := g.waiting.Front(); at != nil && g.fits(at.Value.(*turn).bytes); at = g.waiting.Front() {
		t := g.waiting.Remove(at).(*turn)
		g.begin(t.bytes)
		close(t.ready)
	}
	if g.waiting.Len() > 0 {
		g.full = true
	}
}

// leave ends a request that entered with bytes; came bytes have arrived. slow says that the store was slow, or asked
// for fewer requests.
func (g *gate) leave(bytes, came int64, slow bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Since(g.began)
	g.end(bytes)
	g.came += came
	if slow {
		g.control = g.control.slowed(now)
		g.since, g.came, g.full = now, 0, false
	} else if took := now - g.since; took >= window {
		g.control = g.control.after(took, g.came, g.full)
		g.since, g.came, g.full = now, 0, false
	}
	g.admit()
}
