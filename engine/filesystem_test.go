package engine

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Where temporary folders are in memory, tests may use them all the same.
func init() { os.Setenv("LCACHE_TMPFS", "1") }

func TestRefuseMemory(t *testing.T) {
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		t.Skip("/dev/shm is no tmpfs here")
	}
	for value, refused := range map[string]bool{"": true, "0": true, "1": false} {
		t.Setenv("LCACHE_TMPFS", value)
		err := refuseFileSystem("/dev/shm")
		if got := err != nil; got != refused {
			t.Errorf("LCACHE_TMPFS=%s: got %v", value, err)
		}
		if refused && !strings.HasPrefix(err.Error(), "/dev/shm is in memory (tmpfs), which the cache would take from training: a cache belongs on a local SSD") {
			t.Errorf("got %v", err)
		}
	}
	if err := refuseFileSystem("/proc"); err != nil {
		t.Errorf("another file system: %v", err)
	}
}
