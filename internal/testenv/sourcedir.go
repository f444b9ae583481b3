package testenv

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// memory is a file system in memory, and least the free bytes that it must have. All tests that run at the same time
// use it.
var memory, least = "/dev/shm", int64(2 << 30)

// SourceDir returns an empty folder for a source, that is for files that lcache only reads, and removes it after the
// test. The folder is in memory, if there is room: ext4 is slow to create files after others were deleted, and tests
// always do both. Do not put a cache there, because it would not use O_DIRECT, nor the source of a test about disks.
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

// MakeSourceDir creates an empty folder for more than one test. The caller removes it.
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

// places lists the directories for the folder, in order of preference.
func places() []string {
	var st unix.Statfs_t
	if unix.Statfs(memory, &st) != nil || int64(st.Bavail)*st.Bsize < least {
		return []string{""}
	}
	return []string{memory, ""}
}
