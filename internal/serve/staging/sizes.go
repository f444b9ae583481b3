package staging

// Sizes of the parts, and how much of them is in use.

// MissBytes returns the size of the miss ring, with the memory that slots lend it. A larger sample can't be read ahead.
func (s *Staging) MissBytes() int64 { return s.ring.Load() }

// SideBytes returns the size of side memory.
func (s *Staging) SideBytes() int64 { return int64(s.opts.SideBytes) }

// SpareBytes returns the size of the spare part.
func (s *Staging) SpareBytes() int64 { return int64(s.opts.SpareBytes) }

// PeerBytes returns the size of the part for samples that are read for other machines.
func (s *Staging) PeerBytes() int64 { return int64(s.opts.PeerBytes) }

// Free returns the free bytes of a pool. They need not be contiguous.
func (s *Staging) Free(p Pool) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.pools[p].total - s.pools[p].used)
}

// SideUsed returns the used bytes of side memory.
func (s *Staging) SideUsed() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.pools[Side].used)
}

// SideLargest returns the size of the largest free span of side memory.
func (s *Staging) SideLargest() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.pools[Side].largest())
}
