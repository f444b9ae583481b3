package source

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"lcache/sample"
)

// Links in a source are followed, to files and to folders, as in torchvision. A link can be changed to another file
// of the same size and time, or its target can be replaced. So the version of a sample behind a link includes the
// file's device and inode, and every listing reads folders that have links.

// Reach is the way to a folder or a sample.
type Reach uint8

const (
	Directly Reach = iota
	Linked         // through a link
	Outside        // through a link that leaves the source
)

// version returns the version of a sample's file, which together with its size identifies the content: the time of
// its last change, and behind a link also the file's identity. The source's own device counts as 0, because a device
// may have another number after a reboot. file is the result of fileOf, or sample.NoInode if the inode proves
// nothing. statfs queries the file system of the file, once for each device. born returns the file's creation time.
func (d *dir) version(st *unix.Stat_t, linked bool, statfs func(*unix.Statfs_t) error, born func() uint64) (version, file uint64) {
	inode := uint64(sample.NoInode)
	if d.hasInodes(uint64(st.Dev), statfs) {
		inode, file = st.Ino, fileOf(st.Ino, born())
	}
	if !linked {
		return uint64(st.Mtim.Nano()), file
	}
	var b [24]byte
	binary.LittleEndian.PutUint64(b[0:], d.device(uint64(st.Dev)))
	binary.LittleEndian.PutUint64(b[8:], inode)
	binary.LittleEndian.PutUint64(b[16:], uint64(st.Mtim.Nano()))
	return xxh3.Hash(b[:]), file
}

// numbering lists file systems that may give a file another inode after the kernel has forgotten the file. There an
// inode proves nothing: a sample would seem to change in the middle of a training.
var numbering = []int64{unix.FUSE_SUPER_MAGIC, unix.MSDOS_SUPER_MAGIC, unix.EXFAT_SUPER_MAGIC}

func (d *dir) hasInodes(dev uint64, statfs func(*unix.Statfs_t) error) bool {
	if dev == d.dev {
		return d.numbers
	}
	if has, known := d.inodes.Load(dev); known {
		return has.(bool)
	}
	has := numbersFiles(statfs)
	d.inodes.Store(dev, has)
	return has
}

// numbersFiles reports whether a file system keeps the inode of each file. If statfs fails, it returns true.
func numbersFiles(statfs func(*unix.Statfs_t) error) bool {
	var st unix.Statfs_t
	return statfs(&st) != nil || !slices.Contains(numbering, int64(st.Type))
}

func (d *dir) device(dev uint64) uint64 {
	if dev == d.dev {
		return 0
	}
	return dev
}

// statLink stats the target of a link in an open folder.
func (d *dir) statLink(folder int, path, name string, st *unix.Stat_t) error {
	if d.opts.NoFollowLinks {
		fi, err := d.root.Stat(path)
		if err != nil {
			return linkError(err)
		}
		t := fi.Sys().(*syscall.Stat_t)
		*st = unix.Stat_t{Dev: t.Dev, Ino: t.Ino, Mode: t.Mode, Size: t.Size, Mtim: unix.Timespec(t.Mtim)}
		return nil
	}
	for {
		if err := unix.Fstatat(folder, name, st, 0); !errors.Is(err, unix.EINTR) {
			return linkError(err)
		}
	}
}

// errDangling is the error of a link without a target. A listing reports all of them together.
var errDangling = errors.New("it leads to nothing")

func linkError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP):
		return errDangling
	}
	return advise(err)
}

// reach reports whether a link leaves the source. folder is the reach of the folder with the link.
func (d *dir) reach(folder Reach, path string) Reach {
	if folder == Outside || d.opts.NoFollowLinks {
		return max(folder, Linked)
	}
	how := unix.OpenHow{Flags: asName, Resolve: beneath}
	fd, err := d.openat2(int(d.top.Fd()), path, &how)
	switch {
	case err == nil:
		unix.Close(fd)
		return Linked
	case errors.Is(err, unix.EXDEV):
		return Outside
	}
	if _, err := d.root.Stat(path); err != nil {
		return Outside
	}
	return Linked
}

// place is a folder on the path of the walk, to find loops.
type place struct {
	parent   *place
	dev, ino uint64
	reach    Reach
	path     string
	link     string // the last link on the path to it; "": none
}

// identify returns an error for a loop: a folder that contains itself. It allows a folder that is reached twice
// side by side.
func (p *place) identify(st *unix.Stat_t) error {
	p.dev, p.ino = uint64(st.Dev), st.Ino
	for up := p.parent; up != nil; up = up.parent {
		if up.dev == p.dev && up.ino == p.ino {
			above := clip(up.path)
			if up.parent == nil {
				above = "the source"
			}
			if p.link == "" {
				return fmt.Errorf("folder %s is the folder %s that contains it, a loop: unmount it", clip(p.path), above)
			}
			return fmt.Errorf("link %s makes a loop: through it folder %s is %s again, which holds the link: remove the link", clip(p.link), clip(p.path), above)
		}
	}
	return nil
}

// dangling has the links of a listing that have no target.
type dangling struct {
	mu    sync.Mutex // guards the fields that follow
	count int
	first []string // a few of them, sorted
}

const danglingShown = 3

func (l *dangling) add(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	i, _ := slices.BinarySearchFunc(l.first, path, comparePython)
	if i == danglingShown {
		return
	}
	l.first = slices.Insert(l.first, i, path)
	l.first = l.first[:min(len(l.first), danglingShown)]
}

func (l *dangling) err(source string) error {
	if l.count == 0 {
		return nil
	}
	names := make([]string, len(l.first))
	for i, name := range l.first {
		names[i] = clip(name)
	}
	what, their, links := "link "+names[0]+" leads to nothing", "its target", "link"
	if l.count > 1 {
		what, their, links = fmt.Sprintf("%d links lead to nothing: %s%s", l.count, strings.Join(names, ", "), andMore(l.count-len(names))), "their targets", "links"
	}
	return fmt.Errorf("%s: bring back %s (mount the disk, git annex get, dvc pull), or remove the %s; find -L %s -type l lists such links", what, their, links, clip(source))
}

// matters reports whether a link without a target may have been a sample, or a folder of samples. A name with another
// extension than the wanted ones was not a sample, and is assumed not to be a folder.
func (w *walk) matters(name string) bool {
	return hasExt(name, w.dir.opts.Exts) || !strings.Contains(name, ".")
}

// countOutside counts the samples of one folder that are reached through a link that leaves the source.
func (s *scanned) countOutside() int {
	switch {
	case s.self.reach == Outside:
		return len(s.files)
	case s.stems != nil:
		return len(s.stems)
	}
	return s.outside
}

// noteOutside records a file outside the source.
func (s *scanned) noteOutside(w *walk, path string, prefix int) {
	if w.dir.opts.Group != GroupStem {
		s.outside++
		return
	}
	if s.stems == nil {
		s.stems = map[string]bool{}
	}
	stem, _ := splitStem(path, prefix)
	s.stems[stem] = true
}

// sameFiles reports whether a folder has the same samples as before.
func sameFiles(now, then []sample.Entry) bool {
	return slices.EqualFunc(now, then, func(a, b sample.Entry) bool {
		return a.Name == b.Name && a.Size == b.Size && a.Version == b.Version && slices.Equal(a.Parts, b.Parts)
	})
}
