package cachedir

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestFileSystemNumbers(t *testing.T) {
	for magic, want := range map[int64]struct {
		name   string
		nature Nature
	}{
		0xef53: {"ext4", Local}, 0x58465342: {"xfs", Local}, 0x9123683e: {"btrfs", Copying}, 0x794c7630: {"overlay", Layered}, 0x6969: {"nfs", Network}, 0x0bd00bd0: {"lustre", Network}, 0x19830326: {"beegfs", Network},
		0x01021994: {"tmpfs", RAM}, -0xacb2be: {"cifs", Network}, 0x65735546: {"fuse", User}, 0x01021997: {"9p", User}, 0x1234: {"0x1234", Unknown},
	} {
		if name, nature := byNumber(magic); name != want.name || nature != want.nature {
			t.Errorf("%#x: %s %s, want %+v", magic, name, nature, want)
		}
	}
}

// FUSE has one number for all file systems that a process serves.
func TestFileSystemMounts(t *testing.T) {
	for mounted, want := range map[string]Nature{"fuse.sshfs": Network, "fuse.juicefs": Network, "fuse.gcsfuse": Network, "fuse.mergerfs": User, "fuse": User, "": User} {
		name, nature := byMount("fuse", User, mounted)
		if nature != want || (name == "fuse") != (want == User) {
			t.Errorf("%s: %s %s, want %s", mounted, name, nature, want)
		}
	}
}

func TestFileSystem(t *testing.T) {
	if name, _, err := FileSystem("/proc"); err != nil || name != "0x9fa0" || mountType("/proc") != "proc" {
		t.Errorf("/proc: %s, mounted as %s: %v", name, mountType("/proc"), err)
	}
	if _, nature, err := FileSystem(t.TempDir() + "/none"); err != unix.ENOENT || nature != Unknown {
		t.Errorf("a directory that is not there: %s, %v", nature, err)
	}
}
