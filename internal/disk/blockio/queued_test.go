package blockio

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"lcache/iouring"
)

// TestQueuedInTheKernel lets a transfer wait for a worker thread of the kernel that does not come: the only one opens a FIFO that has no writer. It
// must end nevertheless, by another thread's workers.
func TestQueuedInTheKernel(t *testing.T) {
	for _, c := range []struct {
		name string
		op   Op
	}{{"read", Op{}}, {"write", Op{Write: true}}, {"sync", Op{Write: true, sync: true}}} {
		t.Run(c.name, func(t *testing.T) {
			io, e, f := lostRing(t, 4, 4096)
			c.op.File = f
			done := make(chan string)
			go func() {
				runtime.LockOSThread() // for good: the thread ends, and with it the limit of its workers
				var skip string
				defer func() { done <- skip }()
				skip = testQueuedInTheKernel(t, io, e, c.op)
			}()
			if skip := <-done; skip != "" {
				t.Skip(skip)
			}
		})
	}
}

// openFIFO has O_CREAT, because the kernel opens such a file on a worker thread. It is not on a stack, which may move.
var openFIFO = unix.OpenHow{Flags: unix.O_CREAT | unix.O_CLOEXEC, Mode: 0o600}

func testQueuedInTheKernel(t *testing.T, io *IO, e *uring, op Op) (skip string) {
	var log bytes.Buffer
	e.log = slog.New(slog.NewTextHandler(&log, nil))
	var params [120]byte
	other, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if errno != 0 {
		t.Error(errno)
		return ""
	}
	defer unix.Close(int(other))
	const maxWorkers = 19
	limits := [2]uint32{1, 1}
	if _, _, errno := unix.Syscall6(unix.SYS_IO_URING_REGISTER, other, maxWorkers, uintptr(unsafe.Pointer(&limits)), 2, 0, 0); errno != 0 {
		return "worker threads can't be limited before Linux 5.15: " + errno.Error()
	}
	blocker, err := iouring.New(1)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer blocker.Close()
	dir := t.TempDir()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer unix.Close(at)
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Error(err)
		return ""
	}
	const openAt2 = 28
	name := make([]byte, unsafe.Sizeof(openFIFO))
	copy(name, "fifo")
	opened := int32(-1)
	blocker.Push(iouring.Request{Op: openAt2, FD: at, Buf: name, Offset: int64(uintptr(unsafe.Pointer(&openFIFO)))})
	if err := blocker.Enter(); err != nil {
		t.Error(err)
		return ""
	}
	defer func() {
		w, err := unix.Open(fifo, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(w)
		for blocker.InFlight() > 0 {
			blocker.Wait()
			blocker.Reap(func(_ uint64, res int32) { opened = res })
		}
		if opened < 0 {
			t.Errorf("the FIFO was not opened: %d", opened)
			return
		}
		unix.Close(int(opened))
	}()
	result := make(chan error, 2)
	op.Done = func(_ *Op, err error) { result <- err }
	if !op.sync {
		op.Buf = make([]byte, 4096)
	}
	e.mu.Lock() // so that this thread passes it to the kernel
	io.Submit(&op)
	e.fill()
	e.enter(false)
	e.mu.Unlock()
	select {
	case err := <-result:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it waits for ever")
	}
	if n := blocker.Reap(func(_ uint64, res int32) { opened = res }); n > 0 {
		t.Error("the worker thread was free")
	}
	e.until(t, "the ring's clock does not stop", e.isQuiet)
	if !bytes.Contains(log.Bytes(), []byte("submitted again\" requests=1")) {
		t.Errorf("the log is %q", log.String())
	}
	return ""
}
