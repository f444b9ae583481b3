package blockio_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"lcache/internal/disk/blockio"
	"lcache/internal/disk/blockio/blockiotest"
)

func TestOptions(t *testing.T) {
	for _, o := range []blockio.Options{{Engine: "aio"}, {Direct: "maybe"}, {Depth: -1}, {Depth: 1 << 20}} {
		if io, err := blockio.Open(o); err == nil {
			io.Close()
			t.Errorf("%+v was taken", o)
		}
	}
}

func TestOpenFileRefuses(t *testing.T) {
	io := openEngine(t, "pread", "auto")
	defer io.Close()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("there"), nil, 0o600), os.Symlink("there", at("link")), os.Mkdir(at("dir"), 0o700),
		unix.Mkfifo(at("fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		create bool
		want   error // nil: any
	}{
		{"link", false, unix.ELOOP}, {"link", true, unix.ELOOP}, {"dir", false, unix.EISDIR}, {"fifo", false, nil},
		{"absent", false, os.ErrNotExist}, {"no/such", true, os.ErrNotExist},
	} {
		f, err := io.OpenFile(at(c.name), c.create)
		if err == nil {
			f.Close()
			t.Errorf("%s was opened", c.name)
		} else if c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), at(c.name)) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
	f, err := io.OpenFile(at("new"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if fi, err := os.Stat(at("new")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("new file: %v, %v; want mode 0600", fi.Mode(), err)
	}
}

// TestNoDirect opens a regular file on a file system that refuses O_DIRECT.
func TestNoDirect(t *testing.T) {
	const refuses = "/proc/self/comm"
	if fd, err := unix.Open(refuses, unix.O_RDWR|unix.O_DIRECT, 0); err == nil {
		unix.Close(fd)
		t.Skip(refuses + " can be opened with O_DIRECT here")
	}
	for _, c := range []struct {
		direct string
		want   error
	}{{"auto", nil}, {"off", nil}, {"on", unix.EINVAL}} {
		io := openEngine(t, "pread", c.direct)
		f, err := io.OpenFile(refuses, false)
		if !errors.Is(err, c.want) {
			t.Errorf("direct %s: got %v, want %v", c.direct, err, c.want)
		}
		if err == nil {
			if f.Direct() || f.MemAlign() != 1 || f.OffAlign() != 1 {
				t.Errorf("direct %s: the file says it is direct", c.direct)
			}
			if told := strings.Contains(io.Reason(), "no O_DIRECT"); told != (c.direct == "auto") {
				t.Errorf("direct %s: reason %q", c.direct, io.Reason())
			}
			f.Close()
		}
		io.Close()
	}
}

func TestAllocateWithoutRoom(t *testing.T) {
	io := openEngine(t, "pread", "auto")
	defer io.Close()
	dir := t.TempDir()
	f, err := io.OpenFile(filepath.Join(dir, "file"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Allocate(8192); err != nil {
		t.Fatal(err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	err = f.Allocate(int64(fs.Blocks)*fs.Bsize + 1<<30)
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "are free") {
		t.Errorf("got %v, want ENOSPC with the free space", err)
	}
	if err := f.Allocate(4096); err != nil {
		t.Errorf("less than the free space: %v", err)
	}
	if n, err := f.Size(); n != 8192 || err != nil {
		t.Errorf("size %d, %v; want 8192", n, err)
	}
}

func TestFileSizeLimit(t *testing.T) {
	io := openEngine(t, "pread", "auto")
	defer io.Close()
	f, err := io.OpenFile(filepath.Join(t.TempDir(), "file"), true)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mem := blockiotest.Mem(t, 4096)
	// No file can be that long. The kernel's own error, which differs between file systems, must come with path and
	// length.
	var errno unix.Errno
	err = io.Write(context.Background(), f, 1<<63-4096, mem)
	if !errors.As(err, &errno) || !strings.Contains(err.Error(), "4096 bytes at") {
		t.Errorf("got %v, want an error number and where", err)
	}
}
