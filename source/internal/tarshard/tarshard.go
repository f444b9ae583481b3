// Package tarshard reads the structure of WebDataset shards: tar files in which adjacent members make up a sample.
//
// [Expand] returns the names of shards for a pattern with braces. [Index] lists the members of one shard, given as an
// [Object]: a local file, or anything else that can be read by ranges. [Group] makes samples of members, as the
// webdataset package does. [Kept] stores the lists of members in a file, so that an unchanged shard is not read
// again. The package reads no sample's bytes, opens no shard, and does not interpret labels.
//
// All functions, and the methods of Kept, may be called concurrently.
package tarshard

import (
	"context"
	"fmt"
)

// An Object is one shard at its location, opened in one version. Its methods may be called concurrently.
type Object interface {
	// Size returns its length in bytes.
	Size() int64

	// Version identifies its content, together with its size: another version means other bytes.
	Version() uint64

	// Piece returns the number of bytes to read at once if the following bytes are needed too.
	Piece() int

	// ReadAt fills dst from offset off. It returns an error if the object ends earlier, or has changed since it was
	// opened.
	ReadAt(ctx context.Context, dst []byte, off int64) error
}

// Kind is the kind of a member.
type Kind uint8

const (
	File Kind = iota
	SymbolicLink
	HardLink
	Sparse
)

// A Member is one file of a shard, or a link, whose bytes are not in the shard.
type Member struct {
	Name string // as in the tar
	Kind Kind
	Off  int64 // of its first byte in the shard
	Size int64
	Text string // the content of a member with the extension cls, unless it is longer than MaxText
}

// MaxText is the maximum length of a label in a member with the extension cls.
const MaxText = 64

// clip quotes a name for an error message, on one line, and shortens a long one.
func clip(name string) string {
	const most = 200
	if len(name) > most {
		return fmt.Sprintf("%q… (%d bytes)", name[:most], len(name))
	}
	return fmt.Sprintf("%q", name)
}
