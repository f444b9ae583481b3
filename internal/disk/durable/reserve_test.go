package durable

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Reserve, and its replacement for file systems without fallocate, make the same file, with disk space for each byte.
func TestReserve(t *testing.T) {
	const size = 1<<20 + 77
	for name, reserve := range map[string]func(f *os.File, old, size int64) error{"fallocate": Reserve, "zeros": writeZeros} {
		for _, old := range []string{"", "old bytes"} {
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := reserve(f, int64(len(old)), size); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, append([]byte(old), make([]byte, size-len(old))...)) {
				t.Errorf("%s: %d bytes, %v, want %q and zeros up to %d", name, len(b), err, old, size)
			}
			if err := f.Sync(); err != nil { // delayed allocation ends
				t.Fatal(err)
			}
			var st unix.Stat_t
			if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Blocks*512 < size {
				t.Errorf("%s: %d bytes reserved of %d, %v", name, st.Blocks*512, size, err)
			}
		}
	}
}
