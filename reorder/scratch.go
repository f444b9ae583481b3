package reorder

import "sync"

// scratch is the memory that blocks of stored bytes are read to: buffers of a block each, out of one region that is registered with
// the I/O engine. A buffer is taken before its block is read and given back when all samples in it are unpacked. A buffer whose read
// is late stays out until the read has ended.
type scratch struct {
	mu     sync.Mutex // guards the fields that follow
	more   sync.Cond
	free   [][]byte
	all    int
	least  int // buffers that the largest sample needs
	hung   int // buffers whose reads are late
	closed bool
}

// newScratch cuts mem into blocks. The largest sample must fit into all of them but one: it may begin anywhere in the first.
func newScratch(mem []byte, block int, largest uint32) *scratch {
	s := &scratch{least: (int(largest)+block-1)/block + 1}
	s.more.L = &s.mu
	for ; len(mem) >= block; mem = mem[block:] {
		s.free = append(s.free, mem[:block:block])
	}
	s.all = len(s.free)
	return s
}

// take waits for a buffer. ok is false after close, and while hung reads leave too few buffers for the largest sample.
func (s *scratch) take() (buf []byte, ok bool) {
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

func (s *scratch) give(buf []byte) {
	s.mu.Lock()
	s.free = append(s.free, buf)
	s.mu.Unlock()
	s.more.Signal()
}

// late adds n to the number of buffers whose reads are late.
func (s *scratch) late(n int) {
	s.mu.Lock()
	s.hung += n
	s.mu.Unlock()
	s.more.Broadcast()
}

func (s *scratch) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.more.Broadcast()
}
