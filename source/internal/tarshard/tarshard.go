// Package tarshard reads the structure of WebDataset shards: tar files in which adjacent members make up a sample.
//
// [Expand] makes the names of shards from a pattern with braces. [Index] lists the members of one shard, which lies behind an [Object]: a local
// file, or whatever else can be read by ranges. [Group] makes samples of members, as the webdataset package does. [Kept] keeps the lists of members in a file,
// so that a shard that has not changed is not read again. The package reads no sample's bytes, opens no shard, and knows nothing of labels.
//
// All functions, and the methods of Kept, may be called concurrently.
package tarshard

import (
	"context"
	"fmt"
)

// An Object is one shard where it lies, opened in one version. Its methods may be called concurrently.
type Object interface {
	// Size is its length in bytes.
	Size() int64

	// Version is its identity, together with its size: another one means other bytes.
	Version() uint64

	// Piece is how many bytes to read at once if the following bytes are needed, too.
	Piece() int

	// ReadAt fills dst from offset off. It fails if the object ends earlier, or has changed since it was opened.
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

// A Member is one file of a shard, or a link, whose bytes the shard does not have.
type Member struct {
	Name string // as the tar has it
	Kind Kind
	Off  int64 // of its first byte in the shard
	Size int64
	Text string // the content of a member with the extension cls, unless it is longer than MaxText
}

// MaxText is how long the text of a member with the extension cls may be.
const MaxText = 64

// clip quotes a name for an error message: on one line, and not all of a name of 64 KiB.
func clip(name string) string {
	const most = 200
	if len(name) > most {
		return fmt.Sprintf("%q… (%d bytes)", name[:most], len(name))
	}
	return fmt.Sprintf("%q", name)
}
