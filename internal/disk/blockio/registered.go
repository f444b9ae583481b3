package blockio

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxRegions = 1024    // registered buffers of a ring: up to 1 TiB
	maxUnit    = 1 << 30 // bytes of one registered buffer: the kernel's limit
)

// registered counts bytes of all rings.
var registered atomic.Int64

// Registered returns the bytes that all IOs together have registered. It is zero after all of them are closed; tests check that.
func Registered() int64 { return registered.Load() }

// region is one registered buffer: addresses from lo up to hi.
type region struct {
	lo, hi uintptr
	index  int
}

// area is memory that is registered unit by unit, each when a transfer first uses it.
type area struct {
	mem     []byte
	unit    int  // bytes of a unit, counted from the start of mem
	refused bool // the kernel has refused a unit: no other unit is tried
}

// memory is the ring's table of registered memory. The holder of the ring changes it; suffix may be called without the ring.
type memory struct {
	regions []region // in order of lo, disjoint
	areas   []area   // disjoint; all units of them that are registered are regions
	off     error    // why no memory can be registered; nil: it can be

	mu     sync.Mutex // guards the fields that follow
	known  int        // regions
	failed bool       // a registration failed
}

func (m *memory) suffix() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.failed:
		return ""
	case m.known == 0:
		return " (unregistered)"
	}
	return " (partly registered)"
}

// fail records that the kernel refuses all registration.
func (m *memory) fail(err error) {
	m.off = err
	m.note(true)
}

func (m *memory) note(failed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.known, m.failed = len(m.regions), m.failed || failed
}

func span(mem []byte) (lo, hi uintptr) {
	lo = uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return lo, lo + uintptr(len(mem))
}

// after returns the position of the first region that begins after addr.
func (m *memory) after(addr uintptr) int {
	i, _ := slices.BinarySearchFunc(m.regions, addr, func(r region, a uintptr) int {
		if r.lo <= a {
			return -1
		}
		return 1
	})
	return i
}

// find returns the index of the registered buffer that contains all of buf.
func (m *memory) find(buf []byte) (int, bool) {
	lo, hi := span(buf)
	i := m.after(lo) - 1
	if i < 0 || m.regions[i].hi < hi {
		return 0, false
	}
	return m.regions[i].index, true
}

func (m *memory) freeIndex() (int, bool) {
	var used [maxRegions]bool
	for _, r := range m.regions {
		used[r.index] = true
	}
	i := slices.Index(used[:], false)
	return i, i >= 0
}

// add registers mem. set is the ring's SetBuffer. If a unit can't be registered, the units before it stay.
func (m *memory) add(mem []byte, set func(int, []byte) error) error {
	if err := m.mayAdd(mem); err != nil {
		return err
	}
	for unit := range slices.Chunk(mem, maxUnit) {
		if _, err := m.addUnit(unit, set); err != nil {
			return err
		}
	}
	return nil
}

// addUnit makes a unit one registered buffer, and returns its index.
func (m *memory) addUnit(unit []byte, set func(int, []byte) error) (int, error) {
	index, ok := m.freeIndex()
	if !ok {
		return 0, fmt.Errorf("more than %d registered buffers", maxRegions)
	}
	if err := set(index, unit); err != nil {
		return 0, err
	}
	lo, hi := span(unit)
	m.regions = slices.Insert(m.regions, m.after(lo), region{lo, hi, index})
	registered.Add(int64(len(unit)))
	return index, nil
}

// addLater makes mem an area with no unit registered yet.
func (m *memory) addLater(mem []byte) error {
	if err := m.mayAdd(mem); err != nil {
		return err
	}
	m.areas = append(m.areas, area{mem: mem, unit: unitOf(len(mem))})
	return nil
}

// unitOf returns the size of a unit in an area of n bytes. In a small area it is a sixteenth, so that unused parts are not pinned. In a larger
// one it is the size that the kernel pins within some 10 ms, because no transfer begins meanwhile, as long as 256 units are enough.
func unitOf(n int) int {
	unit := hugePage
	for unit < maxUnit && (n > 16*unit && unit < 16<<20 || n > 256*unit) {
		unit *= 2
	}
	return unit
}

// use is find, and registers the unit of an area that contains all of buf. It returns an error once for each area.
func (m *memory) use(buf []byte, set func(int, []byte) error) (index int, ok bool, err error) {
	if index, ok = m.find(buf); ok {
		return index, true, nil
	}
	lo, hi := span(buf)
	for k := range m.areas {
		a := &m.areas[k]
		begin, end := span(a.mem)
		if lo < begin || hi > end {
			continue
		}
		from := int(lo-begin) / a.unit * a.unit
		to := min(from+a.unit, len(a.mem))
		if a.refused || int(hi-begin) > to {
			return 0, false, nil
		}
		index, err = m.addUnit(a.mem[from:to], set)
		a.refused = err != nil
		return index, err == nil, err
	}
	return 0, false, nil
}

// mayAdd returns why mem can't be registered: nothing can, or a part of it is registered already, or in an area.
func (m *memory) mayAdd(mem []byte) error {
	lo, hi := span(mem)
	overlaps := func(a area) bool {
		begin, end := span(a.mem)
		return begin < hi && lo < end
	}
	switch i := m.after(hi - 1); {
	case m.off != nil:
		return m.off
	case i > 0 && m.regions[i-1].hi > lo, slices.ContainsFunc(m.areas, overlaps):
		return errOverlap
	}
	return nil
}

var errOverlap = errors.New("it overlaps memory that is registered already")

// remove unregisters the regions within mem, and forgets the areas there.
func (m *memory) remove(mem []byte, set func(int, []byte) error) error {
	lo, hi := span(mem)
	m.areas = slices.DeleteFunc(m.areas, func(a area) bool {
		begin, end := span(a.mem)
		return begin >= lo && end <= hi
	})
	var errs []error
	m.regions = slices.DeleteFunc(m.regions, func(r region) bool {
		if r.lo < lo || r.hi > hi {
			return false
		}
		if err := set(r.index, nil); err != nil {
			errs = append(errs, err)
		}
		registered.Add(-int64(r.hi - r.lo))
		return true
	})
	return errors.Join(errs...)
}

// drop forgets all regions and areas, because the ring is closed.
func (m *memory) drop() {
	for _, r := range m.regions {
		registered.Add(-int64(r.hi - r.lo))
	}
	m.regions, m.areas = nil, nil
}

func (e *uring) register(mem []byte, later bool) error {
	defer e.drive() // for submitters that found the ring locked
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ops.isClosing() {
		return ErrClosed
	}
	var err error
	if later {
		err = e.memory.addLater(mem)
	} else {
		err = e.memory.add(mem, e.ring.SetBuffer)
	}
	e.memory.note(err != nil && err != errOverlap)
	return err
}

// registered returns the registered buffer of a transfer. It registers the memory now, if that was postponed.
func (e *uring) registered(buf []byte) (index int, ok bool) {
	index, ok, err := e.memory.use(buf, e.ring.SetBuffer)
	if err != nil {
		e.memory.note(true)
		e.refused(err)
	}
	return index, ok
}

func (e *uring) unregister(mem []byte) error {
	defer e.drive()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ops.isClosing() {
		return ErrClosed
	}
	err := e.memory.remove(mem, e.ring.SetBuffer)
	e.memory.note(false)
	return err
}

// Register registers memory from Alloc, or any mapping outside Go's heap, with the kernel until Unregister or Close. That saves pinning its
// pages for each transfer. Memory is split into units of 1 GiB, counted from its start. Buffers that cross two units, or are in other memory,
// still work. Registration is best effort: if locked memory is limited (or the engine is not io_uring), I/O continues without it, and Reason
// reports that. An error means misuse: empty or overlapping memory, or a closed IO. It must not be called from a Done.
func (io *IO) Register(mem []byte) error { return io.register(mem, false) }

// RegisterOnUse is Register, but pages are pinned, and so allocated, when a transfer first uses a part of the memory: 2 to 16 MiB of it, more
// from 4 GiB on. A buffer that crosses two such parts works without registration. If locked memory is limited, all memory is registered now, so
// that Reason reports missing registration at once.
func (io *IO) RegisterOnUse(mem []byte) error { return io.register(mem, mayLock()) }

func (io *IO) register(mem []byte, later bool) error {
	if len(mem) == 0 {
		return errors.New("register memory: it is empty")
	}
	err := io.engine.register(mem, later)
	if err == errOverlap || err == ErrClosed {
		return fmt.Errorf("register %d bytes: %w", len(mem), err)
	}
	if err != nil {
		io.refused(err)
	}
	return nil
}

// refused records that the kernel has refused to register memory.
func (io *IO) refused(err error) {
	if errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EPERM) {
		io.setReason("%v (raise the limit of locked memory: ulimit -l)", err)
	} else {
		io.setReason("%v", err)
	}
	io.log.Warn("memory is not registered", "error", err)
}

// mayLock reports whether this process may lock any amount of memory.
func mayLock() bool {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil && limit.Cur == unix.RLIM_INFINITY {
		return true
	}
	var caps [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0])
	return err == nil && caps[0].Effective>>unix.CAP_IPC_LOCK&1 == 1
}

// Unregister undoes Register, or RegisterOnUse, for all of mem. It must come before mem is unmapped: the kernel goes on writing to the old pages
// of a registered address, whatever is mapped there later. It must not be called from a Done.
func (io *IO) Unregister(mem []byte) error {
	if err := io.engine.unregister(mem); err != nil && err != ErrClosed {
		return fmt.Errorf("unregister %d bytes: %w", len(mem), err)
	}
	return nil
}
