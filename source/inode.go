package source

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"lcache/sample"
)

// Two files of one size and time may have other bytes: copies and archives keep times, and two names can be exchanged. What tells such files apart is the
// inode, with the time when the file was made. It is of one machine, so a version has it only of files behind links. A listing gives it in Entry.Inode, and a read notes it for a caller of WithInode.

type inodeKey struct{}

// WithInode returns a context whose read notes at inode which file the bytes were read from, as Entry.Inode has it. It is written before the read ends without an
// error, and not by sources that have no inodes.
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

// partsInode makes one number of the inodes of a sample's files.
type partsInode struct {
	b       []byte
	unknown bool // one of them is
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

// fileOf makes one number of an inode and of the time when the file was made. A file system gives the inode of a file that is removed to the next one that is
// made: an archive that is unpacked over older files has their inodes. Where a file system does not tell the time, it is 0.
func fileOf(inode, born uint64) uint64 {
	if born == 0 {
		return inode
	}
	var b [16]byte
	binary.LittleEndian.PutUint64(b[0:], inode)
	binary.LittleEndian.PutUint64(b[8:], born)
	if file := xxh3.Hash(b[:]); file+1 > 1 { // neither of the numbers that mean something else
		return file
	}
	return inode
}

// born returns when a file was made, in nanoseconds; 0: the file system or the kernel does not tell.
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
