package caches

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Nature is what kind of file system something is, for a cache.
type Nature string

// What a file system can be. A cache is refused on Network and RAM.
const (
	Local   Nature = "local"   // on a block device: what a cache wants
	Copying Nature = "copying" // local, but a block that is written again goes elsewhere, or is kept in a second cache
	Layered Nature = "layered" // a container's own layer
	User    Nature = "user"    // served by a process: FUSE, or a sandbox's or virtual machine's host
	Network Nature = "network"
	RAM     Nature = "memory"
	Unknown Nature = "unknown"
)

// fileSystems are those that statfs tells by number.
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

// FileSystem is what a Statfs_t's Type means. One that is not known is named by its number.
func FileSystem(magic int64) (name string, nature Nature) {
	if fs, ok := fileSystems[uint32(magic)]; ok { // the kernel's number is signed on some machines
		return fs.name, fs.nature
	}
	return fmt.Sprintf("%#x", uint32(magic)), Unknown
}

// Floor is what a cache leaves free of a file system by default; both are in bytes.
func Floor(size uint64) uint64 { return max(10<<30, size/20) }
