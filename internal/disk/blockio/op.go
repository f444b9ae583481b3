package blockio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxIdle bounds how often in a row the kernel may answer "try again", or transfer nothing of a write, before that is an error.
const maxIdle = 64

// Op is one transfer of a whole buffer. Short transfers are continued inside; a read that meets the end of the file
// ends with io.ErrUnexpectedEOF.
type Op struct {
	File   *File
	Write  bool  // from Buf to File; otherwise from File to Buf
	Offset int64 // in bytes from the start of File
	Buf    []byte
	// Done is called exactly once, on a goroutine of the engine, never inside Submit: so it may take locks that Submit's
	// caller holds. It must not block for long. It may submit, this Op too.
	Done func(op *Op, err error)

	sync     bool // fdatasync, not a transfer
	next     *Op
	n        int   // bytes transferred so far
	idle     int   // answers in a row that moved nothing
	err      error // decided before the engine saw it
	fault    *Fault
	pending  bool // between Submit and Done; guarded by backlog.mu
	attached bool // counted in File
}

// Transferred returns how many bytes of Buf were read or written. It is meaningful in Done and after it.
func (op *Op) Transferred() int { return op.n }

// AlignmentError is the error of an operation that a file opened with O_DIRECT can't take. It never reached the
// kernel, because some file systems do not refuse such a read but silently send it through the page cache.
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

// check returns why the operation can't be given to the kernel.
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

// decided returns the error that an operation ends with before the kernel is asked.
func (op *Op) decided() error {
	if op.err == nil && op.fault != nil && op.fault.Err != nil {
		return fmt.Errorf("%s: %w", op.where(), op.fault.Err)
	}
	return op.err
}

// nothing reports whether there is nothing to ask the kernel for.
func (op *Op) nothing() bool { return len(op.Buf) == 0 && !op.sync }

// rest returns the bytes that are still to be transferred, and their offset.
func (op *Op) rest() ([]byte, int64) {
	buf, off := op.Buf[op.n:], op.Offset+int64(op.n)
	if op.fault != nil {
		return op.fault.bend(op, buf, off)
	}
	return buf, off
}

// account takes the kernel's answer to one transfer of rest: bytes, or an error number. It returns true if the rest
// has to be transferred again.
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
	// A direct transfer goes on from an aligned place only. Behind a short read that ended off the grid lies the end
	// of the file: the next answer will move no further.
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

// Submit hands operations to the engine and never blocks. At most Depth are in flight; further ones wait inside, first
// come, first served. Each op's Done is called exactly once. An op must not be submitted again before its Done.
//
// Once Close has begun ops end with ErrClosed; if the engine's goroutines are gone already, on a goroutine that ends
// when the Dones return.
func (io *IO) Submit(ops ...*Op) {
	inj := io.inject.Load()
	for _, op := range ops {
		op.n, op.idle, op.err, op.fault, op.next = 0, 0, nil, nil, nil
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

// Unfinished is the error of Read and Write when their context ended first. The buffer still belongs to the kernel, which
// may write to it or read from it at any later time, until Settled is closed.
type Unfinished struct {
	Cause   error           // of the context
	Settled <-chan struct{} // closed when the buffer is the caller's again
	what    string
}

func (e *Unfinished) Error() string { return e.what + ": still in flight: " + e.Cause.Error() }
func (e *Unfinished) Unwrap() error { return e.Cause }

// Read fills buf from off and waits for it, or for the end of ctx. In the second case the error is an *Unfinished and buf
// MUST NOT be touched, reused or unmapped before its Settled is closed.
func (io *IO) Read(ctx context.Context, f *File, off int64, buf []byte) error {
	return io.wait(ctx, &Op{File: f, Offset: off, Buf: buf})
}

// Write writes all of buf at off and waits for it, or for the end of ctx, with the same rule as Read.
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
	what := op.where() // op is the engine's once it is submitted
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

// Settled returns a channel that is closed when the memory given to a Read or Write that ended with err is the caller's
// again; for every error but an *Unfinished it is closed already.
func Settled(err error) <-chan struct{} {
	var u *Unfinished
	if errors.As(err, &u) {
		return u.Settled
	}
	return closedChan
}

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()
