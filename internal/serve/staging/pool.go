package staging

import "sort"

type span struct{ off, size uint64 }

// A pool allocates from one region. A ring begins each search where its last one ended: misses are freed roughly in the order of
// allocation, and the search passes a piece that a client holds for long. Other pools search from the beginning. Pieces that are
// held for long then gather there, and the free memory stays in one span. When clients hold batches for a while, this search finds
// room until 0.7 of the memory is taken; a ring finds room until 0.5.
type pool struct {
	free  []span // by offset, never adjacent
	ring  bool
	next  int // where the search begins; 0 in a pool that is not a ring
	total uint64
	used  uint64
	floor uint64 // the pool gave up the memory before this offset
}

const pieceAlign = 4096

func newPool(off, size uint64) *pool {
	p := &pool{total: size}
	if size > 0 {
		p.free = []span{{off, size}}
	}
	return p
}

func newRing(off, size uint64) *pool {
	p := newPool(off, size)
	p.ring = true
	return p
}

func (p *pool) alloc(size uint64) (uint64, bool) {
	size = (size + pieceAlign - 1) / pieceAlign * pieceAlign
	for i := range p.free {
		at := (p.next + i) % len(p.free)
		f := &p.free[at]
		if f.size < size {
			continue
		}
		off := f.off
		f.off += size
		f.size -= size
		if p.ring {
			p.next = at
		}
		if f.size == 0 {
			p.free = append(p.free[:at], p.free[at+1:]...)
			if p.next >= len(p.free) {
				p.next = 0
			}
		}
		p.used += size
		return off, true
	}
	return 0, false
}

// largest returns the size of the largest free span.
func (p *pool) largest() (size uint64) {
	for _, f := range p.free {
		size = max(size, f.size)
	}
	return size
}

func (p *pool) release(off, size uint64) {
	size = (size + pieceAlign - 1) / pieceAlign * pieceAlign
	p.used -= size
	at := sort.Search(len(p.free), func(i int) bool { return p.free[i].off > off })
	joinsLeft := at > 0 && p.free[at-1].off+p.free[at-1].size == off
	joinsRight := at < len(p.free) && off+size == p.free[at].off
	switch {
	case joinsLeft && joinsRight:
		p.free[at-1].size += size + p.free[at].size
		p.free = append(p.free[:at], p.free[at+1:]...)
	case joinsLeft:
		p.free[at-1].size += size
	case joinsRight:
		p.free[at].off = off
		p.free[at].size += size
	default:
		p.free = append(p.free, span{})
		copy(p.free[at+1:], p.free[at:])
		p.free[at] = span{off, size}
	}
	if p.next >= len(p.free) {
		p.next = 0
	}
}

// cut removes the memory before an offset from the pool, and returns its free spans. Memory in use there still counts as used.
func (p *pool) cut(at uint64) (freed []span) {
	var kept []span
	for _, f := range p.free {
		if n := min(f.size, at-min(at, f.off)); n > 0 {
			freed = append(freed, span{f.off, n})
			f.off, f.size = f.off+n, f.size-n
		}
		if f.size > 0 {
			kept = append(kept, f)
		}
	}
	p.free, p.next, p.floor, p.total = kept, 0, at, p.total-at
	return freed
}
