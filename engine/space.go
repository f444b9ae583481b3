package engine

import (
	"cmp"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// freeForCache is what a cache may take by default: free space less the larger of 10 GB and 5 % of each file system.
func freeForCache(dirs []string) (uint64, error) {
	least := ^uint64(0)
	for _, d := range dirs {
		var st unix.Statfs_t
		if err := unix.Statfs(d, &st); err != nil {
			return 0, fmt.Errorf("free space of %s: %w", d, err)
		}
		free, total := st.Bavail*uint64(st.Bsize), st.Blocks*uint64(st.Bsize)
		reserve := max(10<<30, total/20)
		if free <= reserve {
			return 0, fmt.Errorf("%s has %s free, and %s are to stay free: make room, or give --budget", d, bytesText(free), bytesText(reserve))
		}
		least = min(least, free-reserve)
	}
	return least * uint64(len(dirs)), nil
}

func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// refuseFileSystem keeps caches off file systems where they make no sense. LCACHE_TMPFS=1 allows memory, for tests.
func refuseFileSystem(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("look at %s: %w", dir, err)
	}
	const lustre = 0x0bd00bd0
	switch kind := uint32(st.Type); kind {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC, lustre:
		names := map[uint32]string{unix.NFS_SUPER_MAGIC: "NFS", unix.CEPH_SUPER_MAGIC: "Ceph", lustre: "Lustre"}
		return fmt.Errorf("%s is on a network file system (%s): a cache belongs on a local SSD; give another --cache", dir, cmp.Or(names[kind], "SMB"))
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		if os.Getenv("LCACHE_TMPFS") != "1" {
			return fmt.Errorf("%s is in memory (tmpfs), which the cache would take from training: a cache belongs on a local SSD; give another --cache", dir)
		}
	}
	return nil
}
