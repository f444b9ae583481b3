package testenv

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// memory is a file system in memory, and least the room that it must have: all tests that run at the same time take from it.
var memory, least = "/dev/shm", int64(2 << 30)

// SourceDir returns an empty folder for a source, files that lcache only reads, and removes it after the test. It is in memory, where there is room: ext4 takes long to make files after
// others were deleted, and tests do both all the time. No cache belongs there, as it would miss O_DIRECT, and no source of a test that is about disks.
func SourceDir(t testing.TB) string {
	t.Helper()
	dir, remove, err := MakeSourceDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// MakeSourceDir makes an empty folder for more than one test. The caller removes it.
func MakeSourceDir() (dir string, remove func() error, err error) {
	for _, in := range places() {
		var top string
		if top, err = os.MkdirTemp(in, "lcache-test-"); err == nil {
			dir = filepath.Join(top, "source")
			return dir, func() error { return os.RemoveAll(top) }, os.Mkdir(dir, 0o755)
		}
	}
	return "", nil, err
}

// places are where a folder may be, the best one first.
func places() []string {
	var st unix.Statfs_t
	if unix.Statfs(memory, &st) != nil || int64(st.Bavail)*st.Bsize < least {
		return []string{""}
	}
	return []string{memory, ""}
}
