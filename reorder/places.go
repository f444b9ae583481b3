package reorder

import "sync"

// places bounds the blocks that are being read. With compression a place is a buffer for one block of compressed bytes, in a region that
// is registered with the I/O engine. It is taken before its block is read, and returned when all samples in the block are unpacked. If
// the block is read to the slot, the place only counts the read. Without compression all blocks are read to the slot, and a place has
// no memory: it is returned when its block has arrived. A place with a late read is returned when the read has ended.
type places struct {
	mu     sync.Mutex // guards the fields that follow
	more   sync.Cond
	free   [][]byte
	all    int
	least  int // places that one sample may need at the same time
	hung   int // places whose reads are late
	closed bool
}

// newPlaces makes places without memory.
func newPlaces(n int) *places {
	s := &places{free: make([][]byte, n), all: n, least: 1}
	s.more.L = &s.mu
	return s
}

// newBuffers cuts mem into blocks. The largest compressed sample must fit into all blocks except one, because it may begin anywhere in the
// first. A huge sample needs one for each of its ends, and one for the blocks between.
func newBuffers(mem []byte, block int, largestPacked uint32, huge bool) *places {
	s := newPlaces(0)
	s.least = (int(largestPacked)+block-1)/block + 1
	if huge {
		s.least = max(s.least, 3)
	}
	for ; len(mem) >= block; mem = mem[block:] {
		s.free = append(s.free, mem[:block:block])
	}
	s.all = len(s.free)
	return s
}

// take waits for a place. ok is false after close, and while hung reads leave too few.
func (s *places) take() (buf []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch n := len(s.free); {
		case s.closed || s.all-s.hung < s.least:
			return nil, false
		case n > 0:
			buf, s.free = s.free[n-1], s.free[:n-1]
			return buf, true
		}
		s.more.Wait()
	}
}

func (s *places) give(buf []byte) {
	s.mu.Lock()
	s.free = append(s.free, buf)
	s.mu.Unlock()
	s.more.Signal()
}

// late adds n to the number of places with late reads.
func (s *places) late(n int) {
	s.mu.Lock()
	s.hung += n
	s.mu.Unlock()
	s.more.Broadcast()
}

func (s *places) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.more.Broadcast()
}
