package blockio

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Fault is an injected fault of one operation. The zero value has no effect. All fields except Err act below the engine's handling of short
// and interrupted transfers, so that this handling is tested too.
type Fault struct {
	Err       error           // the operation ends with it, before the kernel is asked (after Hold)
	Hold      <-chan struct{} // nothing happens before it is closed: a hung or late device. The operation is in flight meanwhile
	Lost      int             // how often the kernel loses the transfer: it never completes, unless the ring cancels it. Without a ring it has no effect
	Again     int             // how many answers of the kernel become EAGAIN
	Short     int             // the first transfer is cut to this many bytes, at least one unit of alignment, and the rest is continued
	Torn      int             // only this many bytes (rounded down to alignment, at least one unit) are moved, yet all are reported as done
	Misplace  int64           // the transfer happens this many bytes from its offset
	Flip      int             // the bit Flip-1 of Buf is inverted after a read
	shortened bool
	torn      bool
}

type injector struct {
	decide func(n int64, op *Op) Fault
	n      atomic.Int64
}

// Inject calls f for every operation submitted from now on, with n from 0, and applies the Fault that f returns. It is for tests, also of
// other packages. f is called inside Submit, concurrently if Submit is, and must not keep op. It is also called for the Sync of a file, with
// an op whose Buf is nil and whose Write is set; only Err, Hold, Lost and Again of its Fault have an effect. A nil f ends the injection.
func Inject(io *IO, f func(n int64, op *Op) Fault) {
	if f == nil {
		io.inject.Store(nil)
		return
	}
	io.inject.Store(&injector{decide: f})
}

type plainInjector struct {
	decide func(n int64, path, step string) Fault
	n      atomic.Int64
}

// InjectPlain is Inject for files that are changed without this package, such as journals. f is called before each step, with the file's path
// and the step ("write", "truncate", "sync", "create", "rename", "remove"). Only Err and Hold of its Fault have an effect. A nil f ends it.
func InjectPlain(io *IO, f func(n int64, path, step string) Fault) {
	if f == nil {
		io.plain.Store(nil)
		return
	}
	io.plain.Store(&plainInjector{decide: f})
}

// Plain is called before such a step. A non-nil error means that the step has failed; without an injected fault it is nil.
func (io *IO) Plain(path, step string) error {
	i := io.plain.Load()
	if i == nil {
		return nil
	}
	f := i.decide(i.n.Add(1)-1, path, step)
	if f.Hold != nil {
		<-f.Hold
	}
	return f.Err
}

func (i *injector) apply(op *Op) {
	f := i.decide(i.n.Add(1)-1, op)
	if f == (Fault{}) {
		return
	}
	op.fault = &f
}

// isLost reports whether the kernel loses the next transfer.
func (f *Fault) isLost() bool {
	f.Lost--
	return f.Lost >= 0
}

// InjectTick sets how often a ring looks for transfers that the kernel has lost. It is for tests, also of other packages.
func InjectTick(io *IO, every time.Duration) {
	if e, ok := io.engine.(*uring); ok {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.lost.every = every
		if e.lost.ticking {
			e.ring.WakeAt(time.Now().Add(every))
		}
	}
}

// changeRequest changes the request to the kernel.
func (f *Fault) changeRequest(op *Op, buf []byte, off int64) ([]byte, int64) {
	if op.sync {
		return buf, off
	}
	off += f.Misplace
	cut := f.Short
	if f.Torn > 0 {
		cut, f.torn = f.Torn, true
	}
	if cut > 0 && !f.shortened && f.Again == 0 {
		f.shortened = true
		unit := max(op.File.offAlign, op.File.memAlign)
		cut = max(cut-cut%unit, unit)
		buf = buf[:min(cut, len(buf))]
	}
	return buf, off
}

// answer changes the kernel's answer.
func (f *Fault) answer(n int, errno unix.Errno) (int, unix.Errno) {
	if f.Again > 0 {
		f.Again--
		return 0, unix.EAGAIN
	}
	if f.torn && errno == 0 {
		return 1 << 62, 0
	}
	return n, errno
}

// changeBytes changes the bytes of a read.
func (f *Fault) changeBytes(op *Op) {
	if bit := f.Flip - 1; bit >= 0 && !op.Write && bit/8 < len(op.Buf) {
		op.Buf[bit/8] ^= 1 << (bit % 8)
	}
}
