// Package sample has the identity of a training sample: its index, its name, and the checksum of its bytes.
//
// It has two files that are portable between machines. The [Manifest] is the immutable list of a dataset's samples in canonical order; its
// [Fingerprint] identifies the dataset. [Sums] is a separate file that learns the xxh3-64 checksum of each sample's bytes when they are first
// read. A third file, [Inodes], is valid on one machine: it has the file that these bytes were read from. [Remap] maps a listing to the next,
// so that checksums are kept. Names stay on disk and are read on request; the rest of a manifest is verified when it is opened. The package
// reads no sample's bytes and knows no source.
//
// All methods of an open Manifest, Sums or Inodes may be called concurrently, except Close, which must come last.
package sample

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"

	"lcache/internal/errcode"
)

// Index is a sample's number in the manifest, from 0. It is an alias: a []uint32 is a []Index.
type Index = uint32

// None is not an index of any sample. See [Remap].
const None Index = math.MaxUint32

// Limits of a manifest. They bound the memory of a reader, and keep None free.
const (
	MaxSamples = math.MaxUint32 - 1 // samples in one manifest
	MaxName    = 64 << 10           // bytes of a name, a class or a part's extension
	MaxParts   = math.MaxUint16     // parts of one sample
)

var (
	// ErrCorrupt means that a file's bytes differ from the written ones. The file can be made again: a manifest by listing the source, checksums by reading it.
	ErrCorrupt = errcode.New(errcode.CacheDamaged, "corrupt")
	// ErrVersion means that another version of lcache wrote a file, in a format that this one does not know.
	ErrVersion = errcode.New(errcode.Version, "unknown format version")
	// ErrOtherManifest means that checksums or compressed lengths belong to a manifest with another fingerprint.
	ErrOtherManifest = errors.New("checksums or lengths of another manifest")
	// ErrEntry means that a manifest can't hold an entry: the name is missing, too long or not unique, or the parts do not add up to the sample.
	ErrEntry = errors.New("invalid entry")
)

// Fingerprint identifies a manifest, and so a dataset: equal fingerprints mean equal names, sizes, labels, versions and order.
type Fingerprint [16]byte

// String returns all 32 hex digits.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Short returns the first 8 hex digits, for people.
func (f Fingerprint) Short() string { return hex.EncodeToString(f[:4]) }

// Sum returns the checksum of a sample's bytes: xxh3-64 without a seed.
func Sum(b []byte) uint64 { return xxh3.Hash(b) }

// A Summer computes the Sum of bytes that come in parts. The zero Summer has none yet.
type Summer struct{ hasher xxh3.Hasher }

// Add adds the next part.
func (s *Summer) Add(part []byte) { _, _ = s.hasher.Write(part) }

// Sum returns the Sum of all parts.
func (s *Summer) Sum() uint64 { return s.hasher.Sum64() }

// NameHash returns the xxh3-64 of a name's bytes. Admission and the look-up of names use it.
func NameHash(name string) uint64 { return xxh3.HashString(name) }

// Entry is one sample of a listing.
type Entry struct {
	Name    string // a key relative to the source's root, "/" between its elements; opaque bytes, unique, 1 to MaxName of them
	Size    uint32 // bytes; a sample of 4 GiB or more can't be kept
	Label   int32  // index of the class, or the user's own number
	Version uint64 // the source's own identity of this content. For a directory: mtime in ns (through a link, a hash of mtime and the file's identity). For an object store: a hash of the ETag. For a sample in a shard: the shard's version
	Parts   []Part // nil: the sample is one part. Else the parts in the order in which their bytes follow each other, Size in all

	Inode   uint64   // for a listing of files: the file's inode, or a hash over its parts' inodes; not in the manifest. NoInode: unknown
	Shard   *Shard   // the shard with the parts; nil: the source has no shards
	Offsets []uint64 // in the shard, of the first byte of each part. In a tar: multiples of ShardUnit, not 0
}

// A Listing is samples in order. A listing of many millions stores columns, and makes an Entry on request.
type Listing interface {
	Len() int
	At(i int) Entry
}

// Entries is a Listing in one slice.
type Entries []Entry

func (l Entries) Len() int       { return len(l) }
func (l Entries) At(i int) Entry { return l[i] }

// Shard is one of the files that a source consists of, if they hold several samples each.
type Shard struct {
	Name    string // below the source, opaque bytes
	Size    uint64 // bytes
	Version uint64 // the source's own identity of this content, as for a sample
	Records bool   // it is not a tar: its samples may begin at any byte, may overlap, and may have no part
}

// ShardUnit is the unit of tar files: the bytes of a file in them begin at a multiple of it, after a header.
const ShardUnit = 512

// Part is one of the files that make up a sample, such as the jpg and the json of a tar shard.
type Part struct {
	Ext  string // the extension, without the dot
	Size uint32 // bytes
	Sum  uint64 // the Sum of its bytes, if the source says it: only for records. 0: it does not
}

// clip quotes a name for an error message: on one line, and truncated if it is long.
func clip(name string) string {
	const most = 200
	if len(name) > most {
		return fmt.Sprintf("%q… (%d bytes)", name[:most], len(name))
	}
	return fmt.Sprintf("%q", name)
}
