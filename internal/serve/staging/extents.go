package staging

import (
	"sync/atomic"

	"lcache/sample"
)

// An Extent is memory outside the slots that holds one sample: read ahead, or requested by index. Alloc and Take give their
// callers one reference. A read of several samples has one Extent for all its memory (the whole) and one for each sample (see
// PublishPieces). Each sample's Extent holds a reference to the whole until its own last reference ends.
type Extent struct {
	Index sample.Index
	Buf   []byte // the memory; Alloc aligns it to 4096, and the sample is a part of it
	base  uint64 // offset of Buf in staging, if pool is set
	data  uint64 // offset of the sample in staging, once published
	refs  int
	taker *Hold   // the last Hold that got a kept reference
	kept  int     // references that belong to the prefetcher; the first Takes get them
	pool  *pool   // nil for an Extent that is a part of whole
	whole *Extent // nil for an Extent from a pool

	from sample.Origin // FromLog after the first Take
}

// Alloc takes n bytes from a pool for one sample. The caller gets the only reference.
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

// Shrink frees the memory after the first n bytes of an extent. The caller must have the only reference.
func (s *Staging) Shrink(x *Extent, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = (n + pieceAlign - 1) / pieceAlign * pieceAlign
	if n <= 0 || n >= len(x.Buf) || s.closed {
		return
	}
	s.freeLocked(x.pool, x.base+uint64(n), uint64(len(x.Buf)-n))
	x.Buf = x.Buf[:n:n]
	s.notifyLocked()
}

// A Piece is one sample of a read. Data is a part of Of.Buf.
type Piece struct {
	Of    *Extent
	Index sample.Index
	Data  []byte
	Takes int // how many Takes the sample is kept for; at least 1
	From  sample.Origin
}

// PublishPieces publishes each piece's Data as the address of its sample, and writes the piece's extent to out[i]. A sample that
// is in a slot keeps its address there, because the slot may stay longer than the piece. The caller keeps its references to the wholes.
func (s *Staging) PublishPieces(pieces []Piece, out []*Extent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range pieces {
		p := &pieces[i]
		p.Of.refs++
		x := &Extent{Index: p.Index, Buf: p.Data, data: s.OffsetOf(p.Data), refs: p.Takes, kept: p.Takes, whole: p.Of, from: p.From}
		s.extents[x.data] = x
		if !s.InSlot(x.Index) {
			s.Publish(x.Index, x.data, p.From)
		}
		out[i] = x
	}
	s.notifyLocked()
}

// Restore publishes the address of an extent of PublishPieces again, if its sample has no address: the sample was in a slot when
// the piece was published, and the slot was reclaimed since. It reports whether it published.
func (s *Staging) Restore(x *Extent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.extents[x.data] != x || s.Present(x.Index) {
		return false
	}
	s.Publish(x.Index, x.data, x.from)
	s.notifyLocked()
	return true
}

// KeepMore keeps a published extent for one more Take. It returns false if the extent is gone.
func (s *Staging) KeepMore(x *Extent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.refs == 0 || s.closed {
		return false
	}
	x.refs++
	x.kept++
	return true
}

// KeepAtMost takes the prefetcher's references back until the extent is kept for at most n Takes. It reports whether that freed the extent. References of Holds stay.
func (s *Staging) KeepAtMost(x *Extent, n int) (freed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x.kept > n {
		x.kept--
		s.dropLocked(x)
		freed = x.refs == 0
	}
	return freed
}

// IsSide reports whether an extent is in side memory.
func (s *Staging) IsSide(x *Extent) bool {
	for x.whole != nil {
		x = x.whole
	}
	return x.pool == s.pools[Side]
}

// Kept reports whether a published extent still has a reference for a later Take.
func (s *Staging) Kept(x *Extent) bool { s.mu.Lock(); defer s.mu.Unlock(); return x.kept > 0 }

// Drop ends one reference to an extent.
func (s *Staging) Drop(x *Extent) {
	s.mu.Lock()
	s.dropLocked(x)
	s.mu.Unlock()
}

// dropLocked ends a reference, and wakes waiters if memory was freed.
func (s *Staging) dropLocked(x *Extent) {
	if s.unrefLocked(x) {
		s.notifyLocked()
	}
}

// unrefLocked is dropLocked without waking waiters: Release wakes them once for all its extents.
func (s *Staging) unrefLocked(x *Extent) (freed bool) {
	x.refs--
	if x.refs > 0 {
		return false
	}
	if s.extents[x.data] == x {
		delete(s.extents, x.data)
		s.withdrawLocked(x)
	}
	if x.whole != nil {
		return s.unrefLocked(x.whole)
	}
	s.freeLocked(x.pool, x.base, uint64(len(x.Buf)))
	return true
}

// withdrawLocked removes the address of an extent's sample, unless the sample has another address by now.
func (s *Staging) withdrawLocked(x *Extent) {
	if s.closed {
		return // addr is freed
	}
	a := atomic.LoadUint32(&s.addr[x.Index])
	if off, ok := s.offset(a); ok && off == x.data {
		atomic.CompareAndSwapUint32(&s.addr[x.Index], a, a&farBit)
	}
}

// Share adds a reference to an extent.
func (s *Staging) Share(x *Extent) { s.mu.Lock(); x.refs++; s.mu.Unlock() }
