// Package staging is the shared memory that holds a window of the epoch, and the rules of who may touch which part of it.
//
// A Staging is one sealed memfd that clients map read-only: slots for segments, a ring for misses that were read ahead, and
// side memory for samples asked for by index. One address for each sample says where its verified bytes lie now. Publish sets
// it, Take hands out addresses together with a Hold, Release ends the Hold, and only memory that nobody holds is used again.
// So delivered bytes are never written over, whoever produced them: a block of the log, the source, or (later) another node.
//
// It knows indices, offsets and references; it does no I/O and knows no epoch order. All methods may be called concurrently.
package staging

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"lcache/offheap"
	"lcache/sample"
)

// Options say how large each part is, in bytes. Slots and the other parts are rounded up to 4096.
type Options struct {
	Samples   int // of the manifest: the length of the address table
	Align     int // of samples in slots (FORMAT): 8 or 64
	Slots     int
	SlotBytes int
	MissBytes int // the ring for misses read ahead
	SideBytes int // for requests by index
}

// Pool chooses between the two parts that hold single samples.
type Pool int

const (
	Miss Pool = iota
	Side
)

type slotState uint8

const (
	slotFree slotState = iota
	slotLoading
	slotReady
)

// A slot holds one segment. Its places are written by the loader alone while it is loading, and read by everybody once the
// address of a sample is published.
type slot struct {
	state slotState
	owner Segment
	refs  int // of Holds
	pins  int // of the kernel: a late block may still land here
}

// Segment names what a slot holds: the line's number (unique while the server runs) and the segment in it.
type Segment struct {
	Line    uint64
	Segment int
}

// Staging: see the package's comment.
type Staging struct {
	opts  Options
	mem   *memory
	slots int

	// addr[i]: 0 = absent, else (offset/align + 1)<<1 | 1 if the bytes came from the source. Set by Publish without a lock;
	// handed out only under mu, and only when its slot or extent is alive.
	addr []uint32

	mu      sync.Mutex // guards the fields that follow
	slot    []slot
	pools   [2]*pool
	extents map[uint64]*Extent // by the offset of the sample in staging
	changed chan struct{}
	closed  bool
}

// New reserves and seals the memory. Pages are given by the system when they are first touched.
func New(opts Options) (*Staging, error) {
	up := func(n int) int { return (n + pieceAlign - 1) / pieceAlign * pieceAlign }
	opts.SlotBytes, opts.MissBytes, opts.SideBytes = up(opts.SlotBytes), up(opts.MissBytes), up(opts.SideBytes)
	size := opts.Slots*opts.SlotBytes + opts.MissBytes + opts.SideBytes
	if int64(size)/int64(opts.Align) >= 1<<31-1 {
		return nil, fmt.Errorf("staging of %d bytes is more than addresses of 31 bits × %d can name: give less --memory", size, opts.Align)
	}
	addr, err := offheap.Make[uint32](opts.Samples)
	if err != nil {
		return nil, err
	}
	mem, err := newMemory(size)
	if err != nil {
		offheap.Free(addr)
		return nil, err
	}
	s := &Staging{opts: opts, mem: mem, slots: opts.Slots, addr: addr, slot: make([]slot, opts.Slots),
		extents: map[uint64]*Extent{}, changed: make(chan struct{})}
	base := uint64(opts.Slots * opts.SlotBytes)
	s.pools[Miss] = newPool(base, uint64(opts.MissBytes))
	s.pools[Side] = newPool(base+uint64(opts.MissBytes), uint64(opts.SideBytes))
	return s, nil
}

// Close unmaps the server's side. What clients mapped stays theirs, bytes included. Holds may be released and extents dropped
// afterwards, which does nothing; Take and Alloc find nothing. Nobody may be loading, publishing or reclaiming any more.
func (s *Staging) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.mem.close()
	offheap.Free(s.addr)
	s.addr = nil
}

// File is the memfd, opened read-only, to be passed to clients. It belongs to Staging.
func (s *Staging) File() *os.File { return s.mem.file }

// Memory is all of the shared memory, for registering it with the I/O engine.
func (s *Staging) Memory() []byte { return s.mem.data }

// Bytes is the size of the shared memory.
func (s *Staging) Bytes() int64 { return int64(len(s.mem.data)) }

// PageBytes is the page size that the kernel mapped most of the touched memory with.
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

// Notify wakes everybody who waits on Changed.
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

// Ready ends the loading of a slot.
func (s *Staging) Ready(i int) {
	s.mu.Lock()
	s.slot[i].state = slotReady
	s.notifyLocked()
	s.mu.Unlock()
}

// Pin keeps a slot from being used again while the kernel may still write to it; Unpin ends that.
func (s *Staging) Pin(i int) { s.mu.Lock(); s.slot[i].pins++; s.mu.Unlock() }

// Unpin: see Pin.
func (s *Staging) Unpin(i int) {
	s.mu.Lock()
	s.slot[i].pins--
	s.notifyLocked()
	s.mu.Unlock()
}

// Reclaim frees the ready slots of which done says that nobody will ask for their segment again, and that nobody holds. The
// members callback lists the samples of a segment, so that their addresses can be withdrawn. It returns how many slots it freed.
func (s *Staging) Reclaim(done func(Segment) bool, members func(Segment, func(sample.Index))) int {
	freed := 0
	for i := range s.slot {
		owner, idle := s.idle(i)
		if !idle || !done(owner) || !s.takeBack(i, owner) {
			continue
		}
		s.withdraw(i, owner, members)
		freed++
	}
	return freed
}

// idle reports what a slot holds if nobody holds the slot. done is asked without the lock: it belongs to others.
func (s *Staging) idle(i int) (Segment, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := &s.slot[i]
	return sl.owner, !s.closed && sl.state == slotReady && sl.refs == 0 && sl.pins == 0
}

// takeBack makes an idle slot unreachable: nobody can Take from it, nobody can Acquire it, until its addresses are gone.
func (s *Staging) takeBack(i int, owner Segment) bool {
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
	members(owner, func(index sample.Index) {
		a := atomic.LoadUint32(&s.addr[index])
		if off, ok := s.offset(a); ok && off >= lo && off < hi {
			atomic.CompareAndSwapUint32(&s.addr[index], a, 0)
		}
	})
	s.mu.Lock()
	s.slot[i] = slot{}
	s.notifyLocked()
	s.mu.Unlock()
}

// Holders calls f for each ready or loading slot: what it holds, and by how many Holds it is held.
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
	if a == 0 {
		return 0, false
	}
	return uint64(a>>1-1) * uint64(s.opts.Align), true
}

// Publish makes the verified bytes at off the address of a sample. fromSource says where they came from, which decides between
// hit and miss when they are delivered. Waiters are woken by Notify, once for many samples.
func (s *Staging) Publish(index sample.Index, off uint64, fromSource bool) {
	a := uint32(off/uint64(s.opts.Align)+1) << 1
	if fromSource {
		a |= 1
	}
	atomic.StoreUint32(&s.addr[index], a)
}

// Present reports whether a sample has an address now. By the time the caller looks again it may be gone: Take decides.
func (s *Staging) Present(index sample.Index) bool { return atomic.LoadUint32(&s.addr[index]) != 0 }

// Alloc takes n bytes from a pool for one sample; the caller holds the one reference.
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

// PublishExtent makes data, a part of x.Buf, the address of x's sample, and leaves the caller's reference with the sample
// itself: the first Take gets it.
func (s *Staging) PublishExtent(x *Extent, data []byte, fromSource bool) {
	s.mu.Lock()
	x.data = s.OffsetOf(data)
	x.kept = true
	s.extents[x.data] = x
	s.Publish(x.Index, x.data, fromSource)
	s.notifyLocked()
	s.mu.Unlock()
}

// Withdraw takes back an extent that was published and that nobody took: a miss read ahead for a rank that never came.
func (s *Staging) Withdraw(x *Extent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !x.kept {
		return false
	}
	x.kept = false
	s.dropLocked(x)
	return true
}

// Kept reports whether a published extent still waits for its first Take.
func (s *Staging) Kept(x *Extent) bool { s.mu.Lock(); defer s.mu.Unlock(); return x.kept }

// Drop ends one reference to an extent.
func (s *Staging) Drop(x *Extent) {
	s.mu.Lock()
	s.dropLocked(x)
	s.mu.Unlock()
}

func (s *Staging) dropLocked(x *Extent) {
	x.refs--
	if x.refs > 0 || s.closed {
		return
	}
	if s.extents[x.data] == x {
		delete(s.extents, x.data)
		a := atomic.LoadUint32(&s.addr[x.Index])
		if off, ok := s.offset(a); ok && off == x.data {
			atomic.CompareAndSwapUint32(&s.addr[x.Index], a, 0)
		}
	}
	x.pool.release(x.base, uint64(len(x.Buf)))
	s.notifyLocked()
}

// Share adds a reference to an extent.
func (s *Staging) Share(x *Extent) { s.mu.Lock(); x.refs++; s.mu.Unlock() }

// SideBytes is the size of the side memory.
func (s *Staging) SideBytes() int64 { return int64(s.opts.SideBytes) }

// SideUsed is how many bytes of the side memory are taken.
func (s *Staging) SideUsed() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.pools[Side].used)
}

// A Hold keeps what Take handed out where it is. The zero Hold holds nothing.
type Hold struct {
	slots   []int
	extents []*Extent
}

// Add puts an extent, with the caller's reference, under the Hold.
func (h *Hold) Add(x *Extent) { h.extents = append(h.extents, x) }

// ExtentBytes is how much single memory the Hold keeps.
func (h *Hold) ExtentBytes() (n int64) {
	for _, x := range h.extents {
		n += int64(len(x.Buf))
	}
	return n
}

// An Address is where a sample lies: its offset in the shared memory, and whether the source had to be asked.
type Address struct {
	Offset     uint64
	FromSource bool
}

// Take looks up the samples want[i] for which have[i] is false. If all of them have an address it holds them, writes the addresses
// to out[i], sets have[i] and returns 0. Otherwise it holds nothing, so that whoever waits for a slot does not keep one meanwhile; it
// sets there[i] to whether the sample has an address now, and returns how many have none.
func (s *Staging) Take(h *Hold, want []sample.Index, have, there []bool, out []Address) (absent int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, index := range want {
		there[i] = have[i]
		if !have[i] {
			if out[i], there[i] = s.lookLocked(index); !there[i] {
				absent++
			}
		}
	}
	if absent > 0 {
		return absent
	}
	for i := range want {
		if !have[i] {
			s.holdLocked(h, out[i].Offset)
			have[i] = true
		}
	}
	return 0
}

// lookLocked is a sample's address, if what lies there is alive.
func (s *Staging) lookLocked(index sample.Index) (Address, bool) {
	if s.closed {
		return Address{}, false
	}
	a := atomic.LoadUint32(&s.addr[index])
	off, ok := s.offset(a)
	if !ok {
		return Address{}, false
	}
	if n := int(off / uint64(s.opts.SlotBytes)); n < s.slots {
		ok = s.slot[n].owner != (Segment{}) // else it is being withdrawn
	} else {
		x := s.extents[off]
		ok = x != nil && x.Index == index
	}
	return Address{Offset: off, FromSource: a&1 != 0}, ok
}

func (s *Staging) holdLocked(h *Hold, off uint64) {
	if n := int(off / uint64(s.opts.SlotBytes)); n < s.slots {
		h.holdSlot(s, n)
		return
	}
	x := s.extents[off]
	if x.kept {
		x.kept = false
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
	if s.closed {
		return
	}
	for _, n := range h.slots {
		s.slot[n].refs--
	}
	for _, x := range h.extents {
		s.dropLocked(x)
	}
	if len(h.slots) > 0 {
		s.notifyLocked()
	}
	h.slots, h.extents = nil, nil
}

// OffsetOf is where a part of the shared memory begins.
func (s *Staging) OffsetOf(part []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(s.mem.data))))
}

// Slice is the n bytes at off.
func (s *Staging) Slice(off uint64, n int) []byte {
	return s.mem.data[off : off+uint64(n) : off+uint64(n)]
}
