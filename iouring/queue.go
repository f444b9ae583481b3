package iouring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// wakeToken marks the ring's own read; requests may use every other token.
const wakeToken = ^uint64(0)

// ErrBusy means that the kernel had no memory for a request for about a second, while nothing was in flight whose end would free some.
var ErrBusy = errors.New("io_uring: the kernel takes no more requests")

const (
	busyPause = time.Millisecond
	busyTries = 1000
)

// Request is one transfer, fsync or no-op.
type Request struct {
	Op     Opcode
	FD     int
	Offset int64  // in the file
	Buf    []byte // must stay where it is until the completion; of more than 1 GiB the first GiB is transferred
	Index  int    // of the registered buffer that Buf lies in, for ReadFixed and WriteFixed
	Token  uint64 // comes back with the completion; not the largest uint64
}

// Push queues a request; Enter gives it to the kernel. False means that there is no room: enter and reap first. From here to the
// completion Buf is the kernel's, and the caller must keep it reachable.
func (r *Ring) Push(q Request) bool {
	// The last entry is the wake-up's, and so is a completion: completions that may come never exceed their queue.
	if r.tail-atomic.LoadUint32(r.sqHead) >= uint32(len(r.sqes))-1 || r.users >= len(r.cqes)-1 {
		return false
	}
	e := sqe{opcode: q.Op, fd: int32(q.FD), off: uint64(q.Offset), token: q.Token}
	switch q.Op {
	case Nop:
	case Fsync:
		e.opFlags = fsyncDatasync
	default:
		e.addr = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(q.Buf))))
		e.len = uint32(min(len(q.Buf), maxTransfer))
		e.bufIndex = uint16(q.Index)
	}
	r.put(e)
	r.users++
	return true
}

func (r *Ring) put(e sqe) {
	r.sqes[r.tail&r.sqMask] = e
	r.tail++
}

// arm pushes the read of the eventfd. Its eight bytes lie in the ring's own page.
func (r *Ring) arm() {
	r.put(sqe{opcode: Read, fd: int32(r.wakeFd), addr: uint64(uintptr(unsafe.Pointer(&r.page[0]))), len: 8, token: wakeToken})
	r.armed = true
}

// Wake makes a waiting Enter return, now or the next time. It may be called by any goroutine before Close begins.
func (r *Ring) Wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	for {
		// EAGAIN can't be: the counter would have to be near 2^64.
		if _, err := unix.Write(r.wakeFd, one[:]); err != unix.EINTR {
			return
		}
	}
}

// Enter gives what was pushed to the kernel; with wait it returns only when there is something to reap (which after a Wake may
// be nothing of the caller's). It also returns, perhaps with requests still queued here, when the
// kernel wants completions reaped first: reap and enter again. After an error what the kernel did not take is still queued;
// Retract takes it back.
func (r *Ring) Enter(wait bool) error {
	atomic.StoreUint32(r.sqTail, r.tail)
	for tries := 0; ; {
		submit, least := r.tail-atomic.LoadUint32(r.sqHead), uint32(0)
		if wait && r.ready() == 0 {
			least = 1
		}
		if tries > 0 && r.users > int(submit) {
			submit, least = 0, 1 // the kernel was busy: wait for the end of something it has
		}
		// Events are asked for even without a wait, because a ring with deferred work completes nothing otherwise.
		n, errno := r.enter(r.fd, submit, least, enterGetEvents)
		switch errno {
		case 0:
			tries = 0
			if uint32(n) >= submit && r.tail == atomic.LoadUint32(r.sqHead) && (!wait || r.ready() > 0) {
				return nil
			}
		case unix.EINTR:
			if !wait && submit == 0 {
				return nil
			}
		case unix.EAGAIN, unix.EBUSY:
			if r.ready() > 0 {
				return nil
			}
			if tries++; tries > busyTries {
				return ErrBusy
			}
			if r.users <= int(submit) {
				r.pause(busyPause) // nothing is in flight that could be waited for
			}
		default:
			return fmt.Errorf("io_uring_enter: %w", errno)
		}
	}
}

// Retract takes back what was pushed and not given to the kernel, and calls f with each token. Their buffers are the caller's.
func (r *Ring) Retract(f func(token uint64)) {
	head := atomic.LoadUint32(r.sqHead)
	from := r.tail
	r.tail = head
	atomic.StoreUint32(r.sqTail, head) // allowed: without a polling thread the kernel looks at it only inside Enter
	rearm := false
	for i := head; i != from; i++ {
		token := r.sqes[i&r.sqMask].token
		if token == wakeToken {
			rearm = true
			continue
		}
		r.users--
		f(token)
	}
	if rearm {
		r.arm()
	}
}

func (r *Ring) ready() uint32 {
	return atomic.LoadUint32(r.cqTail) - *r.cqHead // the head is written by us alone
}

// Reap calls f for each completion that has arrived: res is a count of bytes, or an error number, negated. With the call the request's
// buffer is the caller's again. f may push. It returns how often f was called.
func (r *Ring) Reap(f func(token uint64, res int32)) int {
	n := 0
	for r.ready() > 0 {
		head := *r.cqHead
		e := r.cqes[head&r.cqMask]
		atomic.StoreUint32(r.cqHead, head+1) // the entry was copied: its place is the kernel's again
		if e.token == wakeToken {
			if r.armed = false; !r.closing {
				r.arm()
			}
			continue
		}
		r.users--
		n++
		f(e.token, e.res)
	}
	return n
}
