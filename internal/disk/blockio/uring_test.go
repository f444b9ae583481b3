package blockio

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lcache/iouring"
)

func openRing(t *testing.T, depth int) (*IO, *uring) {
	t.Helper()
	io, err := Open(Options{Engine: "uring", Depth: depth})
	var none *iouring.UnavailableError
	if errors.As(err, &none) {
		t.Skip(none)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { io.Close() })
	return io, io.engine.(*uring)
}

// interpose sets the ring's next answers. After these, the kernel answers.
func interpose(e *uring, answers ...unix.Errno) (left func() int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ring.Interpose(func(submit uint32, kernel func(uint32) (int, unix.Errno)) (int, unix.Errno) {
		if len(answers) == 0 {
			return kernel(submit)
		}
		errno := answers[0]
		answers = answers[1:]
		if errno == 0 {
			return kernel(1)
		}
		return -1, errno
	})
	return func() int {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(answers)
	}
}

func repeat(errno unix.Errno, n int) []unix.Errno {
	list := make([]unix.Errno, n)
	for i := range list {
		list[i] = errno
	}
	return list
}

// TestRingTrouble lets the kernel return all kinds of errors while more operations are submitted than the depth.
func TestRingTrouble(t *testing.T) {
	const n, size = 40, 4096
	for _, c := range []struct {
		name    string
		answers []unix.Errno
		want    error // of at least one operation, and of no other kind
	}{
		{"partial and interrupted", []unix.Errno{0, unix.EINTR, 0, 0, unix.EINTR}, nil},
		{"busy at first", repeat(unix.EAGAIN, 5), nil},
		{"busy between", []unix.Errno{0, unix.EBUSY, 0, unix.EAGAIN, unix.EAGAIN}, nil},
		{"busy for long", repeat(unix.EAGAIN, busyTries+n), iouring.ErrBusy},
		{"broken", repeat(unix.EBADFD, 1), unix.EBADFD},
	} {
		t.Run(c.name, func(t *testing.T) {
			io, e := openRing(t, 8)
			e.pause = func() {}
			f, err := io.OpenFile(filepath.Join(t.TempDir(), "file"), true)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			mem, err := Alloc(n * size)
			if err != nil {
				t.Fatal(err)
			}
			defer Free(mem)
			for i := range mem {
				mem[i] = byte(i>>12 + i)
			}
			results := make(chan error, 2*n)
			left := interpose(e, c.answers...)
			for i := range n {
				io.Submit(&Op{File: f, Write: true, Offset: int64(i) * size, Buf: mem[i*size:][:size],
					Done: func(_ *Op, err error) { results <- err }})
			}
			failed := 0
			for range n {
				if err := <-results; err != nil {
					failed++
					if !errors.Is(err, c.want) || c.want == nil {
						t.Errorf("got %v, want %v", err, c.want)
					}
				}
			}
			// Submit also asks, without counting, so the number of used "busy for long" answers differs.
			if (failed > 0) != (c.want != nil) || c.want == nil && left() > 0 {
				t.Errorf("%d operations failed, %d answers were not asked for", failed, left())
			}
			if c.want == unix.EBADFD {
				if err := io.Read(context.Background(), f, 0, mem); !errors.Is(err, unix.EBADFD) {
					t.Errorf("read through a broken ring: %v", err)
				}
				return
			}
			got, err := Alloc(n * size)
			if err != nil {
				t.Fatal(err)
			}
			defer Free(got)
			ctx := context.Background()
			if err := errors.Join(io.Write(ctx, f, 0, mem), io.Read(ctx, f, 0, got)); err != nil || !bytes.Equal(got, mem) {
				t.Errorf("afterwards: %v, or other bytes came back", err)
			}
		})
	}
}

// TestNoOperationIsForgotten submits at the worst time: after the holder of the ring's lock has looked for work. Submit
// must return, and the operation must complete without another one.
func TestNoOperationIsForgotten(t *testing.T) {
	io, e := openRing(t, 4)
	f, err := io.OpenFile(filepath.Join(t.TempDir(), "file"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Allocate(4096); err != nil {
		t.Fatal(err)
	}
	mem, err := Alloc(2 * 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer Free(mem)
	first, second := make(chan error, 1), make(chan error, 1)
	e.pause = func() {}
	calls := 0
	e.mu.Lock()
	e.ring.Interpose(func(submit uint32, kernel func(uint32) (int, unix.Errno)) (int, unix.Errno) {
		switch calls++; calls {
		case 1:
			return -1, unix.EAGAIN // in Submit: the reaper must try again
		case 2:
			back := make(chan struct{})
			go func() {
				defer close(back)
				io.Submit(&Op{File: f, Buf: mem[4096:], Done: func(_ *Op, err error) { second <- err }})
			}()
			<-back
			e.ring.Retract(func(token uint64) { // nothing is left that could bring a completion
				e.decided.push(e.release(token))
			})
			return 0, 0
		}
		return kernel(submit)
	})
	e.mu.Unlock()
	io.Submit(&Op{File: f, Buf: mem[:4096], Done: func(_ *Op, err error) { first <- err }})
	select {
	case err := <-second:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the operation was forgotten")
	}
	io.Submit(&Op{File: f, Buf: mem[4096:], Done: func(_ *Op, err error) { second <- err }}) // wakes the reaper
	for _, c := range []chan error{second, first} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
}

func TestFixedIsUsed(t *testing.T) {
	io, e := openRing(t, 4)
	mem, err := Alloc(64 << 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := io.Register(mem); err != nil {
		t.Fatal(err)
	}
	if io.Name() != "io_uring" {
		t.Skipf("memory can't be registered here: %s", io.Reason())
	}
	if _, ok := e.memory.find(mem[4096:8192]); !ok {
		t.Error("registered memory is not found")
	}
	if err := io.Register(mem[:4096]); !errors.Is(err, errOverlap) {
		t.Errorf("registered twice: %v", err)
	}
	if err := errors.Join(io.Unregister(mem), Free(mem)); err != nil {
		t.Error(err)
	}
}

// TestRegisteredOnUse: memory that is registered on use is pinned part by part, when a transfer in a part begins.
// Across two parts, or if the kernel refuses, I/O continues without registration.
func TestRegisteredOnUse(t *testing.T) {
	if !mayLock() {
		t.Skip("memory is registered at once here: locked memory is limited")
	}
	io, e := openRing(t, 4)
	const parts = 4
	mem, err := Alloc(parts * hugePage)
	if err != nil {
		t.Fatal(err)
	}
	if err := io.RegisterOnUse(mem); err != nil {
		t.Fatal(err)
	}
	f, err := io.OpenFile(filepath.Join(t.TempDir(), "f"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pinned := func() (n int64) {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, r := range e.regions {
			n += int64(r.hi - r.lo)
		}
		return n
	}
	transfer := func(from, to int, write bool) {
		t.Helper()
		op := io.Read
		if write {
			op = io.Write
		}
		if err := op(t.Context(), f, int64(from), mem[from:to]); err != nil {
			t.Fatal(err)
		}
	}
	if n := pinned(); n != 0 {
		t.Errorf("%d bytes are pinned before anything is read", n)
	}
	for i := range mem {
		mem[i] = byte(i / 4096)
	}
	want := bytes.Clone(mem)
	transfer(0, hugePage, true)
	transfer(4096, 8192, false)
	if n := pinned(); n != hugePage {
		t.Errorf("%d bytes are pinned, want one part of %d", n, hugePage)
	}
	transfer(hugePage-4096, hugePage+4096, true)
	if n := pinned(); n != hugePage {
		t.Errorf("%d bytes are pinned after a write across two parts, want %d as before", n, hugePage)
	}
	if err := io.Register(mem[hugePage : 2*hugePage]); !errors.Is(err, errOverlap) {
		t.Errorf("registered once more: %v", err)
	}
	e.mu.Lock()
	set := e.ring.SetBuffer
	_, ok, err := e.memory.use(mem[2*hugePage:][:4096], func(int, []byte) error { return unix.ENOMEM })
	if ok || err != unix.ENOMEM {
		t.Errorf("a part that the kernel refuses: got %v, %v", ok, err)
	}
	if _, ok, err := e.memory.use(mem[3*hugePage:][:4096], set); ok || err != nil {
		t.Errorf("the part after one that was refused: got %v, %v, want to go on without", ok, err)
	}
	e.mu.Unlock()
	transfer(hugePage, parts*hugePage, true)
	clear(mem)
	transfer(0, parts*hugePage, false)
	if !bytes.Equal(mem, want) {
		t.Error("read back other bytes than were written")
	}
	if err := errors.Join(io.Unregister(mem), Free(mem)); err != nil {
		t.Error(err)
	}
	if n := pinned(); n != 0 {
		t.Errorf("%d bytes are pinned after all is given back", n)
	}
}

// TestUnits checks the size of a unit that is registered at once.
func TestUnits(t *testing.T) {
	for _, c := range []struct{ bytes, unit int }{{1, 2 << 20}, {32 << 20, 2 << 20}, {46 << 20, 4 << 20}, {400 << 20, 16 << 20}, {4 << 30, 16 << 20}, {8 << 30, 32 << 20}, {1 << 40, 1 << 30}} {
		if got := unitOf(c.bytes); got != c.unit {
			t.Errorf("%d bytes: units of %d, want %d", c.bytes, got, c.unit)
		}
	}
}
