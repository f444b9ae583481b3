package blockio

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"lcache/iouring"
)

// uring is the engine on an io_uring. A submitter enters all queued operations, unless another submitter does that already. One goroutine, the
// reaper, waits for completions and calls the Dones. All operations that the Dones of one batch of completions submit go to the kernel with
// one system call.
//
// Locks: mu comes before backlog.mu, and no Done runs under backlog.mu.
type uring struct {
	ops     *backlog
	log     *slog.Logger
	refused func(error) // called when memory can't be registered
	joined  chan struct{}

	mu      sync.Mutex // guards the fields that follow
	ring    *iouring.Ring
	slots   []*Op // by token: operations of the ring
	free    []uint64
	decided list // for the reaper to end without the kernel
	tries   int  // consecutive attempts with a busy kernel and nothing in flight
	broken  error
	pause   func() // between these attempts
	lost    lost

	memory // guarded by mu, except for the names
}

const (
	busyPause = time.Millisecond
	busyTries = 1000
)

// startRing returns a running engine, or the reason why there is none. It calls refused if the kernel does not register memory.
func startRing(ops *backlog, log *slog.Logger, refused func(error)) (*uring, error) {
	ring, err := iouring.New(int(directions) * ops.depth)
	if err != nil {
		return nil, err
	}
	e := &uring{ops: ops, log: log, refused: refused, joined: make(chan struct{}), ring: ring, slots: make([]*Op, int(directions)*ops.depth),
		pause: func() { time.Sleep(busyPause) }, lost: lost{every: lostTick, begun: make([]uint64, int(directions)*ops.depth)}}
	for i := range e.slots {
		e.free = append(e.free, uint64(i))
	}
	if err := ring.ReserveBuffers(maxRegions); err != nil {
		e.memory.fail(err)
	}
	ops.kick, ops.kicked = e.kick, e.drive
	go e.reap()
	return e, nil
}

func (e *uring) name() string { return "io_uring" + e.memory.suffix() }

func (e *uring) close() { <-e.joined }

// kick is called with ops.mu held, which also keeps the ring open. The reaper handles the end, and drive handles work.
func (e *uring) kick(ready int) {
	if ready == 0 {
		e.ring.Wake()
	}
}

// drive passes all available operations to the kernel. If another goroutine does that, or the reaper runs Dones, that goroutine looks again
// after it has unlocked. So no operation is forgotten, and Submit never waits.
func (e *uring) drive() {
	for e.ops.takeable() && e.mu.TryLock() {
		e.fill()
		e.enter(false)
		if e.decided.n > 0 || e.ring.Queued() > 0 {
			e.ring.Wake() // the reaper's business; under mu, or it might have done it and closed the ring
		}
		e.mu.Unlock()
	}
}

// fill moves operations from the backlog to the ring.
func (e *uring) fill() {
	for op := e.ops.take(); op != nil; op = e.ops.take() {
		if op.decided() != nil || op.isEmpty() {
			e.decided.push(op)
		} else {
			e.push(op)
		}
	}
}

// push puts an operation's next transfer into the ring. There is always room: at most depth operations of each direction are active, and the
// ring is sized for all of them.
func (e *uring) push(op *Op) {
	if e.broken != nil {
		op.err = e.broken
		e.decided.push(op)
		return
	}
	q := iouring.Request{Op: iouring.Never}
	if op.fault == nil || !op.fault.isLost() {
		q = e.request(op)
	}
	q.Token = e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	e.slots[q.Token] = op
	if !e.ring.Push(q) {
		panic(fmt.Sprintf("blockio: no room in the ring with %d requests of %d", e.ring.InFlight(), len(e.slots)))
	}
	e.note(q.Token)
}

// request returns the request of an operation's next transfer.
func (e *uring) request(op *Op) iouring.Request {
	buf, off := op.rest()
	q := iouring.Request{Op: iouring.Read, FD: op.File.fd, Offset: off, Buf: buf}
	if op.Write {
		q.Op = iouring.Write
	}
	if op.sync {
		q.Op = iouring.Fsync
	} else if i, ok := e.registered(buf); ok {
		q.Index = i
		q.Op = iouring.ReadFixed
		if op.Write {
			q.Op = iouring.WriteFixed
		}
	}
	return q
}

func (e *uring) release(token uint64) *Op {
	op := e.slots[token]
	e.slots[token] = nil
	e.free = append(e.free, token)
	return op
}

// enter passes the ring's queue to the kernel. If the kernel is busy, the reaper tries again at the next completion, or a little later if there
// is none to come. If the kernel refuses permanently, it gets nothing more. Requests that it has are waited for, because it owns their buffers.
func (e *uring) enter(reaper bool) {
	err := e.ring.Enter()
	switch {
	case err == nil:
		e.tries = 0
		return
	case errors.Is(err, iouring.ErrBusy):
		if !reaper || e.ring.InFlight() > e.ring.Queued() {
			return
		}
		if e.tries++; e.tries < busyTries {
			e.pause()
			e.ring.Wake()
			return
		}
		e.tries = 0
	default:
		e.broken = fmt.Errorf("the ring is broken: %w", err)
		e.log.Error("io_uring", "error", err)
	}
	e.ring.Retract(func(token uint64) {
		op := e.release(token)
		op.err = fmt.Errorf("%s: %w", op.where(), err)
		e.decided.push(op)
	})
	e.ring.Wake()
}

// reap is the life of the engine's goroutine.
func (e *uring) reap() {
	defer close(e.joined)
	for !e.ops.end() {
		late := e.ring.Wait()
		e.mu.Lock()
		for ended := 1; ended > 0 || e.decided.n > 0; { // fill may have found more to decide
			ended = e.ring.Reap(e.complete)
			for op := e.decided.pop(); op != nil; op = e.decided.pop() {
				e.ops.finish(op, op.decided())
				ended++
			}
			e.fill()
			e.enter(true)
		}
		if late {
			e.cancelOverdue()
		}
		found := e.lost.takeFound()
		e.mu.Unlock()
		if found > 0 {
			e.log.Warn("io_uring: requests that the kernel did not begin are submitted again", "requests", found)
		}
		e.drive() // for submitters that found the ring locked
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.ring.Close(); err != nil {
		e.log.Error("close io_uring", "error", err)
	}
	e.memory.drop()
}

// complete takes one completion and calls the Done, or submits the rest of a short transfer.
func (e *uring) complete(token uint64, res int32) {
	if token&cancelToken != 0 {
		e.cancelled(res)
		return
	}
	op := e.release(token)
	var errno unix.Errno
	if res < 0 {
		errno, res = unix.Errno(-res), 0
	}
	if isInterruption(errno) {
		errno = unix.EINTR
	}
	if again, err := op.account(int(res), errno); again {
		e.push(op)
	} else {
		e.ops.finish(op, err)
	}
}
