// Package iouring drives one io_uring of the Linux kernel: a queue of requests, a queue of completions.
//
// It hides the set-up, the shared memory of both queues with its ordering, and what the kernel may answer while it takes requests. A
// Ring takes a Request with Push, gives it to the kernel with Enter and hands out completions with Reap. It knows reads, writes (also with
// registered buffers), fsync and no-op, never sizes or meanings; it has no polling kernel thread and never drops a completion.
//
// A Ring belongs to the one goroutine that called New, which stays locked to its thread until Close: the kernel
// cancels requests of a thread that exits, and runs completions cheapest when only one thread submits. Only Wake may be called
// by others. A read of an eventfd is always in flight, so one wait in the kernel covers both completions and new work from other
// goroutines: the owner takes everything that has queued up since and submits it with the same system call that waits.
// The alternative, where each submitter enters the kernel under a lock and a second goroutine reaps, costs a system call per
// submitter instead of per batch, and leaves completions to whatever thread last ran the submitter.
package iouring

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// UnavailableError says that this machine, container or kernel gives no usable io_uring: EPERM (seccomp, or
// kernel.io_uring_disabled), ENOSYS (not compiled in, or too old), ENOMEM (locked memory, before Linux 5.12) or EINVAL.
type UnavailableError struct {
	What string
	Err  unix.Errno
}

func (e *UnavailableError) Error() string {
	hint := ""
	switch e.Err {
	case unix.EPERM, unix.EACCES:
		hint = ": forbidden by a seccomp profile or by kernel.io_uring_disabled"
	case unix.ENOMEM:
		hint = ": the limit of locked memory may be too small"
	}
	return fmt.Sprintf("no io_uring: %s: %v%s", e.What, e.Err, hint)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// Ring is one io_uring. Its zero value is of no use; New makes one.
type Ring struct {
	fd    int
	flags uint32 // of the set-up that the kernel accepted

	queues, entries, page []byte // mappings: both rings, the submission entries, and a page of our own

	sqHead, sqTail *uint32 // shared: the kernel moves the head, we the tail
	sqMask         uint32
	sqes           []sqe
	tail           uint32 // ours; the shared one follows in Enter

	cqHead, cqTail *uint32 // shared: we move the head, the kernel the tail
	cqMask         uint32
	cqes           []cqe

	wakeFd  int
	armed   bool // the read of wakeFd is pushed or in the kernel
	closing bool
	users   int // requests pushed and not reaped, without that read

	// The system call, and the wait between tries while the kernel has no memory: tests put trouble here.
	enter func(fd int, submit, wait, flags uint32) (int, unix.Errno)
	pause func(time.Duration)
}

// New makes a ring with room for so many requests in flight (1 to 16,384) and locks the calling goroutine to its thread until Close. Where
// io_uring can't be had the error is an *UnavailableError.
func New(inFlight int) (*Ring, error) {
	if inFlight < 1 || inFlight > maxInFlight {
		return nil, fmt.Errorf("set up io_uring: %d requests in flight is not between 1 and %d", inFlight, maxInFlight)
	}
	runtime.LockOSThread()
	r := &Ring{fd: -1, wakeFd: -1, enter: sysEnter, pause: time.Sleep}
	if err := r.setUp(uint32(inFlight) + 1); err != nil { // one more for the wake-up
		r.unmap()
		runtime.UnlockOSThread()
		return nil, err
	}
	return r, nil
}

func (r *Ring) setUp(entries uint32) error {
	var p params
	var errno unix.Errno
	for _, flags := range setupChoices {
		p = params{flags: flags}
		if r.fd, errno = sysSetup(entries, &p); errno != unix.EINVAL {
			r.flags = flags
			break
		}
	}
	if errno != 0 {
		r.fd = -1
		return &UnavailableError{What: "io_uring_setup", Err: errno}
	}
	if p.features&neededFeatures != neededFeatures {
		return &UnavailableError{What: fmt.Sprintf("the kernel is older than 5.7 (features %#x)", p.features), Err: unix.ENOSYS}
	}
	if err := r.mapQueues(&p); err != nil {
		return err
	}
	var err error
	if r.wakeFd, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err != nil {
		r.wakeFd = -1
		return fmt.Errorf("set up io_uring: eventfd: %w", err)
	}
	r.arm()
	if err := r.Enter(false); err != nil { // also shows that io_uring_enter is allowed
		var errno unix.Errno
		if errors.As(err, &errno) {
			return &UnavailableError{What: "io_uring_enter", Err: errno}
		}
		return err
	}
	return nil
}

func (r *Ring) mapQueues(p *params) error {
	const prot, share = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	size := max(p.sq.array+p.sqEntries*4, p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(cqe{})))
	maps := []struct {
		mem         *[]byte
		fd          int
		off         int64
		size, flags int
	}{
		{&r.queues, r.fd, offRings, int(size), share},
		{&r.entries, r.fd, offEntries, int(p.sqEntries) * int(unsafe.Sizeof(sqe{})), share},
		{&r.page, -1, 0, unix.Getpagesize(), unix.MAP_PRIVATE | unix.MAP_ANONYMOUS},
	}
	for _, m := range maps {
		mem, err := unix.Mmap(m.fd, m.off, m.size, prot, m.flags)
		if errno, ok := err.(unix.Errno); ok {
			return &UnavailableError{What: "map the queues", Err: errno}
		}
		*m.mem = mem
	}
	word := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.queues[off])) }
	r.sqHead, r.sqTail, r.sqMask = word(p.sq.head), word(p.sq.tail), *word(p.sq.mask)
	r.cqHead, r.cqTail, r.cqMask = word(p.cq.head), word(p.cq.tail), *word(p.cq.mask)
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&r.entries[0])), p.sqEntries)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&r.queues[p.cq.cqes])), p.cqEntries)
	array := unsafe.Slice(word(p.sq.array), p.sqEntries)
	for i := range array {
		array[i] = uint32(i) // entries are used in turn: the indirection is never needed
	}
	r.tail = *r.sqTail
	return nil
}

// InFlight returns how many requests were pushed and not yet reaped: those whose buffers are not the caller's.
func (r *Ring) InFlight() int { return r.users }

// Close waits for all requests in flight, drops their completions, and gives the ring back. The buffers of requests are
// the caller's again only if the error is nil. Wake must not be called any more.
func (r *Ring) Close() error {
	r.closing = true
	for r.users > 0 || r.armed {
		if r.armed && r.users == 0 {
			r.Wake()
		}
		if err := r.Enter(true); err != nil {
			return fmt.Errorf("close io_uring with %d requests in flight: %w", r.users, err)
		}
		r.Reap(func(uint64, int32) {})
	}
	r.unmap()
	runtime.UnlockOSThread()
	return nil
}

func (r *Ring) unmap() {
	for _, fd := range []int{r.fd, r.wakeFd} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	for _, mem := range [][]byte{r.queues, r.entries, r.page} {
		if mem != nil {
			_ = unix.Munmap(mem)
		}
	}
	r.fd, r.wakeFd, r.queues, r.entries, r.page = -1, -1, nil, nil, nil
}
