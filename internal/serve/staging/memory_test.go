package staging

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func newStaging(t testing.TB, o Options) *Staging {
	t.Helper()
	if o.Align == 0 {
		o.Align = 64
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// The memory can't be resized, written through the file, or mapped writable: not by the server's own descriptor, the
// clients' descriptor, or a new one of the same file.
func TestMemoryIsSealed(t *testing.T) {
	s := newStaging(t, Options{Samples: 1, Slots: 1, SlotBytes: 4096})
	size := int(s.Bytes())
	copy(s.Slot(0), "written before")
	for _, own := range []bool{true, false} {
		fd, name := s.mem.fd, "the server's descriptor"
		if !own {
			name = "a descriptor reopened for writing"
			f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", s.mem.fd), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			fd = int(f.Fd())
		}
		refusals := []struct {
			what string
			err  error
		}{
			{"shrink", unix.Ftruncate(fd, 4096)},
			{"grow", unix.Ftruncate(fd, int64(2*size))},
			{"write", writeAt(fd)},
			{"map writable", mapWritable(fd, size)},
			{"unseal", addSeal(fd)},
			{"punch a hole", unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 4096)},
		}
		for _, r := range refusals {
			if r.err == nil {
				t.Errorf("%s: %s is possible", name, r.what)
			}
		}
	}
	if string(s.Slot(0)[:14]) != "written before" {
		t.Error("the bytes were changed")
	}
	s.Slot(0)[0] = 'W' // the server itself can still write
}

func writeAt(fd int) error { _, err := unix.Pwrite(fd, []byte("x"), 0); return err }

func mapWritable(fd, size int) error {
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err == nil {
		unix.Munmap(mem)
	}
	return err
}

func addSeal(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	return err
}

// The clients' file shows the server's writes and cannot be written.
func TestFileIsReadOnly(t *testing.T) {
	s := newStaging(t, Options{Samples: 1, Slots: 1, SlotBytes: 4096})
	fd, size := int(s.File().Fd()), int(s.Bytes())
	if err := writeAt(fd); !errors.Is(err, unix.EBADF) {
		t.Errorf("write: %v, want EBADF", err)
	}
	if err := mapWritable(fd, size); err == nil {
		t.Error("it can be mapped writable")
	}
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE); err == nil {
		t.Error("a map made by a client can be made writable")
	}
	copy(s.Slot(0)[100:], "hello")
	if string(mem[100:105]) != "hello" {
		t.Error("the client's map does not show the bytes that the server wrote")
	}
	// A client's mapping outlives the server's.
	s.Close()
	if string(mem[100:105]) != "hello" {
		t.Error("the client's map lost its bytes when the server closed")
	}
}

func TestParts(t *testing.T) {
	s := newStaging(t, Options{Samples: 1, Slots: 3, SlotBytes: 5000, MissBytes: 1, SideBytes: 4097})
	if s.SlotBytes() != 8192 || s.Slots() != 3 || s.SideBytes() != 8192 || s.Bytes() < 3*8192+4096+8192 {
		t.Errorf("slots %d × %d, side %d, all %d", s.Slots(), s.SlotBytes(), s.SideBytes(), s.Bytes())
	}
	for i := range 3 {
		if off := s.OffsetOf(s.Slot(i)); off != uint64(i*8192) || len(s.Slot(i)) != 8192 || cap(s.Slot(i)) != 8192 {
			t.Errorf("slot %d is at offset %d with %d bytes", i, off, len(s.Slot(i)))
		}
	}
	if p := s.PageBytes(); p != os.Getpagesize() && p != hugePage {
		t.Errorf("pages of %d bytes", p)
	}
	if _, err := New(Options{Samples: 1, Align: 8, Slots: 1, SlotBytes: 1 << 34}); err == nil {
		t.Error("more memory than an address can name was given")
	}
}
