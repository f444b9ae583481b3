package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"lcache/internal/store/cachedir"
)

// Place is a cache directory with its file system.
type Place struct {
	Dir  string `json:"dir"`
	Seen string `json:"seen"` // the directory that was looked at: Dir, or the nearest folder above it that exists
	ID   uint64 `json:"-"`    // device number of the file system

	Kind       string          `json:"file_system"` // "ext4"; an unknown one by its number
	Nature     cachedir.Nature `json:"nature"`
	Block      string          `json:"block_device,omitempty"` // its name, if the kernel has one
	Rotational bool            `json:"rotational,omitempty"`   // as the kernel reports it, which is often wrong for virtual disks
	Size       uint64          `json:"size_bytes"`
	Free       uint64          `json:"free_bytes"`  // for this user
	Reserve    uint64          `json:"floor_bytes"` // that a cache leaves free
	Direct     bool            `json:"direct"`      // O_DIRECT
	MemAlign   int             `json:"memory_align,omitempty"`
	OffAlign   int             `json:"offset_align,omitempty"`
	NoWrite    string          `json:"no_write,omitempty"` // why no file can be made there; "": one can
	Device     *Device         `json:"device,omitempty"`
	NoDevice   string          `json:"no_device,omitempty"` // why the device was not measured
}

// lookAtPlace collects the facts about a directory, but for its device's rates.
func lookAtPlace(root fs.FS, dir string) Place {
	p := Place{Dir: dir, Seen: nearest(dir)}
	var st unix.Statfs_t
	if err := unix.Statfs(p.Seen, &st); err != nil {
		p.Kind, p.Nature, p.NoWrite = "unknown", cachedir.Unknown, err.Error()
		return p
	}
	p.Kind, p.Nature, _ = cachedir.FileSystem(p.Seen) // Statfs has shown that it can be looked at
	p.Size, p.Free = st.Blocks*uint64(st.Bsize), st.Bavail*uint64(st.Bsize)
	p.Reserve = cachedir.Reserve(p.Size)
	var of unix.Stat_t
	if unix.Stat(p.Seen, &of) == nil {
		p.ID = of.Dev
		p.Block, p.Rotational = blockDevice(root, of.Dev)
	}
	p.tryDirect()
	return p
}

// nearest returns dir, or the first folder above it that exists, in which ingest would make it.
func nearest(dir string) string {
	for {
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return dir
		}
		dir = up
	}
}

// blockDevice returns the disk with a device number, as sysfs names it. The disk of a partition is the folder above the partition's.
func blockDevice(root fs.FS, dev uint64) (name string, rotational bool) {
	link := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev))
	at, err := filepath.EvalSymlinks(link)
	if err != nil {
		return "", false // the file system is not on one block device
	}
	for _, queue := range []string{at, filepath.Dir(at)} {
		if text := readText(root, filepath.Join(queue, "queue/rotational")[1:]); text != "" {
			return filepath.Base(at), text == "1"
		}
	}
	return filepath.Base(at), false
}

// tryDirect makes a file, opens it as the log does, and asks how transfers must be aligned.
func (p *Place) tryDirect() {
	f, err := os.CreateTemp(p.Seen, fileName)
	if err != nil {
		p.NoWrite = err.Error()
		return
	}
	f.Close()
	defer os.Remove(f.Name())
	fd, err := unix.Open(f.Name(), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	p.Direct, p.MemAlign, p.OffAlign = true, 4096, 4096 // unless the kernel reports others
	var st unix.Statx_t
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return
	}
	p.MemAlign, p.OffAlign = int(st.Dio_mem_align), int(st.Dio_offset_align)
	p.Direct = p.MemAlign > 0 && p.OffAlign > 0
}

// wrong says why the device can't be measured at this place; "" if it can.
func (p *Place) wrong() string {
	switch {
	case p.NoWrite != "":
		return "no file can be made there"
	case p.Nature == cachedir.Network:
		return "a network file system is not measured"
	case p.Nature == cachedir.RAM:
		return "it is memory"
	case !p.Direct:
		return "without O_DIRECT the page cache would be measured"
	}
	return ""
}

var errTooSmall = errors.New("too little space is free for a measurement, which takes 5 % of it and at least 64 MiB")
