package blockio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxIdle bounds how often in a row the kernel may answer "try again", or write no bytes, before that is an error.
const maxIdle = 64

// Op is one transfer of a whole buffer. The engine continues short transfers. A read that reaches the end of the file ends with
// io.ErrUnexpectedEOF.
type Op struct {
	File   *File
	Write  bool  // from Buf to File; otherwise from File to Buf
	Offset int64 // in bytes from the start of File
	Buf    []byte
	// Done is called exactly once, on a goroutine of the engine, never inside Submit: so it may take locks that Submit's caller holds. It must
	// not block for long. It may submit operations, including this Op.
	Done func(op *Op, err error)

	sync     bool // fdatasync, not a transfer
	next     *Op
	n        int   // bytes transferred so far
	idle     int   // consecutive answers without progress
	cancels  int   // how often the ring has cancelled it; guarded by uring.mu
	err      error // decided before the engine saw it
	fault    *Fault
	pending  bool // between Submit and Done; guarded by backlog.mu
	attached bool // counted in File
}

// Transferred returns the bytes of Buf that were read or written. It is valid in Done and after it.
func (op *Op) Transferred() int { return op.n }

// AlignmentError is the error of a misaligned operation on a file with O_DIRECT. The operation is not passed to the kernel, because some file
// systems silently send such a read through the page cache.
type AlignmentError struct {
	Name               string
	What               string // "address", "offset" or "length"
	Value, Align       uint64
	Offset             int64
	Length             int
	MemAlign, OffAlign int
}

func (e *AlignmentError) Error() string {
	return fmt.Sprintf("%s: %s %#x of a transfer of %d bytes at %d is not a multiple of %d (memory needs %d, offsets %d)",
		e.Name, e.What, e.Value, e.Length, e.Offset, e.Align, e.MemAlign, e.OffAlign)
}

// check returns an error if the operation can't be passed to the kernel.
func (op *Op) check() error {
	if op.Offset < 0 {
		return fmt.Errorf("%s: offset is negative", op.where())
	}
	f := op.File
	if !f.direct {
		return nil
	}
	bad := func(what string, value uint64, align int) error {
		return &AlignmentError{Name: f.path, What: what, Value: value, Align: uint64(align),
			Offset: op.Offset, Length: len(op.Buf), MemAlign: f.memAlign, OffAlign: f.offAlign}
	}
	addr := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(op.Buf))))
	switch {
	case addr%uint64(f.memAlign) != 0:
		return bad("address", addr, f.memAlign)
	case op.Offset%int64(f.offAlign) != 0:
		return bad("offset", uint64(op.Offset), f.offAlign)
	case len(op.Buf)%f.offAlign != 0:
		return bad("length", uint64(len(op.Buf)), f.offAlign)
	}
	return nil
}

func (op *Op) where() string {
	verb := "read"
	switch {
	case op.sync:
		return "sync " + op.File.path
	case op.Write:
		verb = "write"
	}
	return fmt.Sprintf("%s %s: %d bytes at %d", verb, op.File.path, len(op.Buf), op.Offset)
}

// decided returns the error that ends an operation before it reaches the kernel.
func (op *Op) decided() error {
	if op.err == nil && op.fault != nil && op.fault.Err != nil {
		return fmt.Errorf("%s: %w", op.where(), op.fault.Err)
	}
	return op.err
}

// isEmpty reports whether the operation needs no system call.
func (op *Op) isEmpty() bool { return len(op.Buf) == 0 && !op.sync }

// rest returns the bytes that are still to be transferred, and their offset.
func (op *Op) rest() ([]byte, int64) {
	buf, off := op.Buf[op.n:], op.Offset+int64(op.n)
	if op.fault != nil {
		return op.fault.changeRequest(op, buf, off)
	}
	return buf, off
}

// account handles the kernel's result of one transfer of rest: bytes, or an error number. It returns true if the rest must be transferred
// again.
func (op *Op) account(n int, errno unix.Errno) (again bool, err error) {
	if op.fault != nil {
		n, errno = op.fault.answer(n, errno)
	}
	switch {
	case errno == unix.EINTR || errno == unix.EAGAIN:
		if op.idle++; op.idle < maxIdle {
			return true, nil
		}
		return false, fmt.Errorf("%s: tried %d times: %w", op.where(), op.idle, errno)
	case errno != 0:
		return false, fmt.Errorf("%s: %w", op.where(), errno)
	case op.n+n >= len(op.Buf):
		op.n = len(op.Buf)
		return false, nil
	}
	// A direct transfer can continue only at an aligned offset. A short read that ended elsewhere has reached the end of the file: the next read
	// will return no more.
	step := n
	if op.File.direct {
		step -= n % max(op.File.offAlign, op.File.memAlign)
	}
	if step > 0 {
		op.n += step
		op.idle = 0
		return true, nil
	}
	if op.Write {
		if op.idle++; op.idle < maxIdle {
			return true, nil
		}
		return false, fmt.Errorf("%s: stopped after %d: %w", op.where(), op.n, io.ErrShortWrite)
	}
	op.n += n
	return false, fmt.Errorf("%s: the file ends after %d: %w", op.where(), op.n, io.ErrUnexpectedEOF)
}

// Submit passes operations to the engine and never blocks. At most Depth are in flight; the others wait in a queue, first come, first
// served. Each op's Done is called exactly once. An op must not be submitted again before its Done.
//
// After Close has begun, ops end with ErrClosed. If the engine's goroutines have ended, their Dones run on a new goroutine, which ends after
// them.
func (io *IO) Submit(ops ...*Op) {
	inj := io.inject.Load()
	for _, op := range ops {
		op.n, op.idle, op.cancels, op.err, op.fault, op.next = 0, 0, 0, nil, nil, nil
		if op.attached = op.File.attach(); !op.attached {
			op.err = fmt.Errorf("%s: the file is closed: %w", op.where(), ErrClosed)
		} else {
			op.err = op.check()
		}
		if inj != nil && op.err == nil {
			inj.apply(op)
		}
	}
	if left := io.ops.add(ops); len(left) > 0 {
		go func() {
			for _, op := range left {
				io.ops.finish(op, ErrClosed)
			}
		}()
	}
}

// Unfinished is the error of Read and Write if their context ended first. The buffer still belongs to the kernel, which may read or write it
// at any time until Settled is closed.
type Unfinished struct {
	Cause   error           // of the context
	Settled <-chan struct{} // closed when the buffer belongs to the caller again
	what    string
}

func (e *Unfinished) Error() string { return e.what + ": still in flight: " + e.Cause.Error() }
func (e *Unfinished) Unwrap() error { return e.Cause }

// Read fills buf from off and waits until that is done or ctx ends. If ctx ends first, the error is an *Unfinished and buf MUST NOT be
// accessed, reused or unmapped before its Settled is closed.
func (io *IO) Read(ctx context.Context, f *File, off int64, buf []byte) error {
	return io.wait(ctx, &Op{File: f, Offset: off, Buf: buf})
}

// Write writes all of buf at off and waits until that is done or ctx ends, with the same rule as Read.
func (io *IO) Write(ctx context.Context, f *File, off int64, buf []byte) error {
	return io.wait(ctx, &Op{File: f, Write: true, Offset: off, Buf: buf})
}

func (io *IO) wait(ctx context.Context, op *Op) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: not begun: %w", op.where(), err)
	}
	settled := make(chan struct{})
	var result error
	op.Done = func(_ *Op, err error) { result = err; close(settled) }
	what := op.where() // after Submit, op belongs to the engine
	io.Submit(op)
	select {
	case <-settled:
		return result
	case <-ctx.Done():
	}
	select {
	case <-settled:
		return result
	default:
		return &Unfinished{Cause: ctx.Err(), Settled: settled, what: what}
	}
}

// Settled returns a channel that is closed when the memory of a Read or Write that ended with err belongs to the caller again. Unless err is
// an *Unfinished, it is closed already.
func Settled(err error) <-chan struct{} {
	var u *Unfinished
	if errors.As(err, &u) {
		return u.Settled
	}
	return closedChan
}

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()
