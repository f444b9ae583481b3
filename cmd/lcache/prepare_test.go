package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// diskDir is a folder that a cache can be in: a temporary one, unless those are in memory.
func diskDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	if fs.Type != unix.TMPFS_MAGIC {
		return dir
	}
	dir, err := os.MkdirTemp(".", "lcache-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if dir, err = filepath.Abs(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// disk mounts a new ext4 of some size at path.
func (s *script) disk(path, size string) {
	if os.Getuid() != 0 {
		s.t.Skip("a file system of its own can be mounted by root only")
	}
	image := path + ".image"
	for _, args := range [][]string{{"mkdir", path}, {"truncate", "-s", size, image}, {"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, path}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			s.t.Skipf("no file system of its own here: %s: %v %s", args[0], err, out)
		}
	}
	s.t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			s.t.Errorf("unmount: %v", err)
		}
	})
}

// memory makes a link to a folder in memory.
func (s *script) memory(path string) {
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		s.t.Skip("/dev/shm is not a tmpfs here")
	}
	dir, err := os.MkdirTemp("/dev/shm", "lcache-test-")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Symlink(dir, path); err != nil {
		s.t.Fatal(err)
	}
}

// patterned writes a file of some size whose bytes depend on its name and their place.
func patterned(path, size string) error {
	n, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	data := make([]byte, n)
	x := uint32(len(path))
	for _, c := range []byte(filepath.Base(path)) {
		x = x*31 + uint32(c)
	}
	for i := range data {
		x = x*1664525 + 1013904223
		data[i] = byte(x >> 24)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// damage turns one bit in each 4 KiB of a file that is not zero there, as a failing disk would.
func damage(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	page := make([]byte, 4096)
	for off := int64(0); ; off += int64(len(page)) {
		n, err := f.ReadAt(page, off)
		if n > 0 && page[0] != 0 {
			if _, err := f.WriteAt([]byte{page[0] ^ 1}, off); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return f.Sync()
		}
		if err != nil {
			return err
		}
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
