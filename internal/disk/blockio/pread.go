package blockio

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// pool is the engine that works everywhere: up to depth goroutines for each direction, each with one pread or pwrite at a time. They start
// when operations arrive, and end at close.
type pool struct {
	ops  *backlog
	cond *sync.Cond // on ops.mu: there is an operation to take, or the engine must end

	workers, idle int // guarded by ops.mu
	joined        sync.WaitGroup
}

func newPool(ops *backlog) *pool {
	p := &pool{ops: ops, cond: sync.NewCond(&ops.mu)}
	ops.kick = p.kick
	return p
}

func (p *pool) name() string { return "pread" }

func (p *pool) kick(ready int) {
	if p.ops.closing && p.ops.idleLocked() {
		p.ops.ended = p.workers == 0
		p.cond.Broadcast()
		return
	}
	for range min(ready, p.idle) {
		p.cond.Signal()
	}
	for n := ready - p.idle; n > 0 && p.workers < int(directions)*p.ops.depth; n-- {
		p.workers++
		p.joined.Add(1)
		go p.work()
	}
}

func (p *pool) work() {
	defer p.joined.Done()
	for op := p.take(); op != nil; op = p.take() {
		p.ops.finish(op, carryOut(op))
	}
}

// take waits for an operation; nil ends the worker.
func (p *pool) take() *Op {
	b := p.ops
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		if op := b.takeLocked(); op != nil {
			return op
		}
		if b.closing && b.idleLocked() {
			p.workers--
			b.ended = p.workers == 0
			return nil
		}
		p.idle++
		p.cond.Wait()
		p.idle--
	}
}

func carryOut(op *Op) error {
	if err := op.decided(); err != nil {
		return err
	}
	for !op.isEmpty() {
		buf, off := op.rest()
		var n int
		var err error
		switch {
		case op.sync:
			err = unix.Fdatasync(op.File.fd)
		case op.Write:
			n, err = unix.Pwrite(op.File.fd, buf, off)
		default:
			n, err = unix.Pread(op.File.fd, buf, off)
		}
		var errno unix.Errno
		if err != nil && !errors.As(err, &errno) {
			return err
		}
		if again, err := op.account(max(n, 0), errno); !again {
			return err
		}
	}
	return nil
}

func (p *pool) register([]byte, bool) error { return nil }
func (p *pool) unregister([]byte) error     { return nil }

func (p *pool) close() { p.joined.Wait() }
