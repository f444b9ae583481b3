package peer

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
)

// buffers are the buffers of both ends: frames of HTTP/2 that arrive, and bytes of samples on their way out. gRPC's own pool clears each buffer before
// use, and has no size between 32 KiB and 1 MiB. A buffer that gRPC loses when a connection breaks is garbage like any other.
var buffers mem.BufferPool = &pool{}

// Sizes of pooled buffers are powers of two. A larger buffer is allocated each time.
const (
	leastPooled = 10 // bits
	mostPooled  = 21
)

// pool is a mem.BufferPool. Its buffers have the bytes of their last use.
type pool struct {
	sizes [mostPooled - leastPooled + 1]sync.Pool // of *[]byte
}

// Get returns a buffer of a length.
func (p *pool) Get(length int) *[]byte {
	class := max(bits.Len(uint(max(length, 1)-1)), leastPooled)
	if class > mostPooled {
		b := make([]byte, length)
		return &b
	}
	b, ok := p.sizes[class-leastPooled].Get().(*[]byte)
	if !ok {
		made := make([]byte, 1<<class)
		b = &made
	}
	*b = (*b)[:length]
	return b
}

// Put takes a buffer back that Get returned.
func (p *pool) Put(b *[]byte) {
	size := cap(*b)
	class := bits.Len(uint(size)) - 1
	if size != 1<<class || class < leastPooled || class > mostPooled {
		return
	}
	*b = (*b)[:size]
	p.sizes[class-leastPooled].Put(b)
}
