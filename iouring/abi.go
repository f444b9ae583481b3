package iouring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's interface, linux/io_uring.h, which is stable. x/sys/unix has only the numbers of the three system calls.

const (
	offRings   = 0          // where to map both rings
	offEntries = 0x10000000 // where to map the submission entries

	featSingleMmap = 1 << 0 // 5.4: one mapping for both rings
	featNoDrop     = 1 << 1 // 5.5: completions are never dropped
	featRWCurPos   = 1 << 3 // 5.6: came with READ and WRITE
	featFastPoll   = 1 << 5 // 5.7
	neededFeatures = featSingleMmap | featNoDrop | featRWCurPos | featFastPoll

	registerBuffers       = 0
	registerEventfd       = 4
	registerBuffersUpdate = 16 // 5.13

	maxInFlight = 16384
	maxTransfer = 1 << 30 // of one request; the kernel's own limit is a page less than 2 GiB
)

// Opcode is the kind of a request.
type Opcode uint8

// The requests that a Ring knows. Fsync makes data durable as fdatasync does.
const (
	Nop        Opcode = 0
	Fsync      Opcode = 3
	ReadFixed  Opcode = 4
	WriteFixed Opcode = 5
	Never      Opcode = 11 // a timeout of 34,000 years: it ends only if it is cancelled. For tests
	Cancel     Opcode = 14 // of the request whose token is Target
	Read       Opcode = 22
	Write      Opcode = 23
)

const fsyncDatasync = 1 << 0

// never is a struct __kernel_timespec: seconds and nanoseconds.
var never = [2]int64{1 << 40, 0}

// sqe is a submission entry: struct io_uring_sqe, 64 bytes.
type sqe struct {
	opcode   Opcode
	flags    uint8
	ioprio   uint16
	fd       int32
	off      uint64
	addr     uint64
	len      uint32
	opFlags  uint32
	token    uint64
	bufIndex uint16
	_        uint16
	_        int32
	_        [2]uint64
}

// cqe is a completion entry: struct io_uring_cqe, 16 bytes.
type cqe struct {
	token uint64
	res   int32
	_     uint32
}

type sqOffsets struct {
	head, tail, mask, entries, flags, dropped, array, _ uint32
	_                                                   uint64
}

type cqOffsets struct {
	head, tail, mask, entries, overflow, cqes, flags, _ uint32
	_                                                   uint64
}

// params is struct io_uring_params, 120 bytes.
type params struct {
	sqEntries, cqEntries, flags uint32
	_, _                        uint32
	features                    uint32
	_                           [4]uint32
	sq                          sqOffsets
	cq                          cqOffsets
}

// bufferUpdate is struct io_uring_rsrc_update2, 32 bytes.
type bufferUpdate struct {
	offset uint32
	_      uint32
	data   uint64 // address of iovecs
	_      uint64
	nr     uint32
	_      uint32
}

func sysSetup(entries uint32, p *params) (int, unix.Errno) {
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
	return int(fd), errno
}

// sysEnter uses Syscall6, not its raw form: the call may take long, and the scheduler must know.
func sysEnter(fd int, submit uint32) (int, unix.Errno) {
	n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(submit), 0, 0, 0, 0)
	return int(n), errno
}

func sysRegister(fd int, op uint32, arg unsafe.Pointer, n uint32) unix.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(fd), uintptr(op), uintptr(arg), uintptr(n), 0, 0)
	return errno
}
