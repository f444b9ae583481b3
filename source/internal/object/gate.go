package object

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// gate lets requests begin, first come, first served, while the control allows more of them and their bytes have room.
type gate struct {
	began time.Time

	mu       sync.Mutex // guards the fields that follow
	control  control
	requests int // under way
	bytes    int64
	most     int64     // that bytes ever was
	waiting  list.List // of *turn
	// The window that is measured:
	since time.Duration
	came  int64
	full  bool
}

type turn struct {
	bytes int64
	ready chan struct{} // closed when the request may begin
}

func newGate(c control) *gate { return &gate{began: time.Now(), control: c} }

// expect is the control's start for objects of a median size, as long as nothing was measured.
func (g *gate) expect(median int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.control.rate == 0 && g.control.halved < 0 {
		g.control = startControl(median)
		g.admit()
	}
}

// mostBytes is how many bytes were under way at the most.
func (g *gate) mostBytes() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

// fits says whether a request may begin. One alone always may, however large it is.
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

// enter waits until a request of this many bytes may begin. leave must follow.
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
	case <-t.ready: // in the same moment
		g.end(bytes)
	default:
		g.waiting.Remove(at)
	}
	g.admit()
	return ctx.Err()
}

// try is enter without a wait.
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

// leave ends a request that entered with some bytes, and counts the ones that arrived. slow says that the store was slow, or demanded fewer requests.
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
