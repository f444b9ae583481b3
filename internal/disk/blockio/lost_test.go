package blockio

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestIsOverdue: the ticks at which a transfer is cancelled that the kernel never ends. At the n-th tick it has been in flight for n-1 to n of them.
// Regression: transfers that began just before a tick were cancelled after half of the time.
func TestIsOverdue(t *testing.T) {
	var at []uint64
	cancels := 0
	for tick := range uint64(300) {
		if isOverdue(tick, cancels) {
			at = append(at, tick)
			cancels++
		}
	}
	if want := []uint64{3, 5, 9, 17, 33, 65, 129, 257}; !slices.Equal(at, want) {
		t.Errorf("cancelled at %v, want %v", at, want)
	}
	if !isOverdue(lostTicks<<maxDoublings+1, 1000) || isOverdue(lostTicks<<maxDoublings, 1000) {
		t.Error("the wait doubles without an end")
	}
}

// lostRing returns a ring of short ticks, and a file of n bytes in memory.
func lostRing(t *testing.T, depth, n int) (*IO, *uring, *File) {
	t.Helper()
	io, e := openRing(t, depth)
	InjectTick(io, time.Millisecond)
	fd, err := unix.MemfdCreate("lost", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := &File{io: io, path: "lost", fd: fd, memAlign: 1, offAlign: 1}
	t.Cleanup(func() { f.Close() })
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		t.Fatal(err)
	}
	return io, e, f
}

// until waits for a condition under the ring's lock.
func (e *uring) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		ok := is()
		e.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func (e *uring) isQuiet() bool {
	return len(e.free) == len(e.slots) && e.ring.InFlight() == 0 && e.lost.cancels == 0 && !e.lost.ticking
}

// TestLostAmongOthers: some of many transfers are lost, up to three times. Each ends once, and afterwards the ring's clock stands still.
func TestLostAmongOthers(t *testing.T) {
	const n, size = 200, 4096
	io, e, f := lostRing(t, 16, n*size)
	mem, err := Alloc(n * size)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(mem)
	for i := range mem {
		mem[i] = byte(i>>12 + i)
	}
	want := bytes.Clone(mem)
	Inject(io, func(n int64, _ *Op) Fault {
		if n%7 != 0 {
			return Fault{}
		}
		return Fault{Lost: int(n % 4), Again: int(n % 3), Short: int(n%2) * 100}
	})
	for _, write := range []bool{true, false} {
		results := make(chan int, 2*n)
		var ops []*Op
		for i := range n {
			ops = append(ops, &Op{File: f, Write: write, Offset: int64(i) * size, Buf: mem[i*size:][:size], Done: func(op *Op, err error) {
				if err != nil || op.Transferred() != size {
					t.Errorf("transfer %d: %d bytes, %v", i, op.Transferred(), err)
				}
				results <- i
			}})
		}
		io.Submit(ops...)
		var ended [n]int
		for range n {
			select {
			case i := <-results:
				ended[i]++
			case <-time.After(20 * time.Second):
				t.Fatal("a transfer never ends")
			}
		}
		for i, times := range ended {
			if times != 1 {
				t.Errorf("transfer %d ended %d times", i, times)
			}
		}
		if write {
			clear(mem)
		}
	}
	if !bytes.Equal(mem, want) {
		t.Error("read back other bytes than were written")
	}
	e.until(t, "the ring's clock does not stop", e.isQuiet)
}

// TestLostSync: a sync that was cancelled counts only if the kernel carries it out afterwards.
func TestLostSync(t *testing.T) {
	io, e, f := lostRing(t, 4, 4096)
	Inject(io, func(int64, *Op) Fault { return Fault{Lost: 2} })
	if err := f.Sync(); err != nil {
		t.Error(err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[1])
	cant := &File{io: io, path: "a pipe", fd: pipe[0], memAlign: 1, offAlign: 1}
	defer cant.Close()
	if err := cant.Sync(); !errors.Is(err, unix.EINVAL) {
		t.Errorf("sync of a pipe: got %v, want the kernel's EINVAL", err)
	}
	e.until(t, "the ring's clock does not stop", e.isQuiet)
	for _, errno := range []unix.Errno{unix.ECANCELED, unix.EINTR, 512, 513, 514, 516} {
		if !isInterruption(errno) {
			t.Errorf("%v ends an operation", errno)
		}
	}
	for _, errno := range []unix.Errno{0, unix.EIO, unix.ENOSPC, unix.EAGAIN, unix.ETIMEDOUT} {
		if isInterruption(errno) {
			t.Errorf("%v is not an interruption", errno)
		}
	}
}

// TestLostWithoutOwner: the waiter of a lost read gives up. The read settles, once, and Close does not hang.
func TestLostWithoutOwner(t *testing.T) {
	io, _, f := lostRing(t, 4, 4096)
	InjectTick(io, 50*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	Inject(io, func(int64, *Op) Fault {
		cancel()
		return Fault{Lost: 1}
	})
	buf := bytes.Repeat([]byte{1}, 4096)
	err := io.Read(ctx, f, 0, buf)
	if late := new(Unfinished); !errors.As(err, &late) {
		t.Fatalf("got %v, want an Unfinished", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- io.Close() }()
	for _, step := range []string{"the read", "Close"} {
		c := Settled(err)
		if step == "Close" {
			done := make(chan struct{})
			go func() { <-closed; close(done) }()
			c = done
		}
		select {
		case <-c:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s does not end", step)
		}
	}
	if buf[0] != 0 {
		t.Error("the read has settled without the bytes of the file")
	}
}

// TestHungIsLeft: a transfer that the kernel can't cancel goes on. There is one cancellation of it at a time, later and later, and other transfers are
// not affected.
func TestHungIsLeft(t *testing.T) {
	io, e, f := lostRing(t, 4, 4096)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[1])
	device := &File{io: io, path: "a pipe", fd: pipe[0], memAlign: 1, offAlign: 1}
	defer device.Close()
	buf := make([]byte, 1)
	result := make(chan error, 2)
	hung := &Op{File: device, Buf: buf, Done: func(_ *Op, err error) { result <- err }}
	e.mu.Lock()
	io.Submit(hung)
	e.fill()
	e.enter(false)
	real := uint64(slices.Index(e.slots, hung))
	other := e.free[0]
	swap := func() { // the kernel has it under a token that no cancellation names
		e.slots[real], e.slots[other] = e.slots[other], e.slots[real]
		e.lost.begun[other] = e.lost.begun[real]
		if i := slices.Index(e.free, other); i >= 0 {
			e.free[i] = real
		} else {
			e.free[slices.Index(e.free, real)] = other
		}
	}
	swap()
	e.mu.Unlock()
	most := 0
	e.until(t, "it is not cancelled", func() bool {
		most = max(most, e.lost.cancels)
		return e.lost.tick >= 40
	})
	if most > 1 {
		t.Errorf("%d cancellations in flight", most)
	}
	e.mu.Lock()
	if age := e.lost.tick - e.lost.begun[other]; hung.cancels < 4 || isOverdue(age/2-1, hung.cancels) || e.lost.found > 0 {
		t.Errorf("cancelled %d times in %d ticks, found %d times", hung.cancels, age, e.lost.found)
	}
	e.mu.Unlock()
	if err := errors.Join(io.Write(t.Context(), f, 0, make([]byte, 4096)), f.Sync()); err != nil {
		t.Error(err)
	}
	select {
	case err := <-result:
		t.Fatalf("the hung transfer has ended: %v", err)
	default:
	}
	e.mu.Lock()
	swap()
	if _, err := unix.Write(pipe[1], []byte{7}); err != nil {
		t.Error(err)
	}
	e.mu.Unlock()
	if err := <-result; err != nil || buf[0] != 7 {
		t.Errorf("got %v, %d", err, buf[0])
	}
	e.until(t, "the ring's clock does not stop", e.isQuiet)
}

// TestCancelIsRefused: the kernel has no memory for cancellations. They give their room back, and a later round succeeds.
func TestCancelIsRefused(t *testing.T) {
	io, e, f := lostRing(t, 4, 4096)
	Inject(io, func(n int64, _ *Op) Fault { return Fault{Lost: 1} })
	refused := 0
	e.mu.Lock()
	e.ring.Interpose(func(submit uint32, kernel func(uint32) (int, unix.Errno)) (int, unix.Errno) {
		switch {
		case e.lost.cancels == 0 || refused == 3:
			return kernel(submit)
		case refused == 1 && submit > 1:
			refused++
			return kernel(1)
		}
		refused++
		return -1, unix.EAGAIN
	})
	e.mu.Unlock()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			if err := io.Read(t.Context(), f, int64(i)*1024, make([]byte, 1024)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	e.until(t, "the ring's clock does not stop", e.isQuiet)
	if refused < 2 {
		t.Errorf("%d cancellations were refused", refused)
	}
}
