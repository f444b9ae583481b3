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

// Registered returns how many bytes all IOs together have registered. It is zero when all of them are closed, for tests to see.
func Registered() int64 { return registered.Load() }

// region is one registered buffer: addresses from lo up to hi.
type region struct {
	lo, hi uintptr
	index  int
}

// memory is the ring's table of registered memory. The holder of the ring changes it; suffix may be called without the ring.
type memory struct {
	regions []region // in order of lo, disjoint
	off     error    // why no memory can be registered; nil: it can

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

// fail notes that the kernel refuses all registration.
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

// after returns the place of the first region that begins behind addr.
func (m *memory) after(addr uintptr) int {
	i, _ := slices.BinarySearchFunc(m.regions, addr, func(r region, a uintptr) int {
		if r.lo <= a {
			return -1
		}
		return 1
	})
	return i
}

// find returns the index of the registered buffer that all of buf lies in.
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

// add registers mem. set is the ring's SetBuffer. If a unit can't be had, those before it stay.
func (m *memory) add(mem []byte, set func(int, []byte) error) error {
	if m.off != nil {
		return m.off
	}
	lo, hi := span(mem)
	if i := m.after(hi - 1); i > 0 && m.regions[i-1].hi > lo {
		return errOverlap
	}
	for unit := range slices.Chunk(mem, maxUnit) {
		index, ok := m.freeIndex()
		if !ok {
			return fmt.Errorf("more than %d registered buffers", maxRegions)
		}
		if err := set(index, unit); err != nil {
			return err
		}
		lo, hi := span(unit)
		m.regions = slices.Insert(m.regions, m.after(lo), region{lo, hi, index})
		registered.Add(int64(len(unit)))
	}
	return nil
}

var errOverlap = errors.New("it overlaps memory that is registered already")

// remove unregisters the regions within mem.
func (m *memory) remove(mem []byte, set func(int, []byte) error) error {
	lo, hi := span(mem)
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

// drop forgets all of it: the ring is closed.
func (m *memory) drop() {
	for _, r := range m.regions {
		registered.Add(-int64(r.hi - r.lo))
	}
	m.regions = nil
}

func (e *uring) register(mem []byte) error {
	defer e.drive() // for submitters that found the ring locked
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ops.isClosing() {
		return ErrClosed
	}
	err := e.memory.add(mem, e.ring.SetBuffer)
	e.memory.note(err != nil && err != errOverlap)
	return err
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

// Register makes memory from Alloc, or any mapping outside Go's heap, known to the kernel until Unregister or Close, which saves
// the pinning of its pages at each transfer. It is split into units of 1 GiB counted from its start: a buffer that crosses two
// units, or lies elsewhere, still works without. It is best effort: where locked memory is limited (or the engine is not io_uring) I/O
// goes on unregistered, and Reason says so. An error means misuse: empty or overlapping memory, or a closed IO. It must not be called from a Done.
func (io *IO) Register(mem []byte) error {
	if len(mem) == 0 {
		return errors.New("register memory: it is empty")
	}
	err := io.engine.register(mem)
	switch {
	case err == nil:
		return nil
	case err == errOverlap, err == ErrClosed:
		return fmt.Errorf("register %d bytes: %w", len(mem), err)
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EPERM):
		io.because("%v (raise the limit of locked memory: ulimit -l)", err)
	default:
		io.because("%v", err)
	}
	io.log.Warn("memory is not registered", "error", err)
	return nil
}

// Unregister undoes Register for all of mem. It must come before mem is unmapped: the kernel goes on writing to the old pages
// of a registered address, whatever is mapped there later. It must not be called from a Done.
func (io *IO) Unregister(mem []byte) error {
	if err := io.engine.unregister(mem); err != nil && err != ErrClosed {
		return fmt.Errorf("unregister %d bytes: %w", len(mem), err)
	}
	return nil
}
