package blockio

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"lcache/iouring"
)

// uring is the engine on an io_uring. One goroutine, locked to its thread, owns the ring: it takes from the backlog what has
// come since, submits all of it with the system call that also waits, and calls the Dones. Submit wakes it only if it sleeps in the
// kernel with room for more; at full depth the next completion does.
type uring struct {
	ops    *backlog
	log    *slog.Logger
	asleep atomic.Bool // set under ops.mu before the owner goes to wait; whoever clears it wakes
	joined chan struct{}

	commands []func() // for the owner; guarded by ops.mu

	// The fields that follow are the owner's.
	ring   *iouring.Ring
	taken  []*Op
	slots  []*Op // by token: what the kernel has
	free   []uint64
	broken error

	memory
}

// startRing returns when the ring works, or with the reason why there is none.
func startRing(ops *backlog, log *slog.Logger) (*uring, error) {
	e := &uring{ops: ops, log: log, joined: make(chan struct{}), slots: make([]*Op, ops.depth)}
	for i := range e.slots {
		e.free = append(e.free, uint64(i))
	}
	ops.kick = e.kick
	started := make(chan error)
	go e.own(started)
	if err := <-started; err != nil {
		<-e.joined
		return nil, err
	}
	return e, nil
}

func (e *uring) name() string { return "io_uring" + e.memory.suffix() }

// kick is called with ops.mu held, which also keeps the ring open during Wake.
func (e *uring) kick(int) {
	if e.asleep.CompareAndSwap(true, false) {
		e.ring.Wake()
	}
}

func (e *uring) close() { <-e.joined }

// own is the owner's life.
func (e *uring) own(started chan<- error) {
	defer close(e.joined)
	ring, err := iouring.New(e.ops.depth)
	if err != nil {
		started <- err
		return
	}
	e.ring = ring
	if err := ring.ReserveBuffers(maxRegions); err != nil {
		e.memory.fail(err)
	}
	started <- nil
	for e.round() {
	}
	if err := ring.Close(); err != nil {
		e.log.Error("close io_uring", "error", err)
	}
}

// round takes, submits, waits and completes once. False ends the owner.
func (e *uring) round() bool {
	commands, decided, more := e.take()
	if !more {
		return false
	}
	for _, c := range commands {
		c()
	}
	for i, op := range e.taken {
		if err := op.decided(); err != nil || len(op.Buf) == 0 {
			e.ops.finish(op, err)
		} else {
			e.push(op)
		}
		e.taken[i] = nil
	}
	err := e.ring.Enter(!decided && len(commands) == 0)
	e.asleep.Store(false)
	e.ring.Reap(e.complete)
	if err != nil {
		e.recover(err)
	}
	return true
}

// take fills e.taken. Unless there are commands or operations to end at once, which may bring more work, the owner will sleep.
func (e *uring) take() (commands []func(), decided, more bool) {
	b := e.ops
	b.mu.Lock()
	defer b.mu.Unlock()
	commands, e.commands = e.commands, nil
	e.taken = e.taken[:0]
	for op := b.takeLocked(); op != nil; op = b.takeLocked() {
		e.taken = append(e.taken, op)
		decided = decided || op.decided() != nil || len(op.Buf) == 0
	}
	if b.closing && b.idleLocked() && len(commands) == 0 {
		b.ended = true
		return nil, false, false
	}
	e.asleep.Store(!decided && len(commands) == 0)
	return commands, decided, true
}

// push gives an operation's next transfer to the ring. There is always room: no more than depth are active, and the ring was
// made for so many.
func (e *uring) push(op *Op) {
	if e.broken != nil {
		e.ops.finish(op, e.broken)
		return
	}
	buf, off := op.rest()
	q := iouring.Request{Op: iouring.Read, FD: op.File.fd, Offset: off, Buf: buf}
	if op.Write {
		q.Op = iouring.Write
	}
	if i, ok := e.memory.find(buf); ok {
		q.Index = i
		q.Op = iouring.ReadFixed
		if op.Write {
			q.Op = iouring.WriteFixed
		}
	}
	q.Token = e.free[len(e.free)-1]
	e.free = e.free[:len(e.free)-1]
	e.slots[q.Token] = op
	if !e.ring.Push(q) {
		panic(fmt.Sprintf("blockio: no room in the ring with %d requests of %d", e.ring.InFlight(), e.ops.depth))
	}
}

func (e *uring) release(token uint64) *Op {
	op := e.slots[token]
	e.slots[token] = nil
	e.free = append(e.free, token)
	return op
}

func (e *uring) complete(token uint64, res int32) {
	op := e.release(token)
	var errno unix.Errno
	if res < 0 {
		errno, res = unix.Errno(-res), 0
	}
	if again, err := op.account(int(res), errno); again {
		e.push(op)
	} else {
		e.ops.finish(op, err)
	}
}

// recover deals with a kernel that takes no more requests. What it has not taken ends with the error, and so does all that
// comes later; what it has is waited for, since its buffers are the kernel's.
func (e *uring) recover(err error) {
	if !errors.Is(err, iouring.ErrBusy) && e.broken == nil {
		e.broken = fmt.Errorf("the ring is broken: %w", err)
		e.log.Error("io_uring", "error", err)
	}
	e.ring.Retract(func(token uint64) {
		op := e.release(token)
		e.ops.finish(op, fmt.Errorf("%s: %w", op.where(), err))
	})
	if e.broken != nil {
		time.Sleep(brokenPause)
	}
	runtime.Gosched()
}

const brokenPause = 10 * time.Millisecond

// do runs f on the owner's goroutine and waits for it. It must not be called from a Done.
func (e *uring) do(f func() error) error {
	result := make(chan error, 1)
	e.ops.mu.Lock()
	if e.ops.closing {
		e.ops.mu.Unlock()
		return ErrClosed
	}
	e.commands = append(e.commands, func() { result <- f() })
	e.kick(0)
	e.ops.mu.Unlock()
	return <-result
}
