package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"lcache/caches"
)

// Place is a cache directory and the file system that it is on.
type Place struct {
	Dir  string `json:"dir"`
	Seen string `json:"seen"` // what was looked at: Dir, or the nearest folder above it that exists
	ID   uint64 `json:"-"`    // of the file system's device

	Kind       string        `json:"file_system"` // "ext4"; an unknown one by its number
	Nature     caches.Nature `json:"nature"`
	Block      string        `json:"block_device,omitempty"` // its name, as far as the kernel tells
	Rotational bool          `json:"rotational,omitempty"`   // what the kernel says; virtual disks often say so wrongly
	Size       uint64        `json:"size_bytes"`
	Free       uint64        `json:"free_bytes"`  // for this user
	Floor      uint64        `json:"floor_bytes"` // that a cache leaves free
	Direct     bool          `json:"direct"`      // O_DIRECT
	MemAlign   int           `json:"memory_align,omitempty"`
	OffAlign   int           `json:"offset_align,omitempty"`
	NoWrite    string        `json:"no_write,omitempty"` // why no file can be made there
	Device     *Device       `json:"device,omitempty"`
	NoDevice   string        `json:"no_device,omitempty"` // why it was not measured
}

func lookAtPlace(root fs.FS, dir string) Place {
	p := Place{Dir: dir, Seen: nearest(dir)}
	var st unix.Statfs_t
	if err := unix.Statfs(p.Seen, &st); err != nil {
		p.Kind, p.Nature, p.NoWrite = "unknown", caches.Unknown, err.Error()
		return p
	}
	p.Kind, p.Nature, _ = caches.FileSystem(p.Seen) // what can't be looked at was told above
	p.Size, p.Free = st.Blocks*uint64(st.Bsize), st.Bavail*uint64(st.Bsize)
	p.Floor = caches.Floor(p.Size)
	var of unix.Stat_t
	if unix.Stat(p.Seen, &of) == nil {
		p.ID = of.Dev
		p.Block, p.Rotational = blockDevice(root, of.Dev)
	}
	p.tryDirect()
	return p
}

// nearest is dir itself, or the first folder above it that exists: where ingest would make it.
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

// blockDevice asks sysfs for the disk behind a device number; a partition's disk is the folder above it.
func blockDevice(root fs.FS, dev uint64) (name string, rotational bool) {
	link := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev))
	at, err := filepath.EvalSymlinks(link)
	if err != nil {
		return "", false // a file system that is not on one block device
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
	p.Direct, p.MemAlign, p.OffAlign = true, 4096, 4096 // what is taken where the kernel does not tell
	var st unix.Statx_t
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return
	}
	p.MemAlign, p.OffAlign = int(st.Dio_mem_align), int(st.Dio_offset_align)
	p.Direct = p.MemAlign > 0 && p.OffAlign > 0
}

// wrong says why figures of this place would mean nothing; "" if they do.
func (p *Place) wrong() string {
	switch {
	case p.NoWrite != "":
		return "no file can be made there"
	case p.Nature == caches.Network:
		return "a network file system is not measured"
	case p.Nature == caches.RAM:
		return "it is memory"
	case !p.Direct:
		return "without O_DIRECT the page cache would be measured"
	}
	return ""
}

var errTooSmall = errors.New("too little is free for a measurement: it takes 5 % of what is free, at least 64 MiB")
