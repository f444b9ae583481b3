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

// TestRefuseNetwork: refused by the number that the kernel gives, signed or not; what is only slow is not.
func TestRefuseNetwork(t *testing.T) {
	for _, c := range []struct {
		magic int64
		want  string
	}{
		{unix.NFS_SUPER_MAGIC, "network file system (nfs)"},
		{-0xacb2be, "network file system (cifs)"},
		{0x0bd00bd0, "network file system (lustre)"},
		{0x19830326, "network file system (beegfs)"},
		{unix.EXT4_SUPER_MAGIC, ""},
		{unix.OVERLAYFS_SUPER_MAGIC, ""},
		{unix.FUSE_SUPER_MAGIC, ""},
		{unix.V9FS_MAGIC, ""}, // the root of some sandboxes
		{0x1234, ""},
	} {
		err := refuseKind("/cache", c.magic)
		if want := "/cache is on a " + c.want + ": a cache belongs on a local SSD; give another --cache"; c.want != "" && (err == nil || err.Error() != want) || c.want == "" && err != nil {
			t.Errorf("%#x: got %v, want %q", c.magic, err, c.want)
		}
	}
}
