package staging

// How large the parts are, and what is taken of them.

// MissBytes is the size of the ring for samples that are read ahead, with what slots lend it. A larger sample can't be read ahead.
func (s *Staging) MissBytes() int64 { return s.ring.Load() }

// SideBytes is the size of the side memory.
func (s *Staging) SideBytes() int64 { return int64(s.opts.SideBytes) }

// SpareBytes is the size of the spare part.
func (s *Staging) SpareBytes() int64 { return int64(s.opts.SpareBytes) }

// Free returns how many bytes of a pool are not taken. They need not lie in one piece.
func (s *Staging) Free(p Pool) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.pools[p].total - s.pools[p].used)
}

// SideUsed is how many bytes of the side memory are taken.
func (s *Staging) SideUsed() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.pools[Side].used)
}

// SideLargest returns how large the largest piece of side memory is that is not taken.
func (s *Staging) SideLargest() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.pools[Side].largest())
}
