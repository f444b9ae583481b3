// Package staging is the shared memory that holds the prefetch window, with the rules for reuse of its parts.
//
// A Staging is one sealed memfd that clients map read-only. It has slots for segments, a ring for samples that are
// read ahead one by one, side memory for samples requested by index, and a spare part for temporary leases. Each
// sample has one address: the current location of its verified bytes. Publish sets it. Take returns addresses
// together with a Hold, and Release ends the Hold. Only memory without Holds is reused, so delivered bytes are never
// overwritten, whichever supplier they came from.
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

// Options give the size of each part in bytes. Slots and the other parts are rounded up to 4096.
type Options struct {
	Samples    int // in the manifest: the length of the address table
	Align      int // alignment of samples in slots (FORMAT): 8 or 64
	Slots      int
	SlotBytes  int
	MissBytes  int // the ring for samples that are read ahead
	SideBytes  int // for requests by index
	SpareBytes int // for requests by index for which side memory has no room
	PeerBytes  int // for samples that are read for other machines

	Lent bool // the ring has the slots' memory until ReturnSlots

	// Awaited reports whether a rank may still request samples of a segment that is evicted. Their origins are then kept. nil: never.
	Awaited func(Segment) bool
}

// Pool selects one of the parts that hold single samples.
type Pool int

const (
	Miss Pool = iota
	Side
	Spare // for temporary leases only
	Peers // for samples that are read for other machines; clients get none of it
	poolCount
)

type slotState uint8

const (
	slotFree slotState = iota
	slotLoading
	slotReady
	slotLent // the ring has its memory
)

// A slot holds one segment. Only the loader writes to a slot, and only while it loads. Clients read a sample after its address
// is published.
type slot struct {
	state slotState
	owner Segment
	refs  int // number of Holds
	pins  int // reads that the kernel may still write to the slot

	taken uint64 // in a lent slot that was taken back: bytes that the ring still uses
}

// Segment identifies the content of a slot: the number of an epoch layout (unique while the server runs) and a segment in it.
type Segment struct {
	Log     uint64
	Segment int
}

// Staging is described in the package comment.
type Staging struct {
	opts  Options
	mem   *memory
	slots int

	// addr[i]>>1 is 0 if sample i is absent, else offset/align + 1. Publish sets it without a lock. Take returns it only under mu, and
	// only if its slot or extent is alive. Bit 0 is farBit: it stays until the sample's first Take, even if the sample gets another address.
	addr    []uint32
	origins origins

	lent []atomic.Bool // by slot; each becomes false once, under mu
	ring atomic.Int64  // bytes of the ring

	mu      sync.Mutex // guards the fields that follow
	slot    []slot
	pools   [poolCount]*pool
	extents map[uint64]*Extent // by the offset of the sample in staging
	changed chan struct{}
	closed  bool
}

// New reserves and seals the memory. The kernel allocates a page when it is first touched.
func New(opts Options) (*Staging, error) {
	up := func(n int) int { return (n + pieceAlign - 1) / pieceAlign * pieceAlign }
	opts.SlotBytes, opts.MissBytes, opts.SideBytes, opts.SpareBytes, opts.PeerBytes = up(max(opts.SlotBytes, 1)), up(opts.MissBytes), up(opts.SideBytes), up(opts.SpareBytes), up(opts.PeerBytes)
	size := opts.Slots*opts.SlotBytes + opts.MissBytes + opts.SideBytes + opts.SpareBytes + opts.PeerBytes
	if int64(size)/int64(opts.Align) >= 1<<31-1 {
		return nil, fmt.Errorf("staging of %d bytes exceeds addresses of 31 bits × %d: use less --memory", size, opts.Align)
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
	s.pools[Peers] = newPool(base+uint64(opts.MissBytes+opts.SideBytes+opts.SpareBytes), uint64(opts.PeerBytes))
	return s, nil
}

// Close unmaps the server's mapping. Clients keep their mappings and the bytes. Holds may be released and extents dropped after
// Close; that only changes the counts of CheckReleased. Take and Alloc find nothing. No load, Publish or Reclaim may be in progress.
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
			errs = append(errs, fmt.Errorf("slot %d has %d Holds and %d pins", i, sl.refs, sl.pins))
		}
	}
	for off, x := range s.extents {
		errs = append(errs, fmt.Errorf("sample %d at %d has %d references, %d of them kept for later Takes", x.Index, off, x.refs, x.kept))
	}
	for i, sl := range s.slot {
		if sl.taken != 0 {
			errs = append(errs, fmt.Errorf("the ring still uses %d bytes of slot %d", sl.taken, i))
		}
	}
	for p, pool := range s.pools {
		if pool.used != 0 {
			errs = append(errs, fmt.Errorf("%d bytes of the pool for %s are in use", pool.used, [...]string{"misses", "requests by index", "temporary leases", "other machines"}[p]))
		}
	}
	return errors.Join(errs...)
}

// File is the memfd, opened read-only, to pass to clients. Staging closes it.
func (s *Staging) File() *os.File { return s.mem.file }

// Memory is all of the shared memory. The I/O engine registers it.
func (s *Staging) Memory() []byte { return s.mem.data }

// Parts is the total size of all parts. The shared memory is up to one huge page larger; the surplus is never touched.
func (s *Staging) Parts() int64 {
	return int64(s.opts.Slots*s.opts.SlotBytes + s.opts.MissBytes + s.opts.SideBytes + s.opts.SpareBytes + s.opts.PeerBytes)
}

// Bytes is the size of the shared memory.
func (s *Staging) Bytes() int64 { return int64(len(s.mem.data)) }

// PageBytes returns the page size of most of the touched memory.
func (s *Staging) PageBytes() int { return s.mem.pageBytes() }

// Slot returns the memory of slot i.
func (s *Staging) Slot(i int) []byte {
	return s.mem.data[i*s.opts.SlotBytes : (i+1)*s.opts.SlotBytes : (i+1)*s.opts.SlotBytes]
}

// SlotBytes is the size of a slot.
func (s *Staging) SlotBytes() int { return s.opts.SlotBytes }

// Slots is the number of slots.
func (s *Staging) Slots() int { return s.slots }

// Changed returns a channel that is closed at the next Notify. Call it before looking for a change, so that none is missed.
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

// Acquire gives a free slot to owner, in loading state. ok is false if no slot is free.
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

// Holding returns the ready slot that holds a segment.
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

// Reload gives a ready slot to an owner that loads the same segment again, from the bytes in the slot. Addresses and Holds stay. If
// the slot holds another segment by now, or the kernel may still write to it, Reload changes nothing and returns false.
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

// Pin keeps a slot from reuse while the kernel may still write to it. Unpin ends that.
func (s *Staging) Pin(i int) { s.mu.Lock(); s.slot[i].pins++; s.mu.Unlock() }

// Unpin ends a Pin.
func (s *Staging) Unpin(i int) {
	s.mu.Lock()
	s.slot[i].pins--
	s.notifyLocked()
	s.mu.Unlock()
}

// Reclaim evicts ready slots without Holds and pins, if done reports that no rank needs their segment. members calls its
// callback for each sample of a segment, so that Reclaim can withdraw the addresses. Reclaim returns the number of slots that it freed.
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

// idle returns the segment of a slot, and whether the slot is ready and has no Holds or pins. Reclaim calls done without s.mu, because done takes the caller's locks.
func (s *Staging) idle(i int) (Segment, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := &s.slot[i]
	return sl.owner, !s.closed && sl.state == slotReady && sl.refs == 0 && sl.pins == 0
}

// unlink hides an idle slot from Take and Acquire until its addresses are withdrawn.
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

// Publish makes the verified bytes at off the address of a sample. The next Take returns the origin from, or the origin of an
// earlier Publish since the last Take if that is further away: a sample that was read ahead from the source may be dropped, and then
// come from the log in time. It still counts as a miss. Publish does not wake waiters; call Notify once for many samples.
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

// Present reports whether a sample has an address now. It may be evicted at any time: only Take holds it.
func (s *Staging) Present(index sample.Index) bool { return atomic.LoadUint32(&s.addr[index])>>1 != 0 }

// InSlot reports whether a sample has an address in a slot now. It may be evicted at any time.
func (s *Staging) InSlot(index sample.Index) bool {
	_, ok := s.SlotOffset(index)
	return ok
}

// SlotOffset returns the offset of a sample that is in a slot. ok is false if it is in none. The bytes stay until a slot is reused,
// so the members callback of Reclaim may read them.
func (s *Staging) SlotOffset(index sample.Index) (off uint64, ok bool) {
	a := atomic.LoadUint32(&s.addr[index])
	off, ok = s.offset(a)
	if _, isSlot := s.slotOf(off); !ok || !isSlot {
		return off, false
	}
	// The slot may have come back from the ring since the address was read. No address into the ring is left then.
	return off, atomic.LoadUint32(&s.addr[index])>>1 == a>>1
}

// Align is the alignment of sample addresses in bytes.
func (s *Staging) Align() int { return s.opts.Align }

// OffsetOf returns the offset of a part of the shared memory.
func (s *Staging) OffsetOf(part []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(s.mem.data))))
}

// Slice returns the n bytes at off.
func (s *Staging) Slice(off uint64, n int) []byte {
	return s.mem.data[off : off+uint64(n) : off+uint64(n)]
}
