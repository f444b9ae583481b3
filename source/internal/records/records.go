// Package records finds samples that are byte ranges of larger files: rows of Arrow and Parquet files, lines, token sequences, or the ranges
// that an index file names. It only says where samples are; package source opens the files, reads the samples, and notices changes.
//
// A [Format] is one kind of files. To add one:
//
//  1. Write its file in this package, with a type that has Shards and Index. Embed [PatternShards] if the pattern of the source names the
//     shards, so that only Index is left to write. Index reads what it needs of one shard, by ranges, and calls [Table.Add] for each sample, in
//     order. Table checks that all ranges are in the shard, that a sample has at most 16 parts and less than 4 GiB, and numbers the rows.
//  2. Add a [Kind] to the table in kinds.go, and to KINDS of python/lcache/_client/schemes.py. Its name is the prefix of the source:
//     arrow:PATTERN. Flags of its own are in [FlagTable], and reach it in [Settings].
//  3. Add a fuzz target, and a test that compares every sample with what the format's own library returns.
//
// A format must not believe a number in a file. Compare it with the size of the object before memory is allocated or a loop begins. It must not
// hold bytes of samples, and reads at most a few MiB at once. Errors name what is wrong in the shard and what to do, without the shard's name:
// the caller adds it. They are for one line.
//
// If a file can also be listed from front to back (lines, length headers), implement [Sequential]: then compressed shards (.gz, .zst) and web
// servers without ranges work too. If samples may be compressed inside the file, so that no range has them, implement [Decoder]: then --stream
// decodes them. Without it Index says so.
//
// All methods of a Format may be called concurrently. One Format is used for one listing, and may keep what it has read of an index.
package records

import (
	"context"
	"fmt"
	"io"
)

// An Object is one file at its location, opened in one version. Its methods may be called concurrently.
type Object interface {
	// Size returns its length in bytes.
	Size() int64

	// Piece returns the number of bytes to read at once if the following bytes are needed too.
	Piece() int

	// ReadAt fills dst from offset off. It returns an error if the object ends earlier, or has changed since it was opened.
	ReadAt(ctx context.Context, dst []byte, off int64) error
}

// Files are the files of a source: those in the folder that its pattern has before the first wildcard, and below. Names are relative to it.
type Files interface {
	// Expand returns the files of a pattern with braces, and on this machine with wildcards, in order. It does not look whether a file exists,
	// unless there is a wildcard.
	Expand(pattern string) ([]string, error)

	// Open opens a file at any position. The caller closes it.
	Open(ctx context.Context, name string) (File, error)

	// Stream reads a file from front to back, also from a server without ranges. size is its length.
	Stream(ctx context.Context, name string) (r io.ReadCloser, size int64, err error)
}

// Listed is the pattern of a source KIND:@FILE: all files of the list. No other pattern is this text.
const Listed = "/"

// A File is an Object that must be closed.
type File interface {
	Object
	Close()
}

// A Format is one kind of files with samples.
type Format interface {
	// Shards returns the names of the files that contain samples, in the order of the samples.
	Shards(ctx context.Context, files Files, pattern string) ([]string, error)

	// Index adds the samples of a shard to t, in order. files is for other files that describe the shard.
	Index(ctx context.Context, files Files, name string, o Object, t *Table) error
}

// A Sequential format can list a shard from front to back.
type Sequential interface {
	Format

	// IndexStream is Index for a shard that can only be read from its beginning. r is unpacked. The table does not know the shard's size.
	IndexStream(ctx context.Context, name string, r io.Reader, t *Table) error
}

// A Decoder is a Format whose samples can be decoded where no range of the shard has them. Its Kind says Decodes.
type Decoder interface {
	Format

	// Decode writes the parts of all samples of a shard to w, one after the other. It adds the samples to t, which does not know the shard's
	// size, with their positions in the decoded shard.
	Decode(ctx context.Context, name string, o Object, t *Table, w io.Writer) error
}

// Settings are the flags of a listing, parsed.
type Settings struct {
	Columns     []string // columns to serve as parts; none: all that can be
	LabelColumn string   // the column of labels; "": label or labels, if there is one

	Features     []string // features of tf.train.Example to serve as parts; none: the whole record
	LabelFeature string   // an integer feature; "": all labels are 0
	RecordBytes  int64    // bytes of a record; 0: a row of the array
	LabelField   string   // a field with an integer; "": all labels are 0
	Key          string   // a field with the sample's name; "": its name is the shard's and the number of its row

	dtype        string // of the values of a record; "": not given
	item, values int64  // of a record: bytes of a value, and their number; 0: not given

	NoLabels bool // labels are not needed: do not read them
}

// PatternShards are the shards of formats whose pattern names the shards.
type PatternShards struct{}

// Shards implements [Format].
func (PatternShards) Shards(_ context.Context, files Files, pattern string) ([]string, error) {
	return files.Expand(pattern)
}

// plain returns a name for an error message: as it is, or quoted if that makes a difference.
func plain(name string) string {
	if quoted := clip(name); quoted != `"`+name+`"` || name == "" {
		return quoted
	}
	return name
}

// clip quotes a name for an error message, on one line, and shortens a long one.
func clip(name string) string {
	const most = 200
	if len(name) > most {
		return fmt.Sprintf("%q… (%d bytes)", name[:most], len(name))
	}
	return fmt.Sprintf("%q", name)
}
