package staging

import (
	"cmp"
	"slices"
	"sync/atomic"

	"lcache/sample"
)

// A Hold keeps the samples that Take returned at their addresses. The zero Hold holds nothing.
type Hold struct {
	slots   []int
	extents []*Extent
}

// Add adds an extent to the Hold, with the caller's reference.
func (h *Hold) Add(x *Extent) { h.extents = append(h.extents, x) }

// ExtentBytes returns the bytes outside the slots that the Hold keeps.
func (h *Hold) ExtentBytes() (n int64) {
	for _, x := range h.extents {
		n += int64((len(x.Buf) + pieceAlign - 1) / pieceAlign * pieceAlign)
	}
	return n
}

// SideBytesOf returns the bytes of side memory that a Hold keeps.
func (s *Staging) SideBytesOf(h *Hold) (n int64) {
	for _, taken := range s.sideSpans(h) {
		n += int64(taken.size)
	}
	return n
}

// sideSpans returns the spans of side memory that some Holds keep, by offset. One held sample keeps all memory of its read.
func (s *Staging) sideSpans(holds ...*Hold) (taken []span) {
	for _, h := range holds {
		for _, x := range h.extents {
			for x.whole != nil {
				x = x.whole
			}
			if x.pool == s.pools[Side] {
				taken = append(taken, span{x.base, uint64(len(x.Buf))})
			}
		}
	}
	slices.SortFunc(taken, func(a, b span) int { return cmp.Compare(a.off, b.off) })
	return slices.Compact(taken)
}

// LeavesRoom reports whether side memory would have n free bytes in one span if only these Holds used it.
func (s *Staging) LeavesRoom(holds []*Hold, n int64) bool {
	taken := s.sideSpans(holds...)
	at := uint64(s.opts.Slots*s.opts.SlotBytes + s.opts.MissBytes)
	taken = append(taken, span{off: at + uint64(s.opts.SideBytes)})
	for _, t := range taken {
		if t.off >= at+uint64(n) {
			return true
		}
		at = t.off + t.size
	}
	return false
}

// An Address is a sample's offset in shared memory and its origin. From the second Take on, the origin is FromLog.
type Address struct {
	Offset uint64
	From   sample.Origin
}

// Take looks up the samples want[i] for which have[i] is false. If all of them have an address, it holds them, writes the
// addresses to out[i], sets have[i] and returns 0. Otherwise it holds nothing, because a caller that waits for a slot must not
// keep another slot from being freed. It then sets there[i] to whether the sample has an address, and returns the number of samples without one.
func (s *Staging) Take(h *Hold, want []sample.Index, have, there []bool, out []Address) (absent int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if absent = s.lookAllLocked(want, have, there, out); absent > 0 {
		return absent
	}
	s.takeLocked(h, want, have, there, out)
	return 0
}

// TakeSome is Take for a caller that stops waiting: it holds the samples that have an address, and returns the number without one.
func (s *Staging) TakeSome(h *Hold, want []sample.Index, have, there []bool, out []Address) (absent int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	absent = s.lookAllLocked(want, have, there, out)
	s.takeLocked(h, want, have, there, out)
	return absent
}

// lookAllLocked writes the addresses of the samples for which have[i] is false, and returns the number of samples without one.
func (s *Staging) lookAllLocked(want []sample.Index, have, there []bool, out []Address) (absent int) {
	for i, index := range want {
		there[i] = have[i]
		if !have[i] {
			if out[i], there[i] = s.lookLocked(index); !there[i] {
				absent++
			}
		}
	}
	return absent
}

// takeLocked holds the samples that have an address and are not held.
func (s *Staging) takeLocked(h *Hold, want []sample.Index, have, there []bool, out []Address) {
	for i := range want {
		if have[i] || !there[i] {
			continue
		}
		s.holdLocked(h, out[i].Offset)
		have[i] = true
		if out[i].From != sample.FromLog {
			atomic.AndUint32(&s.addr[want[i]], ^uint32(farBit)) // only the first delivery counts as a miss
		}
	}
}

// lookLocked returns a sample's address, if its slot or extent is alive.
func (s *Staging) lookLocked(index sample.Index) (Address, bool) {
	if s.closed {
		return Address{}, false
	}
	a := atomic.LoadUint32(&s.addr[index])
	off, ok := s.offset(a)
	if !ok {
		return Address{}, false
	}
	if n, isSlot := s.slotOf(off); isSlot {
		ok = s.slot[n].owner != (Segment{}) // else it is being withdrawn
	} else {
		x := s.extents[off]
		ok = x != nil && x.Index == index
	}
	return Address{Offset: off, From: s.originOf(index, a)}, ok
}

func (s *Staging) holdLocked(h *Hold, off uint64) {
	if n, isSlot := s.slotOf(off); isSlot {
		h.holdSlot(s, n)
		return
	}
	x := s.extents[off]
	x.from = sample.FromLog
	if x.kept > 0 && x.taker != h { // a sample that a request names twice uses one kept reference
		x.kept--
		x.taker = h
	} else {
		x.refs++
	}
	h.extents = append(h.extents, x)
}

func (h *Hold) holdSlot(s *Staging, n int) {
	for _, have := range h.slots {
		if have == n {
			return
		}
	}
	s.slot[n].refs++
	h.slots = append(h.slots, n)
}

// Release ends a Hold.
func (s *Staging) Release(h *Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range h.slots {
		s.slot[n].refs--
	}
	freed := len(h.slots) > 0
	for _, x := range h.extents {
		freed = s.unrefLocked(x) || freed
	}
	if freed {
		s.notifyLocked()
	}
	h.slots, h.extents = nil, nil
}
