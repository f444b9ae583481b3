package logfile

import (
	"context"
	"fmt"
	"sync"

	"lcache/internal/disk/blockio"
)

// pool holds the write buffers of one Logfile, one block each, in one mapping that can be registered with the engine. A pool outlives its
// Logfile while writes from it are in flight, and serves the next Logfile with that number.
type pool struct {
	mem    []byte
	block  int
	free   chan uint32
	writes []blockWrite // writes[i] belongs to buffer i, so that a write needs no allocation
}

func newPool(n, block int) (*pool, error) {
	mem, err := blockio.Alloc(n * block)
	if err != nil {
		return nil, fmt.Errorf("%d write buffers of %d bytes: %w", n, block, err)
	}
	p := &pool{mem: mem, block: block, free: make(chan uint32, n), writes: make([]blockWrite, n)}
	for i := range n {
		p.free <- uint32(i)
	}
	return p, nil
}

func (p *pool) bytes(i uint32) []byte {
	b := int(i) * p.block
	return p.mem[b : b+p.block : b+p.block]
}

// get waits for a buffer until ctx ends or done is closed.
func (p *pool) get(ctx context.Context, done <-chan struct{}) (uint32, error) {
	select {
	case i := <-p.free:
		return i, nil
	default:
	}
	select {
	case i := <-p.free:
		return i, nil
	case <-done:
		return 0, ErrClosed
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for a write buffer: %w", context.Cause(ctx))
	}
}

func (p *pool) put(i uint32) { p.free <- i }

// idle reports whether all buffers are in the pool.
func (p *pool) idle() bool { return len(p.free) == cap(p.free) }

// gauge counts operations in flight. wait returns when the count is zero.
type gauge struct {
	mu   sync.Mutex
	n    int           // guarded by mu
	idle chan struct{} // guarded by mu; made by a waiter, closed when n becomes 0
}

func (g *gauge) add() {
	g.mu.Lock()
	g.n++
	g.mu.Unlock()
}

func (g *gauge) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

func (g *gauge) wait(ctx context.Context) error {
	g.mu.Lock()
	if g.n == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	n, idle := g.n, g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return &HungError{What: fmt.Sprintf("each of %d transfers in flight", n), Err: context.Cause(ctx)}
	}
}
