// Package offheap makes large arrays of plain numbers that Go's garbage collector neither scans nor counts.
//
// A cache of 14 million samples keeps several numbers for each of them. On Go's heap they would double the heap's target, and with it the
// memory that a limit must leave free. Make maps zeroed anonymous memory, Free unmaps it. The arrays are ordinary slices: nothing checks
// their lifetime, so the owner must free them after the last use. All functions may be called concurrently.
package offheap

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Number is the type of an array's elements: fixed widths without pointers.
type Number interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int32 | ~int64 | ~float32 | ~float64
}

// mapped counts bytes that Make returned or Count added, and that are not freed.
var mapped atomic.Int64

// Mapped returns the bytes that are mapped outside the Go heap and not freed. Tests compare the number before and after.
func Mapped() int64 { return mapped.Load() }

// Count adds bytes to Mapped, for packages that map memory without Make. A negative number means that such memory was unmapped.
func Count(bytes int) { mapped.Add(int64(bytes)) }

// Make returns n zeroed numbers outside the Go heap. The kernel allocates pages when they are first written.
func Make[T Number](n int) ([]T, error) {
	if n == 0 {
		return nil, nil
	}
	var zero T
	bytes := n * int(unsafe.Sizeof(zero))
	mem, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of memory: %w", bytes, err)
	}
	mapped.Add(int64(bytes))
	return unsafe.Slice((*T)(unsafe.Pointer(&mem[0])), n), nil
}

// hugeFrom is the smallest array for which MakeDense requests huge pages. It has several of them, so that the unused part of the last one is small.
const hugeFrom = 16 << 20

// MakeDense is Make for an array that will be used everywhere, in any order. A large one gets huge pages, if the kernel has some, because
// translating an address costs more than reading it. Free frees it.
func MakeDense[T Number](n int) ([]T, error) {
	s, err := Make[T](n)
	if err != nil || n == 0 {
		return s, err
	}
	if bytes := n * int(unsafe.Sizeof(s[0])); bytes >= hugeFrom {
		// A kernel without huge pages returns an error, which does not matter.
		_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), bytes), unix.MADV_HUGEPAGE)
	}
	return s, nil
}

// Grow makes an array from Make longer, or makes a new one if s is nil. New elements are zero. Old elements are not copied: their pages are remapped. Unless there is an error, s must not be used afterwards.
func Grow[T Number](s []T, n int) ([]T, error) {
	if cap(s) == 0 {
		return Make[T](n)
	}
	s = s[:cap(s)]
	size := int(unsafe.Sizeof(s[0]))
	mem, err := unix.Mremap(unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*size), n*size, unix.MREMAP_MAYMOVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of memory: %w", n*size, err)
	}
	mapped.Add(int64((n - len(s)) * size))
	return unsafe.Slice((*T)(unsafe.Pointer(&mem[0])), n), nil
}

// Free frees an array from Make; nil is allowed. The slice must be the whole one that Make returned.
func Free[T Number](s []T) {
	if cap(s) == 0 {
		return
	}
	s = s[:cap(s)]
	bytes := len(s) * int(unsafe.Sizeof(s[0]))
	// x/sys keeps a table of its mappings, keyed by the slice's last byte; the same bytes are the key here.
	if unix.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), bytes)) == nil {
		mapped.Add(-int64(bytes))
	}
}
