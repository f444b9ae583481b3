package iouring

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"lcache/internal/testenv"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m))
}

// newRing makes a ring for the test's goroutine, or skips where there is none.
func newRing(t testing.TB, inFlight int) *Ring {
	t.Helper()
	r, err := New(inFlight)
	var none *UnavailableError
	if errors.As(err, &none) {
		t.Skip(none)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.fd < 0 {
			return
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func newMem(t testing.TB, n int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return b
}

// one carries out one request and returns its result.
func one(t testing.TB, r *Ring, q Request) int32 {
	t.Helper()
	q.Token = 77
	if !r.Push(q) {
		t.Fatal("no room for one request")
	}
	var got int32
	finish(t, r, 1, func(token uint64, res int32) {
		if token != 77 {
			t.Errorf("token %d came back", token)
		}
		got = res
	})
	return got
}

// finish enters and reaps until n requests, or more, have come back.
func finish(t testing.TB, r *Ring, n int, f func(token uint64, res int32)) {
	t.Helper()
	for {
		if err := r.Enter(); err != nil && err != ErrBusy {
			t.Fatal(err)
		}
		if n -= r.Reap(f); n <= 0 {
			return
		}
		r.Wait()
	}
}

func TestLayout(t *testing.T) {
	for _, c := range []struct {
		what      string
		got, want uintptr
	}{
		{"submission entry", unsafe.Sizeof(sqe{}), 64},
		{"its token", unsafe.Offsetof(sqe{}.token), 32},
		{"its buffer index", unsafe.Offsetof(sqe{}.bufIndex), 40},
		{"completion entry", unsafe.Sizeof(cqe{}), 16},
		{"parameters", unsafe.Sizeof(params{}), 120},
		{"their completion offsets", unsafe.Offsetof(params{}.cq), 80},
		{"buffer update", unsafe.Sizeof(bufferUpdate{}), 32},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, the kernel has %d", c.what, c.got, c.want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, n := range []int{-1, 0, maxInFlight + 1} {
		if r, err := New(n); err == nil {
			r.Close()
			t.Errorf("a ring of %d was made", n)
		}
	}
}

func TestTransfers(t *testing.T) {
	r := newRing(t, 4)
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "file"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	mem := newMem(t, 3*4096)
	if err := r.ReserveBuffers(8); err != nil {
		t.Skip(err)
	}
	if err := r.SetBuffer(5, mem); err != nil {
		t.Skip(err)
	}
	out, in := mem[:4096], mem[4096:8192]
	for i, c := range []struct{ write, read Opcode }{{Write, Read}, {WriteFixed, ReadFixed}, {WriteFixed, Read}, {Write, ReadFixed}} {
		for j := range out {
			out[j] = byte(i + j*3)
		}
		clear(in)
		off := int64(i) * 4096
		if n := one(t, r, Request{Op: c.write, FD: fd, Offset: off, Buf: out, Index: 5}); n != 4096 {
			t.Errorf("opcode %d: %d, want 4096", c.write, n)
		}
		if n := one(t, r, Request{Op: Fsync, FD: fd}); n != 0 {
			t.Errorf("fsync: %d", n)
		}
		if n := one(t, r, Request{Op: c.read, FD: fd, Offset: off, Buf: in, Index: 5}); n != 4096 {
			t.Errorf("opcode %d: %d, want 4096", c.read, n)
		}
		if !bytes.Equal(in, out) {
			t.Errorf("opcodes %d, %d: other bytes came back", c.write, c.read)
		}
	}
	for _, c := range []struct {
		what string
		q    Request
		want int32
	}{
		{"no-op", Request{Op: Nop}, 0},
		{"end of file", Request{Op: Read, FD: fd, Offset: 1 << 20, Buf: in}, 0},
		{"short read", Request{Op: Read, FD: fd, Offset: 3*4096 + 4000, Buf: in}, 96},
		{"bad descriptor", Request{Op: Read, FD: 1 << 20, Buf: in}, -int32(unix.EBADF)},
		{"empty index", Request{Op: ReadFixed, FD: fd, Buf: in, Index: 4}, -int32(unix.EFAULT)},
		{"no such index", Request{Op: ReadFixed, FD: fd, Buf: in, Index: 8}, -int32(unix.EFAULT)},
	} {
		if n := one(t, r, c.q); n != c.want {
			t.Errorf("%s: %d, want %d", c.what, n, c.want)
		}
	}
	if err := r.SetBuffer(5, nil); err != nil {
		t.Fatal(err)
	}
	if n := one(t, r, Request{Op: ReadFixed, FD: fd, Buf: in, Index: 5}); n != -int32(unix.EFAULT) {
		t.Errorf("read into a buffer taken back: %d, want EFAULT", n)
	}
}

// TestEachOnce goes many times round both queues, as full as they get.
func TestEachOnce(t *testing.T) {
	r := newRing(t, 7)
	const total = 5000
	var came [total]int
	for next, done := 0, 0; done < total; {
		for next < total && r.Push(Request{Op: Nop, Token: uint64(next)}) {
			next++
		}
		if r.InFlight() != next-done || r.InFlight() > len(r.cqes) {
			t.Fatalf("%d in flight after %d pushed and %d reaped, with %d places", r.InFlight(), next, done, len(r.cqes))
		}
		finish(t, r, 1, func(token uint64, res int32) {
			done++
			came[token]++
			if res != 0 {
				t.Errorf("no-op %d: %d", token, res)
			}
		})
	}
	for token, n := range came {
		if n != 1 {
			t.Fatalf("token %d came %d times", token, n)
		}
	}
}

func TestPushRefusesWhenFull(t *testing.T) {
	r := newRing(t, 4)
	p := newPipe(t)
	mem := newMem(t, 4096)
	// Reads of an empty pipe stay in flight, so that the completion queue is what fills up in the end.
	n := 0
	for {
		for r.Push(Request{Op: Read, FD: p.r, Buf: mem[n : n+1], Offset: -1, Token: uint64(n)}) {
			n++
		}
		if r.InFlight() == len(r.cqes) {
			break
		}
		if err := r.Enter(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Enter(); err != nil {
		t.Fatal(err)
	}
	if r.Push(Request{Op: Nop}) {
		t.Fatal("a request was taken whose completion may have no place")
	}
	p.write(t, n)
	finish(t, r, n, func(token uint64, res int32) {
		if res != 1 {
			t.Errorf("read %d: %d, want 1 byte", token, res)
		}
	})
	if r.InFlight() != 0 || n != len(r.cqes) {
		t.Errorf("%d of %d in flight, with %d places", r.InFlight(), n, len(r.cqes))
	}
}

type pipe struct{ r, w int }

func newPipe(t *testing.T) pipe {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return pipe{fds[0], fds[1]}
}

func (p pipe) write(t *testing.T, n int) {
	if got, err := unix.Write(p.w, make([]byte, n)); got != n || err != nil {
		t.Errorf("write %d bytes to a pipe: %d, %v", n, got, err)
	}
}

func TestWake(t *testing.T) {
	r := newRing(t, 2)
	r.Wake() // before the wait
	for range 100 {
		r.Wait()
		if n := r.Reap(func(uint64, int32) {}); n != 0 || r.InFlight() != 0 {
			t.Fatalf("a wake-up was reaped as %d requests, %d in flight", n, r.InFlight())
		}
		joined := make(chan struct{})
		go func() { r.Wake(); close(joined) }()
		<-joined
	}
}

// TestCloseDrains closes a ring while a read of a pipe is in flight: after Close its byte must be there. A request that the kernel
// never got is dropped.
func TestCloseDrains(t *testing.T) {
	r := newRing(t, 2)
	p := newPipe(t)
	mem := newMem(t, 4096)
	mem[0] = 9
	for range 2 {
		if !r.Push(Request{Op: Read, FD: p.r, Buf: mem[:1], Offset: -1}) {
			t.Fatal("no room")
		}
	}
	r.Interpose(func(_ uint32, kernel func(uint32) (int, unix.Errno)) (int, unix.Errno) {
		if r.Queued() < 2 {
			return -1, unix.EBUSY
		}
		return kernel(1)
	})
	if err := r.Enter(); err != ErrBusy {
		t.Fatalf("got %v, want busy", err)
	}
	go p.write(t, 1)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if mem[0] != 0 || r.InFlight() != 0 {
		t.Errorf("after Close the byte is %d, want 0 from the pipe; %d in flight", mem[0], r.InFlight())
	}
}

// TestTrouble puts answers between ring and kernel, and expects all requests to end all the same.
func TestTrouble(t *testing.T) {
	const n = 6
	type answer func(submit uint32, kernel func(uint32) (int, unix.Errno)) (int, unix.Errno)
	fail := func(e unix.Errno) answer {
		return func(uint32, func(uint32) (int, unix.Errno)) (int, unix.Errno) { return -1, e }
	}
	partly := func(submit uint32, kernel func(uint32) (int, unix.Errno)) (int, unix.Errno) { return kernel(1) }
	for _, c := range []struct {
		name    string
		answers []answer
		busy    int // how often Enter must say so
	}{
		{"EINTR", []answer{fail(unix.EINTR), fail(unix.EINTR)}, 0},
		{"EAGAIN", []answer{fail(unix.EAGAIN), fail(unix.EAGAIN), fail(unix.EAGAIN)}, 3},
		{"EBUSY", []answer{fail(unix.EBUSY)}, 1},
		{"partial", []answer{partly, partly, partly}, 0},
		{"partial, then EAGAIN", []answer{partly, fail(unix.EAGAIN)}, 1},
		{"partial, then EINTR", []answer{partly, fail(unix.EINTR), partly}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRing(t, n)
			left := c.answers
			r.Interpose(func(submit uint32, kernel func(uint32) (int, unix.Errno)) (int, unix.Errno) {
				if len(left) == 0 {
					return kernel(submit)
				}
				a := left[0]
				left = left[1:]
				return a(submit, kernel)
			})
			for i := range n {
				if !r.Push(Request{Op: Nop, Token: uint64(i)}) {
					t.Fatal("no room")
				}
			}
			busy := 0
			for r.Queued() > 0 {
				if err := r.Enter(); err == ErrBusy {
					busy++
				} else if err != nil {
					t.Fatal(err)
				}
			}
			var came [n]int
			finish(t, r, n, func(token uint64, _ int32) { came[token]++ })
			if came != [n]int{1, 1, 1, 1, 1, 1} || len(left) > 0 || busy != c.busy {
				t.Errorf("requests came %v times, %d answers were not asked for, busy %d times, want %d", came, len(left), busy, c.busy)
			}
		})
	}
}

// TestRetract lets the kernel refuse, takes the requests back and goes on when it works again.
func TestRetract(t *testing.T) {
	for _, c := range []struct {
		errno unix.Errno
		want  error
	}{{unix.EAGAIN, ErrBusy}, {unix.EBUSY, ErrBusy}, {unix.EFAULT, unix.EFAULT}} {
		r := newRing(t, 4)
		for round := range 3 {
			r.Interpose(func(uint32, func(uint32) (int, unix.Errno)) (int, unix.Errno) { return -1, c.errno })
			for i := range 3 {
				r.Push(Request{Op: Nop, Token: uint64(i)})
			}
			if err := r.Enter(); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			back := 0
			r.Retract(func(token uint64) {
				if token != uint64(back) {
					t.Errorf("token %d came back, want %d", token, back)
				}
				back++
			})
			if back != 3 || r.InFlight() != 0 || r.Queued() != 0 {
				t.Errorf("round %d: %d came back, %d are in flight", round, back, r.InFlight())
			}
			r.Interpose(func(submit uint32, kernel func(uint32) (int, unix.Errno)) (int, unix.Errno) { return kernel(submit) })
			if n := one(t, r, Request{Op: Nop}); n != 0 {
				t.Errorf("no-op afterwards: %d", n)
			}
		}
	}
}

// BenchmarkNop measures the cost of a request without any device: at depth 1, and 32 with one system call.
func BenchmarkNop(b *testing.B) {
	for _, depth := range []int{1, 32} {
		b.Run(map[int]string{1: "depth=1", 32: "depth=32"}[depth], func(b *testing.B) {
			r := newRing(b, depth)
			for i := 0; i < b.N; i += depth {
				for range depth {
					r.Push(Request{Op: Nop})
				}
				finish(b, r, depth, func(uint64, int32) {})
			}
		})
	}
}

// TestCancel cancels requests that wait, one that there is none of, and one that is no target.
func TestCancel(t *testing.T) {
	r := newRing(t, 4)
	p := newPipe(t)
	mem := newMem(t, 4096)
	got := map[uint64]int32{}
	take := func(token uint64, res int32) {
		if _, twice := got[token]; twice {
			t.Errorf("token %d came twice", token)
		}
		got[token] = res
	}
	r.Push(Request{Op: Never, Token: 1})
	r.Push(Request{Op: Read, FD: p.r, Buf: mem[:1], Offset: -1, Token: 2})
	r.Push(Request{Op: Read, FD: p.r, Buf: mem[1:2], Offset: -1, Token: 3})
	if err := r.Enter(); err != nil {
		t.Fatal(err)
	}
	for i, target := range []uint64{1, 2, 77} {
		r.Push(Request{Op: Cancel, Token: 10 + uint64(i), Target: target})
	}
	finish(t, r, 1, take)
	for len(got) < 5 {
		finish(t, r, 1, take)
	}
	for token, want := range map[uint64]int32{1: -int32(unix.ECANCELED), 2: -int32(unix.ECANCELED), 10: 0, 11: 0, 12: -int32(unix.ENOENT)} {
		if got[token] != want {
			t.Errorf("token %d: %d, want %d", token, got[token], want)
		}
	}
	p.write(t, 1)
	finish(t, r, 1, take)
	if got[3] != 1 || r.InFlight() != 0 {
		t.Errorf("the read that was not cancelled: %d, %d in flight", got[3], r.InFlight())
	}
}

func TestWakeAt(t *testing.T) {
	r := newRing(t, 2)
	r.WakeAt(time.Now().Add(time.Hour))
	r.Wake()
	if r.Wait() {
		t.Error("an hour has passed")
	}
	r.WakeAt(time.Now().Add(time.Millisecond))
	for range 2 { // it stays so
		if !r.Wait() {
			t.Error("the time has not passed")
		}
	}
	r.Wake() // is not lost
	r.WakeAt(time.Time{})
	if r.Wait() {
		t.Error("there is no time")
	}
	r.WakeAt(time.Now().Add(-time.Second))
	r.Push(Request{Op: Never}) // Close drops it: the kernel never had it
}
