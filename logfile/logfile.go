package logfile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"lcache/internal/disk/offheap"
	"lcache/sample"

	"golang.org/x/sys/unix"
)

// Classes of errors that callers act on.
var (
	ErrFull   = errors.New("segment is full")              // Append: no room in the string or in the arrival list
	ErrHole   = errors.New("block could not be kept")      // a read: it was never written, or is lost
	ErrFreed  = errors.New("block is freed")               // a read: FreeBlocks was called for it
	ErrClosed = errors.New("logfile is closed or dropped") // any call after Close or Drop has begun

	ErrReadOnly = errors.New("the cache was opened to be read only") // Begin, Drop, Append
)

// Logfile is the log of one epoch: segments, each a string of bytes that grows by Append and is read by block or with random reads. The log of [Packages] is also a Logfile.
type Logfile struct {
	s       *Store
	num     int // 0 or 1; PackagesNum: its segments are packages
	head    Header
	gen     uint64
	segs    []segment
	arr     []sample.Index // arrival lists, mapped; the list of segment k begins at head.Starts[k]-head.Starts[0]
	pool    *pool
	journal *journal
	done    chan struct{} // closed when Drop or Close begin
	end     sync.Once
	held    atomic.Int64 // blocks in a buffer or in the arena
	writes  gauge        // full blocks not yet on disk

	written [][]uint64 // by segment and block: see Written
}

// segment has one segment's blocks and arrival list. Lock order: lock, mu, then the mutexes of the free list and the journal. The
// completion of a write takes only mu, so it never waits for an Append that waits for a buffer.
type segment struct {
	lock chan struct{} // full while an Append, or a write or release of the open buffer, is in progress; held while waiting for buffers

	mu     sync.Mutex // guards the fields that follow; never held while waiting
	round  uint32     // of a package; for a Logfile the epoch, as in its records
	blocks []block
	n      uint32    // length of the arrival list
	freed  int       // blocks before this one are freed
	old    diskTail  // copy of the open buffer
	back   *readBack // in flight, of the short last block
}

// block takes 20 bytes, so a million blocks take 20 MB.
type block struct {
	place uint32 // arena block; while the bytes are in memory, the number of the write buffer
	ord   uint32 // position in the arrival list of the first sample that begins here or later
	first uint32 // offset of that sample in the block
	used  uint32 // bytes
	at    uint16 // offset in the arena block, in units of 4096 bytes; not 0 only for tails
	state state
}

type state uint8

const (
	stateHole     state = iota // lost
	stateOpen                  // being filled
	stateInFlight              // full: waiting for an arena block, or being written
	stateDisk                  // written
	stateFreed
)

func (s state) inMemory() bool { return s == stateOpen || s == stateInFlight }
func (s state) alive() bool    { return s.inMemory() || s == stateDisk }

// newLogfile makes a Logfile without blocks. The caller must set its journal and pool.
func newLogfile(s *Store, num int, head Header, gen uint64) (*Logfile, error) {
	k := int(head.Segments)
	n := head.Starts[k] - head.Starts[0]
	arr, err := mapIndices(n)
	if err != nil {
		return nil, fmt.Errorf("arrival lists of %d samples: %w", n, err)
	}
	l := &Logfile{s: s, num: num, head: head, gen: gen, segs: make([]segment, k), arr: arr, done: make(chan struct{})}
	for i := range l.segs {
		l.segs[i].lock = make(chan struct{}, 1)
		l.segs[i].old.place = noPlace
		l.segs[i].round = head.Epoch
	}
	return l, nil
}

// check returns an error if the arena can't hold a Logfile of this shape.
func (h *Header) check(f Format) error {
	switch {
	case int(h.Block) != f.Block || int(h.Align) != f.Align:
		return fmt.Errorf("blocks of %d bytes aligned to %d: the cache has %d and %d", h.Block, h.Align, f.Block, f.Align)
	case h.Segments < 1 || h.Segments > maxSegments || h.SegmentBlocks < 1:
		return fmt.Errorf("%d segments of %d blocks: out of range", h.Segments, h.SegmentBlocks)
	case h.Open > h.Segments:
		return fmt.Errorf("%d open packages of %d: out of range", h.Open, h.Segments)
	case len(h.Starts) != int(h.Segments)+1:
		return fmt.Errorf("%d starts for %d segments: a layout has one start per segment, and its end", len(h.Starts), h.Segments)
	}
	for k := range int(h.Segments) {
		if h.Starts[k+1] < h.Starts[k] || h.Starts[k+1]-h.Starts[k] >= 1<<31 {
			return fmt.Errorf("starts of segment %d: from %d to %d", k, h.Starts[k], h.Starts[k+1])
		}
	}
	if n := h.Starts[h.Segments] - h.Starts[0]; n > 1<<36 {
		return fmt.Errorf("arrival lists for %d samples: out of range", n)
	}
	return nil
}

func mapIndices(n uint64) ([]sample.Index, error) {
	mem, err := unix.Mmap(-1, 0, int(max(n, 1))*4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	offheap.Count(len(mem))
	return unsafe.Slice((*sample.Index)(unsafe.Pointer(unsafe.SliceData(mem))), max(n, 1)), nil
}

func unmapIndices(arr []sample.Index) error {
	mem := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(arr))), len(arr)*4)
	if err := unix.Munmap(mem); err != nil {
		return err
	}
	offheap.Count(-len(mem))
	return nil
}

// Header returns the Header of the Logfile. Callers must not change its Starts.
func (l *Logfile) Header() Header { return l.head }

// Num is 0 for Logfile A, 1 for B, and PackagesNum for packages.
func (l *Logfile) Num() int { return l.num }

// Generation orders Logfiles: the older one has the smaller number. Block writes use the same counter.
func (l *Logfile) Generation() uint64 { return l.gen }

// Written returns the generation of the block at offset off of a segment if the block was recovered, else 0. Of two copies of a sample,
// the one with the larger generation was written last. It is for the caller of Open, until ForgetWritten.
func (l *Logfile) Written(seg int, off uint64) uint64 {
	if l.written == nil {
		return 0
	}
	return l.written[seg][off/uint64(l.head.Block)]
}

// ForgetWritten frees the memory of Written's results.
func (s *Store) ForgetWritten() {
	for _, l := range s.all() {
		l.written = nil
	}
}

// Buffers is the memory of all write buffers. Register it with the engine before the first Append. It stays mapped until the Store is
// closed, or until a Logfile that needs more begins with this number. Later Logfiles with this number reuse it.
func (l *Logfile) Buffers() []byte { return l.pool.mem }

// Empty reports whether it has no block, on disk or in memory. Begin may then replace it.
func (l *Logfile) Empty() bool { return l.held.Load() == 0 }

// Held returns the bytes of its blocks, on disk or in memory, full or not.
func (l *Logfile) Held() uint64 { return uint64(l.held.Load()) * uint64(l.head.Block) }

// open returns the bytes in blocks that are not full.
func (l *Logfile) open() (n int64) {
	for k := range l.segs {
		sg := &l.segs[k]
		sg.mu.Lock()
		if b := sg.lastLocked(); b != nil && b.state == stateOpen {
			n += int64(b.used)
		}
		sg.mu.Unlock()
	}
	return n
}

// Blocks returns the length of a segment's string in blocks, rounded up. Lost, freed and unwritten blocks count.
func (l *Logfile) Blocks(seg int) int {
	sg := &l.segs[seg]
	sg.mu.Lock()
	defer sg.mu.Unlock()
	return len(sg.blocks)
}

// Length returns the bytes of a segment's string. The next sample is appended there, or at the start of the next block if the last one
// is lost or freed.
func (l *Logfile) Length(seg int) uint64 {
	sg := &l.segs[seg]
	sg.mu.Lock()
	defer sg.mu.Unlock()
	return l.lengthLocked(sg)
}

func (l *Logfile) lengthLocked(sg *segment) uint64 {
	n := len(sg.blocks)
	if n == 0 {
		return 0
	}
	return uint64(n-1)*uint64(l.head.Block) + uint64(sg.blocks[n-1].used)
}

// arrivals is the arrival list of a segment, up to its capacity. Callers hold the segment's mu and see a living block, so the memory is mapped.
func (l *Logfile) arrivals(seg int) []sample.Index {
	base := l.head.Starts[0]
	return l.arr[l.head.Starts[seg]-base : l.head.Starts[seg+1]-base]
}

// enter locks a segment for appending.
func (l *Logfile) enter(ctx context.Context, sg *segment) error {
	select {
	case <-l.done:
		return ErrClosed
	default:
	}
	select {
	case sg.lock <- struct{}{}:
		return nil
	default:
	}
	select {
	case sg.lock <- struct{}{}:
		return nil
	case <-l.done:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("wait for another append: %w", context.Cause(ctx))
	}
}

func (sg *segment) leave() { <-sg.lock }
