package staging

// A server that reads samples in place (layout static) needs no slots. It lends their memory, which lies directly before the miss
// ring, to the ring. ReturnSlots takes all of it back: the ring allocates none of it any longer, and each slot becomes free as soon
// as no piece of the ring is in it. No client is forced to release: a client that keeps a batch keeps only the slots that the batch
// is in. Memory that was taken back is never lent again.

// makeRing makes the ring. base is where the slots end.
func (s *Staging) makeRing(base uint64) {
	from := base
	if s.opts.Lent {
		from = 0
		for i := range s.slot {
			s.slot[i].state = slotLent
			s.lent[i].Store(true)
		}
	}
	size := base - from + uint64(s.opts.MissBytes)
	s.pools[Miss] = newRing(from, size)
	s.ring.Store(int64(size))
}

// slotOf returns the slot that contains an offset. ok is false after the last slot, and in memory that is lent to the ring.
func (s *Staging) slotOf(off uint64) (n int, ok bool) {
	slot := off / uint64(s.opts.SlotBytes)
	if slot >= uint64(s.slots) || s.lent[slot].Load() {
		return 0, false
	}
	return int(slot), true
}

// ReturnSlots takes the slots' memory back from the ring. A second call changes nothing.
func (s *Staging) ReturnSlots() {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, end := s.pools[Miss], uint64(s.slots*s.opts.SlotBytes)
	if !s.opts.Lent || p.floor == end {
		return
	}
	for i := range s.slot {
		s.slot[i].taken = uint64(s.opts.SlotBytes)
	}
	all := end
	for _, f := range p.cut(end) {
		all -= f.size
		s.eachSlot(f, func(sl *slot, n uint64) { sl.taken -= n })
	}
	p.used -= all
	s.ring.Store(int64(s.opts.MissBytes))
	for i := range s.slot {
		s.comeBack(i)
	}
	s.notifyLocked()
}

// SlotsBack returns the number of slots that are not lent to the ring.
func (s *Staging) SlotsBack() (n int) {
	for i := range s.lent {
		if !s.lent[i].Load() {
			n++
		}
	}
	return n
}

// freeLocked returns memory to its pool. Memory of slots that the ring gave up goes back to the slots.
func (s *Staging) freeLocked(p *pool, off, size uint64) {
	if off < p.floor {
		f := span{off, min(size, p.floor-off)}
		s.eachSlot(f, func(sl *slot, n uint64) { sl.taken -= n })
		for i := int(f.off / uint64(s.opts.SlotBytes)); i < s.slots && uint64(i*s.opts.SlotBytes) < f.off+f.size; i++ {
			s.comeBack(i)
		}
		off, size = off+f.size, size-f.size
	}
	if size > 0 {
		p.release(off, size)
	}
}

// eachSlot calls f for each slot that a span overlaps, with the number of its bytes in the slot.
func (s *Staging) eachSlot(piece span, f func(sl *slot, n uint64)) {
	size := uint64(s.opts.SlotBytes)
	for piece.size > 0 {
		n := min(piece.size, size-piece.off%size)
		f(&s.slot[piece.off/size], n)
		piece.off, piece.size = piece.off+n, piece.size-n
	}
}

// comeBack frees a slot that was taken back from the ring, once no piece is in it. s.mu is held.
func (s *Staging) comeBack(i int) {
	if s.slot[i].state == slotLent && s.slot[i].taken == 0 {
		s.slot[i] = slot{}
		s.lent[i].Store(false)
	}
}
