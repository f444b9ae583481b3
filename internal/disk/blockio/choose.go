package blockio

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"lcache/iouring"
)

// choose starts the requested engine, or with "auto" the best one that passes its self-test.
func (io *IO) choose(want string) error {
	switch want {
	case "pread":
		io.setReason("pread was asked for")
		io.engine = newPool(io.ops)
		return nil
	case "", "auto", "uring":
	default:
		return fmt.Errorf("engine is %q, want auto, uring or pread", want)
	}
	err := io.tryRing()
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

func (io *IO) tryRing() error {
	ring, err := startRing(io.ops, io.log, io.refused)
	if err != nil {
		return err
	}
	io.engine = ring
	if err := io.selfTest(); err != nil {
		return errors.Join(err, io.Close())
	}
	return nil
}

// selfTest transfers some bytes through the engine, without and with registered memory, in a file in memory. It shows that requests are
// accepted and complete. A failed registration is not an error.
func (io *IO) selfTest() error {
	fd, err := unix.MemfdCreate("lcache-self-test", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a file in memory: %w", err)
	}
	f := &File{io: io, path: "self-test", fd: fd, memAlign: 1, offAlign: 1}
	defer f.Close()
	page := unix.Getpagesize()
	mem, err := Alloc(2 * page)
	if err != nil {
		return err
	}
	ctx := context.Background() // local memory can't hang
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
	if err := io.Unregister(mem); err != nil {
		return err
	}
	return Free(mem)
}
