package source

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"lcache/sample"
)

// Two files of the same size and time may have different bytes: copies and archives keep times, and two names can be
// exchanged. The inode and the creation time distinguish such files. They are valid only on one machine, so a version
// includes them only for files behind links. A listing returns them in Entry.Inode, and a read returns them through
// WithInode.

type inodeKey struct{}

// WithInode returns a context for one read, which writes the inode of the file to inode, in the form of Entry.Inode.
// It is written before the read returns without an error. Sources without inodes do not write it.
func WithInode(ctx context.Context, inode *uint64) context.Context {
	return context.WithValue(ctx, inodeKey{}, inode)
}

func noteInode(ctx context.Context, inode uint64) {
	if at, ok := ctx.Value(inodeKey{}).(*uint64); ok {
		*at = inode
	}
}

// NumbersFiles reports whether a source is a directory on a file system that gives each of its files one inode for good.
func NumbersFiles(s Source) bool {
	d, ok := s.(*dir)
	return ok && d.numbers
}

// partsInode combines the inodes of a sample's files into one number.
type partsInode struct {
	b       []byte
	unknown bool // one of the inodes is unknown
}

func (p *partsInode) add(inode uint64) {
	p.unknown = p.unknown || inode == sample.NoInode
	p.b = binary.LittleEndian.AppendUint64(p.b, inode)
}

func (p *partsInode) sum() uint64 {
	if p.unknown {
		return sample.NoInode
	}
	return xxh3.Hash(p.b)
}

// fileOf combines an inode and the file's creation time into one number. A file system reuses the inode of a removed
// file for a new one: if an archive is unpacked over older files, its files get their inodes. born is 0 if the file
// system does not report the time.
func fileOf(inode, born uint64) uint64 {
	if born == 0 {
		return inode
	}
	var b [16]byte
	binary.LittleEndian.PutUint64(b[0:], inode)
	binary.LittleEndian.PutUint64(b[8:], born)
	if file := xxh3.Hash(b[:]); file+1 > 1 { // not one of the two reserved values
		return file
	}
	return inode
}

// born returns a file's creation time in nanoseconds; 0: neither the file system nor the kernel reports it.
func born(fd int, name string, flags int) uint64 {
	var st unix.Statx_t
	for {
		if err := unix.Statx(fd, name, flags, unix.STATX_BTIME, &st); !errors.Is(err, unix.EINTR) {
			if err != nil || st.Mask&unix.STATX_BTIME == 0 {
				return 0
			}
			return uint64(st.Btime.Sec)*1e9 + uint64(st.Btime.Nsec)
		}
	}
}
