package cachedir

import (
	"fmt"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Nature classifies a file system's fitness for a cache.
type Nature string

// The natures of file systems. A cache on Network or RAM is refused.
const (
	Local   Nature = "local"   // on a block device: this suits a cache
	Copying Nature = "copying" // local, but rewritten blocks go elsewhere, or are kept in a second cache
	Layered Nature = "layered" // a container's own layer
	User    Nature = "user"    // served by a process: FUSE, or the host of a sandbox or virtual machine
	Network Nature = "network"
	RAM     Nature = "memory"
	Unknown Nature = "unknown"
)

// fileSystems are the file systems that statfs distinguishes.
var fileSystems = map[uint32]struct {
	name   string
	nature Nature
}{
	unix.EXT4_SUPER_MAGIC: {"ext4", Local}, unix.XFS_SUPER_MAGIC: {"xfs", Local}, unix.F2FS_SUPER_MAGIC: {"f2fs", Local},
	unix.BTRFS_SUPER_MAGIC: {"btrfs", Copying}, 0x2fc12fc1: {"zfs", Copying}, 0xca451a4e: {"bcachefs", Copying},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlay", Layered}, unix.FUSE_SUPER_MAGIC: {"fuse", User}, unix.V9FS_MAGIC: {"9p", User},
	unix.NFS_SUPER_MAGIC: {"nfs", Network}, unix.SMB_SUPER_MAGIC: {"smb", Network}, unix.CIFS_SUPER_MAGIC: {"cifs", Network},
	unix.SMB2_SUPER_MAGIC: {"smb2", Network}, unix.CEPH_SUPER_MAGIC: {"ceph", Network}, 0x0bd00bd0: {"lustre", Network},
	unix.AFS_SUPER_MAGIC: {"afs", Network}, 0x47504653: {"gpfs", Network}, 0x19830326: {"beegfs", Network},
	unix.TMPFS_MAGIC: {"tmpfs", RAM}, unix.RAMFS_MAGIC: {"ramfs", RAM}, unix.HUGETLBFS_MAGIC: {"hugetlbfs", RAM},
}

// overFUSE are the file systems over a network that a process serves, by their names in a list of mounts (which begin with "fuse.").
var overFUSE = map[string]bool{
	"sshfs": true, "glusterfs": true, "ceph-fuse": true, "juicefs": true, "gcsfuse": true, "s3fs": true, "goofys": true, "geesefs": true,
	"rclone": true, "blobfuse": true, "blobfuse2": true, "seaweedfs": true, "mfs": true, "moosefs": true, "lizardfs": true, "saunafs": true,
	"alluxio-fuse": true, "davfs": true, "curlftpfs": true, "quobyte": true, "cvmfs2": true, "orangefs": true, "hdfs": true, "fuse_dfs": true,
}

// FileSystem returns the name and nature of a directory's file system. An unknown file system has its number as name.
func FileSystem(dir string) (name string, nature Nature, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown", Unknown, err
	}
	name, nature = byNumber(int64(st.Type))
	if nature == User {
		name, nature = byMount(name, nature, mountType(dir))
	}
	return name, nature, nil
}

// byNumber returns the name and nature for the Type of a Statfs_t.
func byNumber(magic int64) (name string, nature Nature) {
	if fs, ok := fileSystems[uint32(magic)]; ok { // the kernel's number is signed on some machines
		return fs.name, fs.nature
	}
	return fmt.Sprintf("%#x", uint32(magic)), Unknown
}

// byMount distinguishes file systems with the same number, by the type in the list of mounts.
func byMount(name string, nature Nature, mounted string) (string, Nature) {
	if served, ok := strings.CutPrefix(mounted, "fuse."); ok && overFUSE[served] {
		return served, Network
	}
	return name, nature
}

// mountType returns the type of the mount that a directory is on; "": unknown.
func mountType(dir string) (mounted string) {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return ""
	}
	_, _ = mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { // without /proc the list is empty
		if m.Major == int(unix.Major(st.Dev)) && m.Minor == int(unix.Minor(st.Dev)) {
			mounted = m.FSType
		}
		return true, mounted != ""
	})
	return mounted
}
