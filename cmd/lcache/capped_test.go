package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// capped is a volume on a loop device, and a control group that limits the operations and bytes a second of its processes, for reads and for writes.
type capped struct {
	enter string // a line of shell that puts the shell into the group
}

// newCapped makes a capped volume, the folder capped of another one. Only root can do that, where a controller of block devices is mounted.
func newCapped(t *testing.T, dir string, size int64, operations, bytes int) capped {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes a capped volume")
	}
	told := func(words ...string) string {
		t.Helper()
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		if err != nil {
			t.Skipf("no capped volume here: %s: %v %s", words, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	again := func(words ...string) { // the kernel calls a device busy for a moment after its last user
		for range 100 {
			if exec.Command(words[0], words[1:]...).Run() == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Errorf("%s: it stays busy", words)
	}
	unified, blkio := blockController(t)
	image, mount := filepath.Join(dir, "capped.img"), filepath.Join(dir, "capped")
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	told("truncate", "-s", fmt.Sprint(size), image)
	device := told("losetup", "--find", "--show", "--direct-io=on", image)
	t.Cleanup(func() { again("losetup", "-d", device) })
	told("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device)
	told("mount", "-o", "noatime", device, mount)
	t.Cleanup(func() { again("umount", mount) })
	number := told("lsblk", "-ndo", "MAJ:MIN", device)
	group := filepath.Join(unified+blkio, fmt.Sprintf("lcache-test-%d", os.Getpid()))
	told("mkdir", group)
	t.Cleanup(func() { again("rmdir", group) })
	limits := map[string]string{"io.max": fmt.Sprintf("%s riops=%d wiops=%d rbps=%d wbps=%d", number, operations, operations, bytes, bytes)}
	if unified == "" {
		limits = map[string]string{}
		for _, way := range []string{"read", "write"} {
			limits["blkio.throttle."+way+"_iops_device"] = fmt.Sprintf("%s %d", number, operations)
			limits["blkio.throttle."+way+"_bps_device"] = fmt.Sprintf("%s %d", number, bytes)
		}
	}
	for file, limit := range limits {
		if err := os.WriteFile(filepath.Join(group, file), []byte(limit), 0); err != nil {
			t.Skipf("no capped volume here: %v", err)
		}
	}
	return capped{"echo 0 > " + filepath.Join(group, "cgroup.procs")}
}

// blockController is where a controller of block devices is mounted: of the second version of control groups, or of the first.
func blockController(t *testing.T) (unified, blkio string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Skip("no capped volume here: ", err)
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			continue
		}
		switch {
		case fields[2] == "cgroup2":
			has, _ := os.ReadFile(filepath.Join(fields[1], "cgroup.controllers"))
			if slices.Contains(strings.Fields(string(has)), "io") && os.WriteFile(filepath.Join(fields[1], "cgroup.subtree_control"), []byte("+io"), 0) == nil {
				return fields[1], ""
			}
		case fields[2] == "cgroup" && slices.Contains(strings.Split(fields[3], ","), "blkio"):
			blkio = fields[1]
		}
	}
	if blkio == "" {
		t.Skip("no capped volume here: neither the controller io nor blkio is mounted")
	}
	return "", blkio
}
