// Package staging is the shared memory that holds a window of the epoch, with the rules for reuse of its parts.
//
// A Staging is one sealed memfd that clients map read-only: slots for segments, a ring for samples that were read ahead one by one,
// side memory for samples asked for by index, and a spare part that is only lent. One address for each sample says where its verified bytes lie now. Publish sets
// it, Take hands out addresses together with a Hold, Release ends the Hold, and only memory without Holds is reused.
// So delivered bytes are never overwritten, whether a block of the log, the source, or (later) another node supplied them.
//
// It knows indices, offsets and references; it does no I/O and knows no epoch order. All methods may be called concurrently.
package staging

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"lcache/internal/disk/offheap"
	"lcache/sample"
)

// Options say how large each part is, in bytes. Slots and the other parts are rounded up to 4096.
type Options struct {
	Samples    int // of the manifest: the length of the address table
	Align      int // of samples in slots (FORMAT): 8 or 64
	Slots      int
	SlotBytes  int
	MissBytes  int // the ring for misses read ahead
	SideBytes  int // for requests by index
	SpareBytes int // for requests by index that side memory has no room for

	Lent bool // the ring has the slots' memory until ReturnSlots

	// Awaited reports whether a request may still come for a segment that is evicted: its samples then keep their origins. nil: none comes.
	Awaited func(Segment) bool
}

// Pool chooses between the parts that hold single samples.
type Pool int

const (
	Miss Pool = iota
	Side
	Spare // for loans; never leased
)

type slotState uint8

const (
	slotFree slotState = iota
	slotLoading
	slotReady
	slotLent // its memory is the ring's
)

// A slot holds one segment. Only the loader writes to a slot, while it is loading. Clients read a sample once its
// address is published.
type slot struct {
	state slotState
	owner Segment
	refs  int // of Holds
	pins  int // of the kernel: a late block may still land here

	taken uint64 // while it is lent and asked back: bytes of it that the ring has still
}

// Segment is the identity of a slot's content: the line's number (unique while the server runs) and the segment in it.
type Segment struct {
	Line    uint64
	Segment int
}

// Staging is described in the package's comment.
type Staging struct {
	opts  Options
	mem   *memory
	slots int

	// addr[i]>>1: 0 = absent, else offset/align + 1. Set by Publish without a lock; handed out only under mu, and only when its slot or
	// extent is alive. Bit 0 is farBit: it stays until the sample's first Take, wherever its bytes lie meanwhile.
	addr    []uint32
	origins origins

	lent []atomic.Bool // by slot; each becomes false once, under mu
	ring atomic.Int64  // bytes of the ring

	mu      sync.Mutex // guards the fields that follow
	slot    []slot
	pools   [3]*pool
	extents map[uint64]*Extent // by the offset of the sample in staging
	changed chan struct{}
	closed  bool
}

// New reserves and seals the memory. Pages are given by the system when they are first touched.
func New(opts Options) (*Staging, error) {
	up := func(n int) int { return (n + pieceAlign - 1) / pieceAlign * pieceAlign }
	opts.SlotBytes, opts.MissBytes, opts.SideBytes, opts.SpareBytes = up(max(opts.SlotBytes, 1)), up(opts.MissBytes), up(opts.SideBytes), up(opts.SpareBytes)
	size := opts.Slots*opts.SlotBytes + opts.MissBytes + opts.SideBytes + opts.SpareBytes
	if int64(size)/int64(opts.Align) >= 1<<31-1 {
		return nil, fmt.Errorf("staging of %d bytes is more than addresses of 31 bits × %d can name: give less --memory", size, opts.Align)
	}
	addr, err := offheap.Make[uint32](opts.Samples)
	if err != nil {
		return nil, err
	}
	origins, err := newOrigins(opts.Samples)
	if err != nil {
		offheap.Free(addr)
		return nil, err
	}
	mem, err := newMemory(size)
	if err != nil {
		offheap.Free(addr)
		offheap.Free(origins)
		return nil, err
	}
	s := &Staging{opts: opts, mem: mem, slots: opts.Slots, addr: addr, origins: origins, slot: make([]slot, opts.Slots),
		lent: make([]atomic.Bool, opts.Slots), extents: map[uint64]*Extent{}, changed: make(chan struct{})}
	base := uint64(opts.Slots * opts.SlotBytes)
	s.makeRing(base)
	s.pools[Side] = newPool(base+uint64(opts.MissBytes), uint64(opts.SideBytes))
	s.pools[Spare] = newPool(base+uint64(opts.MissBytes+opts.SideBytes), uint64(opts.SpareBytes))
	return s, nil
}

// Close unmaps the server's side. What clients mapped stays theirs, bytes included. Holds may still be released and extents dropped
// afterwards, which is only counted, see CheckReleased; Take and Alloc find nothing. No load, Publish or Reclaim may be in progress.
func (s *Staging) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.mem.close()
	offheap.Free(s.addr)
	offheap.Free(s.origins)
	s.addr, s.origins = nil, nil
}

// CheckReleased returns an error that names slots with Holds or pins, and extents. Without clients and readers there must be none.
// Tests call it at their end, also after Close.
func (s *Staging) CheckReleased() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for i, sl := range s.slot {
		if sl.refs != 0 || sl.pins != 0 {
			errs = append(errs, fmt.Errorf("slot %d is held by %d Holds and %d pins", i, sl.refs, sl.pins))
		}
	}
	for off, x := range s.extents {
		errs = append(errs, fmt.Errorf("sample %d at %d is held by %d references, %d of them kept for readers to come", x.Index, off, x.refs, x.kept))
	}
	for i, sl := range s.slot {
		if sl.taken != 0 {
			errs = append(errs, fmt.Errorf("the ring has %d bytes of slot %d, which was asked back", sl.taken, i))
		}
	}
	for p, pool := range s.pools {
		if pool.used != 0 {
			errs = append(errs, fmt.Errorf("%d bytes of the pool for %s are taken", pool.used, [...]string{"misses", "requests by index", "loans"}[p]))
		}
	}
	return errors.Join(errs...)
}

// File is the memfd, opened read-only, to be passed to clients. It belongs to Staging.
func (s *Staging) File() *os.File { return s.mem.file }

// Memory is all of the shared memory, for registering it with the I/O engine.
func (s *Staging) Memory() []byte { return s.mem.data }

// Parts is how many bytes all parts take together. The shared memory is up to one huge page larger, which nothing touches.
func (s *Staging) Parts() int64 {
	return int64(s.opts.Slots*s.opts.SlotBytes + s.opts.MissBytes + s.opts.SideBytes + s.opts.SpareBytes)
}

// Bytes is the size of the shared memory.
func (s *Staging) Bytes() int64 { return int64(len(s.mem.data)) }

// PageBytes returns the page size of most of the touched memory.
func (s *Staging) PageBytes() int { return s.mem.pageBytes() }

// Slot is slot i's memory.
func (s *Staging) Slot(i int) []byte {
	return s.mem.data[i*s.opts.SlotBytes : (i+1)*s.opts.SlotBytes : (i+1)*s.opts.SlotBytes]
}

// SlotBytes is the size of a slot.
func (s *Staging) SlotBytes() int { return s.opts.SlotBytes }

// Slots is the number of slots.
func (s *Staging) Slots() int { return s.slots }

// Changed returns a channel that is closed at the next Notify. Take it before looking, so that nothing is missed.
func (s *Staging) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Notify wakes all waiters on Changed.
func (s *Staging) Notify() {
	s.mu.Lock()
	s.notifyLocked()
	s.mu.Unlock()
}

func (s *Staging) notifyLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Acquire gives a free slot to owner, in loading state, or reports that none is free.
func (s *Staging) Acquire(owner Segment) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.slot {
		if s.slot[i].state == slotFree {
			s.slot[i] = slot{state: slotLoading, owner: owner}
			return i, true
		}
	}
	return 0, false
}

// Holding returns the slot that is ready and holds a segment.
func (s *Staging) Holding(owner Segment) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.slot {
		if s.slot[i].owner == owner && s.slot[i].state == slotReady {
			return i, true
		}
	}
	return 0, false
}

// Reload gives a ready slot to an owner that loads the same segment again, from the bytes that lie there. Addresses and Holds stay. It reports false, and changes nothing, if
// the slot holds another segment by now, or a late block may still land in it.
func (s *Staging) Reload(i int, from, to Segment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := &s.slot[i]
	if sl.owner != from || sl.state != slotReady || sl.pins > 0 {
		return false
	}
	sl.state, sl.owner = slotLoading, to
	return true
}

// Ready ends the loading of a slot.
func (s *Staging) Ready(i int) {
	s.mu.Lock()
	s.slot[i].state = slotReady
	s.notifyLocked()
	s.mu.Unlock()
}

// Pin keeps a slot from reuse while the kernel may still write to it; Unpin ends that.
func (s *Staging) Pin(i int) { s.mu.Lock(); s.slot[i].pins++; s.mu.Unlock() }

// Unpin: see Pin.
func (s *Staging) Unpin(i int) {
	s.mu.Lock()
	s.slot[i].pins--
	s.notifyLocked()
	s.mu.Unlock()
}

// Reclaim evicts the ready slots without Holds or pins whose segment done reports as no longer needed. The
// members callback lists the samples of a segment, so that their addresses can be withdrawn. Reclaim returns how many slots it freed.
func (s *Staging) Reclaim(done func(Segment) bool, members func(Segment, func(sample.Index))) int {
	freed := 0
	for i := range s.slot {
		owner, idle := s.idle(i)
		if !idle || !done(owner) || !s.unlink(i, owner) {
			continue
		}
		s.withdraw(i, owner, members)
		freed++
	}
	return freed
}

// idle returns the segment of a slot, and whether the slot is ready and has no Holds or pins. Reclaim then calls done without the lock, because done takes locks of its owner.
func (s *Staging) idle(i int) (Segment, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := &s.slot[i]
	return sl.owner, !s.closed && sl.state == slotReady && sl.refs == 0 && sl.pins == 0
}

// unlink makes an idle slot unreachable for Take and Acquire until its addresses are withdrawn.
func (s *Staging) unlink(i int, owner Segment) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := &s.slot[i]
	if sl.owner != owner || sl.state != slotReady || sl.refs > 0 || sl.pins > 0 {
		return false
	}
	sl.state, sl.owner = slotLoading, Segment{}
	return true
}

func (s *Staging) withdraw(i int, owner Segment, members func(Segment, func(sample.Index))) {
	lo := uint64(i * s.opts.SlotBytes)
	hi := lo + uint64(s.opts.SlotBytes)
	keep := uint32(0)
	if s.opts.Awaited != nil && s.opts.Awaited(owner) {
		keep = farBit
	}
	members(owner, func(index sample.Index) {
		a := atomic.LoadUint32(&s.addr[index])
		if off, ok := s.offset(a); ok && off >= lo && off < hi {
			atomic.CompareAndSwapUint32(&s.addr[index], a, a&keep)
		}
	})
	s.mu.Lock()
	s.slot[i] = slot{}
	s.notifyLocked()
	s.mu.Unlock()
}

// Holders calls f for each ready or loading slot, with its segment and its number of Holds.
func (s *Staging) Holders(f func(owner Segment, refs int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.slot {
		if s.slot[i].state != slotFree && s.slot[i].owner != (Segment{}) {
			f(s.slot[i].owner, s.slot[i].refs)
		}
	}
}

func (s *Staging) offset(a uint32) (uint64, bool) {
	if a>>1 == 0 {
		return 0, false
	}
	return uint64(a>>1-1) * uint64(s.opts.Align), true
}

// Publish makes the verified bytes at off the address of a sample. The next Take gets the origin from, or that of an earlier Publish since the last Take if it was
// further away: a sample that was read ahead from the source may be dropped and then come from the log in time, and is a miss all the same.
// Publish wakes no waiters; call Notify once for many samples.
func (s *Staging) Publish(index sample.Index, off uint64, from sample.Origin) {
	a := uint32(off/uint64(s.opts.Align)+1) << 1
	if from != sample.FromLog {
		s.origins.note(index, from, atomic.LoadUint32(&s.addr[index])&farBit != 0)
		a |= farBit
	}
	for {
		was := atomic.LoadUint32(&s.addr[index])
		if atomic.CompareAndSwapUint32(&s.addr[index], was, a|was&farBit) {
			return
		}
	}
}

// Present reports whether a sample has an address now. The sample may be evicted at any time: only Take holds it.
func (s *Staging) Present(index sample.Index) bool { return atomic.LoadUint32(&s.addr[index])>>1 != 0 }

// InSlot reports whether a sample has an address in a slot now. Like Present it promises nothing for later.
func (s *Staging) InSlot(index sample.Index) bool {
	_, ok := s.SlotOffset(index)
	return ok
}

// SlotOffset returns where in a slot a sample lies; ok is false if it lies in none. What lies there stays as long as no slot is used for something else: the members
// callback of Reclaim may read it.
func (s *Staging) SlotOffset(index sample.Index) (off uint64, ok bool) {
	a := atomic.LoadUint32(&s.addr[index])
	off, ok = s.offset(a)
	if _, isSlot := s.slotOf(off); !ok || !isSlot {
		return off, false
	}
	// A slot may have come back from the ring since the address was read. No address of the time before is left then.
	return off, atomic.LoadUint32(&s.addr[index])>>1 == a>>1
}

// Align is what the addresses of samples are multiples of.
func (s *Staging) Align() int { return s.opts.Align }

// OffsetOf is where a part of the shared memory begins.
func (s *Staging) OffsetOf(part []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(s.mem.data))))
}

// Slice is the n bytes at off.
func (s *Staging) Slice(off uint64, n int) []byte {
	return s.mem.data[off : off+uint64(n) : off+uint64(n)]
}
