package iouring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrBusy means that the kernel takes no request now: it has no memory for one, or completions must be reaped first.
var ErrBusy = errors.New("io_uring: the kernel takes no more requests now")

// Request is one transfer, fsync, cancellation or no-op.
type Request struct {
	Op     Opcode
	FD     int
	Offset int64  // in the file
	Buf    []byte // must not move until the completion; if it has more than 1 GiB, the first GiB is transferred
	Index  int    // of the registered buffer that contains Buf, for ReadFixed and WriteFixed
	Token  uint64 // returned with the completion
	Target uint64 // of a Cancel
}

// Push queues a request; Enter passes it to the kernel. It returns false if the queue is full: enter and reap first. Until the completion Buf
// belongs to the kernel, and the caller must keep it reachable.
//
// A Cancel completes at once. The result is 0 if the request waited in the kernel without a worker thread; it then ends with ECANCELED. The result
// is EALREADY if a worker thread has the request; the thread is interrupted as by a signal. The result is ENOENT if there is no such request, or if
// a device has it. In each case the request's buffer belongs to the kernel until the completion of the request itself.
func (r *Ring) Push(q Request) bool {
	// The second limit guarantees a place for every completion.
	if r.Queued() >= len(r.sqes) || r.inFlight >= len(r.cqes) {
		return false
	}
	e := sqe{opcode: q.Op, fd: int32(q.FD), off: uint64(q.Offset), token: q.Token}
	switch q.Op {
	case Nop:
	case Fsync:
		e.opFlags = fsyncDatasync
	case Cancel:
		e.addr = q.Target
	case Never:
		e.addr, e.len = uint64(uintptr(unsafe.Pointer(&never))), 1
	default:
		e.addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(q.Buf))))
		e.len = uint32(min(len(q.Buf), maxTransfer))
		e.bufIndex = uint16(q.Index)
	}
	r.sqes[r.tail&r.sqMask] = e
	r.tail++
	r.inFlight++
	return true
}

// Wait parks the calling goroutine, without a thread, until there may be something to reap: a completion has arrived since the last Wait, or
// Wake was called. It also returns when the ring is closed, and it returns true if the time of WakeAt has passed.
func (r *Ring) Wait() (late bool) {
	var count [8]byte
	_, err := r.event.Read(count[:]) // another error means that the ring is closed
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// WakeAt makes all Waits return true from t on, until the next WakeAt. The zero time means never.
func (r *Ring) WakeAt(t time.Time) {
	_ = r.event.SetReadDeadline(t) // an error means that the ring is closed
}

// Wake makes a Wait return, this one or the next.
func (r *Ring) Wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = r.event.Write(one[:]) // an error means that the ring is closed
}

// Enter passes the pushed requests to the kernel and does not wait. After an error, requests that the kernel did not take stay queued. After
// ErrBusy, enter again after the next completion, or after a while if nothing is in flight. After another error, Retract removes them.
func (r *Ring) Enter() error {
	atomic.StoreUint32(r.sqTail, r.tail)
	for {
		queued := r.Queued()
		if queued == 0 {
			return nil
		}
		switch _, errno := r.enter(uint32(queued)); errno {
		case 0, unix.EINTR: // some requests may be left: look again
		case unix.EAGAIN, unix.EBUSY:
			return ErrBusy
		default:
			return fmt.Errorf("io_uring_enter: %w", errno)
		}
	}
}

// Queued returns the number of pushed requests that the kernel has not taken.
func (r *Ring) Queued() int { return int(r.tail - atomic.LoadUint32(r.sqHead)) }

// Interpose puts f between the ring and the kernel, for tests. f gets the number of requests to submit, may call the kernel with that or a
// smaller number, and returns a count or an error number as the kernel would.
func (r *Ring) Interpose(f func(submit uint32, kernel func(uint32) (int, unix.Errno)) (int, unix.Errno)) {
	r.enter = func(submit uint32) (int, unix.Errno) { return f(submit, r.kernel) }
}

func (r *Ring) kernel(submit uint32) (int, unix.Errno) { return sysEnter(r.fd, submit) }

// Retract removes the pushed requests that the kernel did not take, and calls f with each token. Their buffers belong to the caller again.
func (r *Ring) Retract(f func(token uint64)) {
	head := atomic.LoadUint32(r.sqHead)
	from := r.tail
	r.tail = head
	atomic.StoreUint32(r.sqTail, head) // allowed, because without a polling thread the kernel reads it only inside Enter
	for i := head; i != from; i++ {
		r.inFlight--
		f(r.sqes[i&r.sqMask].token)
	}
}

// Reap calls f for each completion that has arrived: res is a number of bytes, or a negated error number. From the call on, the request's
// buffer belongs to the caller again. f may push. Reap returns the number of calls.
func (r *Ring) Reap(f func(token uint64, res int32)) int {
	n := 0
	for atomic.LoadUint32(r.cqTail) != *r.cqHead { // only we write the head
		head := *r.cqHead
		e := r.cqes[head&r.cqMask]
		atomic.StoreUint32(r.cqHead, head+1) // the entry was copied, so the kernel may reuse it
		r.inFlight--
		n++
		f(e.token, e.res)
	}
	return n
}
