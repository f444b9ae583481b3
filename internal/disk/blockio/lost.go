package blockio

import (
	"time"

	"golang.org/x/sys/unix"

	"lcache/iouring"
)

// The kernel gives some transfers, and each sync, to worker threads (io-wq), and it may fail to start one: a transfer then stays in its queue for
// ever, though the device is fine. The ring can't see which transfers these are. So it cancels each one that takes long. The kernel ends those in
// its queue with ECANCELED, and complete submits them again. It interrupts a worker thread, which matters only to file systems that wait
// interruptibly (some of networks and of FUSE): they end a transfer early or with EINTR, which is continued as after any signal. A transfer that a
// device has is left as it is. The wait until a transfer is cancelled once more doubles each time, so that a slow one ends although it is interrupted.

const (
	lostTick     = time.Second // between two looks at the transfers in flight
	lostTicks    = 2           // whole ticks until a transfer is cancelled: it takes 2 to 3 s, less than the deadline of a device
	maxDoublings = 16

	cancelToken = 1 << 63 // the bit of a cancellation's token; the other bits are its target
)

// lost finds transfers that take long. Its clock counts ticks instead of time, so that a process that was stopped for a while does not cancel all.
// The clock stops while nothing is in flight.
type lost struct {
	every   time.Duration
	ticking bool
	tick    uint64
	begun   []uint64 // by token: the tick in which the transfer was pushed
	cancels int      // in flight; a round begins when there are none
	found   int      // of this round, in the kernel's queue
}

// isOverdue reports whether a transfer is cancelled when it sees a tick, the ticks-th. The first one may come right after its beginning, so it does not
// count. cancels is how often its operation was cancelled before.
func isOverdue(ticks uint64, cancels int) bool { return ticks > lostTicks<<min(cancels, maxDoublings) }

// note records that a transfer is pushed. uring.mu is held.
func (e *uring) note(token uint64) {
	e.lost.begun[token] = e.lost.tick
	if !e.lost.ticking {
		e.lost.ticking = true
		e.ring.WakeAt(time.Now().Add(e.lost.every))
	}
}

// cancelOverdue is one tick. It cancels the overdue transfers, unless cancellations or other requests wait for the kernel. uring.mu is held.
func (e *uring) cancelOverdue() {
	l := &e.lost
	l.tick++
	if len(e.free) == len(e.slots) {
		l.ticking = false
		e.ring.WakeAt(time.Time{})
		return
	}
	e.ring.WakeAt(time.Now().Add(l.every))
	if l.cancels > 0 || e.ring.Queued() > 0 || e.broken != nil {
		return
	}
	for token, op := range e.slots {
		if op == nil || !isOverdue(l.tick-l.begun[token], op.cancels) {
			continue
		}
		// There is always room: the queue was empty, and completions have twice its places.
		if e.ring.Push(iouring.Request{Op: iouring.Cancel, Token: cancelToken | uint64(token), Target: uint64(token)}) {
			op.cancels++
			l.cancels++
		}
	}
	if e.ring.Enter() != nil {
		e.ring.Retract(func(token uint64) { // so that transfers have their room; a later tick tries again
			e.slots[token&^cancelToken].cancels--
			l.cancels--
		})
	}
}

// cancelled takes the completion of a cancellation. The transfer, if it still is in flight, has a completion of its own.
func (e *uring) cancelled(res int32) {
	l := &e.lost
	l.cancels--
	if res == 0 {
		l.found++
	}
}

// takeFound returns how many transfers of a finished round were in the kernel's queue. uring.mu is held.
func (l *lost) takeFound() (n int) {
	if l.cancels == 0 {
		n, l.found = l.found, 0
	}
	return n
}

// isInterruption reports whether a transfer was cancelled or interrupted, so that it must be submitted again. The kernel also cancels if the thread
// that submitted it has ended. The numbers from 512 on are the kernel's own; a sync that a worker thread carries out may return them.
func isInterruption(errno unix.Errno) bool {
	const restartSys, restartNoIntr, restartNoHand, restartBlock = 512, 513, 514, 516
	switch errno {
	case unix.ECANCELED, unix.EINTR, restartSys, restartNoIntr, restartNoHand, restartBlock:
		return true
	}
	return false
}
