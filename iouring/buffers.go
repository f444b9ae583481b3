package iouring

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReserveBuffers makes a table of n registered buffers, all empty. It needs Linux 5.13.
func (r *Ring) ReserveBuffers(n int) error {
	empty := make([]unix.Iovec, n)
	if errno := sysRegister(r.fd, registerBuffers, unsafe.Pointer(&empty[0]), uint32(n)); errno != 0 {
		return fmt.Errorf("reserve %d registered buffers: %w", n, errno)
	}
	return nil
}

// SetBuffer pins mem (1 byte to 1 GiB, outside Go's heap) as registered buffer i, or empties i if mem is nil. Requests in flight keep the old
// buffer. ENOMEM and EPERM mean that the limit of locked memory is too small.
func (r *Ring) SetBuffer(i int, mem []byte) error {
	vec := &r.vec // not on the stack, which may move between here and the system call
	*vec = unix.Iovec{}
	if len(mem) > 0 {
		vec.Base = &mem[0]
		vec.SetLen(len(mem))
	}
	up := bufferUpdate{offset: uint32(i), data: uint64(uintptr(unsafe.Pointer(vec))), nr: 1}
	errno := sysRegister(r.fd, registerBuffersUpdate, unsafe.Pointer(&up), uint32(unsafe.Sizeof(up)))
	if errno != 0 {
		return fmt.Errorf("register %d bytes as buffer %d: %w", len(mem), i, errno)
	}
	return nil
}
