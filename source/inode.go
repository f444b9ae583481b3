package source

import (
	"context"
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"lcache/sample"
)

// Two files of one size and time may have other bytes: copies and archives keep times, and two names can be exchanged. What tells such files apart is the
// inode. It is of one machine, so a version has it only of files behind links. A listing gives it in Entry.Inode, and a read notes it for a caller of WithInode.

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
