package staging

import (
	"sync/atomic"

	"lcache/sample"
)

// An Extent is a piece of staging that holds one sample outside the slots: a miss read ahead from the source, or a sample
// asked for by index. It is counted: whoever got it from Alloc or Take holds one reference.
type Extent struct {
	Index sample.Index
	Buf   []byte // the whole piece, aligned to 4096; the sample is a part of it
	base  uint64 // of Buf in staging
	data  uint64 // of the sample in staging, once published
	refs  int
	kept  bool // one of refs is the prefetcher's, handed over to the first Take
	pool  *pool
}

// Alloc takes n bytes from a pool for one sample; the caller holds the one reference.
func (s *Staging) Alloc(p Pool, index sample.Index, n int) (*Extent, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	off, ok := s.pools[p].alloc(uint64(n))
	if !ok || s.closed {
		return nil, false
	}
	end := off + uint64((n+pieceAlign-1)/pieceAlign*pieceAlign)
	return &Extent{Index: index, Buf: s.mem.data[off:end:end], base: off, refs: 1, pool: s.pools[p]}, true
}

// PublishExtent makes data, a part of x.Buf, the address of x's sample, and leaves the caller's reference with the sample
// itself: the first Take gets it.
func (s *Staging) PublishExtent(x *Extent, data []byte, fromSource bool) {
	s.mu.Lock()
	x.data = s.OffsetOf(data)
	x.kept = true
	s.extents[x.data] = x
	s.Publish(x.Index, x.data, fromSource)
	s.notifyLocked()
	s.mu.Unlock()
}

// Withdraw takes back an extent that was published and that nobody took: a miss read ahead for a rank that never came.
func (s *Staging) Withdraw(x *Extent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !x.kept {
		return false
	}
	x.kept = false
	s.dropLocked(x)
	return true
}

// Kept reports whether a published extent still waits for its first Take.
func (s *Staging) Kept(x *Extent) bool { s.mu.Lock(); defer s.mu.Unlock(); return x.kept }

// Drop ends one reference to an extent.
func (s *Staging) Drop(x *Extent) {
	s.mu.Lock()
	s.dropLocked(x)
	s.mu.Unlock()
}

func (s *Staging) dropLocked(x *Extent) {
	x.refs--
	if x.refs > 0 || s.closed {
		return
	}
	if s.extents[x.data] == x {
		delete(s.extents, x.data)
		a := atomic.LoadUint32(&s.addr[x.Index])
		if off, ok := s.offset(a); ok && off == x.data {
			atomic.CompareAndSwapUint32(&s.addr[x.Index], a, 0)
		}
	}
	x.pool.release(x.base, uint64(len(x.Buf)))
	s.notifyLocked()
}

// Share adds a reference to an extent.
func (s *Staging) Share(x *Extent) { s.mu.Lock(); x.refs++; s.mu.Unlock() }
