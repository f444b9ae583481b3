package blockio

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"lcache/iouring"
)

// selfTestTime limits the self-test of a ring. Usually it takes about a millisecond. The kernel gives its transfers to worker threads (io-wq), because a
// file in memory has no other way, and may fail to wake one: Linux 6.18 left a transfer in the queue for ever, in one of 460,000 new rings. The ring
// submits such a transfer again after 2 to 3 s (lost.go).
const selfTestTime = 5 * time.Second

// choose starts the requested engine, or with "auto" the best one that passes its self-test within limit.
func (io *IO) choose(want string, limit time.Duration) error {
	switch want {
	case "pread":
		io.setReason("pread was asked for")
		io.engine = newPool(io.ops)
		return nil
	case "", "auto", "uring":
	default:
		return fmt.Errorf("engine is %q, want auto, uring or pread", want)
	}
	err := io.tryRing(limit)
	if err == nil {
		if want == "uring" {
			io.setReason("io_uring was asked for")
		} else {
			io.setReason("io_uring passed its self-test")
		}
		return nil
	}
	if want == "uring" {
		return err
	}
	var none *iouring.UnavailableError
	if errors.As(err, &none) {
		io.setReason("%v", none)
	} else {
		io.setReason("io_uring failed its self-test: %v", err)
	}
	io.ops = newBacklog(io.ops.depth, io.ops.fileDepth)
	io.engine = newPool(io.ops)
	return nil
}

// tryRing starts a ring. A ring that does not pass its self-test is closed. If the kernel has not completed a transfer within limit, that happens in
// the background, when the kernel has.
func (io *IO) tryRing(limit time.Duration) error {
	ops := io.ops
	ring, err := startRing(ops, io.log, io.refused)
	if err != nil {
		return err
	}
	io.engine = ring
	mem, err := Alloc(2 * unix.Getpagesize())
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		err = io.selfTest(ctx, mem)
	}
	if err == nil {
		return Free(mem)
	}
	end := func() error {
		ops.close()
		ring.close()
		return Free(mem) // not earlier: the ring may have registered it
	}
	if late := new(Unfinished); errors.As(err, &late) {
		go func() {
			<-late.Settled
			_ = end()
		}()
		return fmt.Errorf("the kernel did not complete it within %v: %w", limit, err)
	}
	return errors.Join(err, end())
}

// selfTest transfers some bytes through the engine, without and with registered memory, in a file in memory. It shows that requests are
// accepted and complete. A failed registration is not an error. mem has two pages. After an *Unfinished, the kernel still uses them.
func (io *IO) selfTest(ctx context.Context, mem []byte) error {
	fd, err := unix.MemfdCreate("lcache-self-test", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a file in memory: %w", err)
	}
	f := &File{io: io, path: "self-test", fd: fd, memAlign: 1, offAlign: 1}
	defer f.Close()
	page := len(mem) / 2
	out, in := mem[:page], mem[page:]
	for i := range 2 {
		for j := range out {
			out[j] = byte(j*7 + i)
		}
		if err := errors.Join(io.Write(ctx, f, int64(i*page), out), io.Read(ctx, f, int64(i*page), in)); err != nil {
			return err
		}
		if !bytes.Equal(in, out) {
			return errors.New("read back other bytes than were written")
		}
		if i == 0 {
			if err := io.Register(mem); err != nil {
				return err
			}
		}
	}
	return io.Unregister(mem)
}
