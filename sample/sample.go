// Package sample owns the identity of a training sample: its index, its name, and the checksum of its bytes.
//
// It has two files that are portable between machines. The [Manifest] is the immutable list of
// a dataset's samples in framework order; its [Fingerprint] names the dataset. [Sums] is a file of its own that learns the
// xxh3-64 checksum of each sample's bytes when they are read for the first time. A third file, [Inodes], is of one machine: it has which file these bytes were read from. [Remap] carries checksums from one listing
// to the next. Names stay on disk and are read when they are asked for; everything else of a manifest is verified when
// it is opened. The package reads no sample's bytes and knows no source.
//
// Every method of an open Manifest, Sums or Inodes may be called concurrently, except Close, which must come after all others.
package sample

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"

	"github.com/zeebo/xxh3"
)

// Index is a sample's place in the manifest, from 0. It is an alias: a []uint32 is a []Index.
type Index = uint32

// None is no sample's index. See [Remap].
const None Index = math.MaxUint32

// Limits of a manifest. They bound the memory of a reader, and keep None free.
const (
	MaxSamples = math.MaxUint32 - 1 // samples in one manifest
	MaxName    = 64 << 10           // bytes of a name, a class or a part's extension
	MaxParts   = math.MaxUint16     // parts of one sample
)

var (
	// ErrCorrupt says that a file's bytes differ from the ones that were written. The file can be made again: a manifest by listing the source, sums by reading it.
	ErrCorrupt = errors.New("corrupt")
	// ErrVersion says that a file was written by another version of lcache, whose format this one does not know.
	ErrVersion = errors.New("unknown format version")
	// ErrOtherManifest says that checksums or stored lengths belong to a manifest with another fingerprint.
	ErrOtherManifest = errors.New("checksums or lengths of another manifest")
	// ErrEntry says that an entry can't be in a manifest: no name, too long a name, a name given twice, parts that are not the whole.
	ErrEntry = errors.New("invalid entry")
)

// Fingerprint identifies a manifest, and so a dataset: equal fingerprints mean equal names, sizes, labels, versions and order.
type Fingerprint [16]byte

// String gives all 32 hex digits.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Short gives the first 8 hex digits, for people.
func (f Fingerprint) Short() string { return hex.EncodeToString(f[:4]) }

// Sum is the identity of a sample's bytes: xxh3-64 without a seed.
func Sum(b []byte) uint64 { return xxh3.Hash(b) }

// A Summer makes the Sum of bytes that come in parts. The zero Summer has none yet.
type Summer struct{ hasher xxh3.Hasher }

// Add adds the next part.
func (s *Summer) Add(part []byte) { _, _ = s.hasher.Write(part) }

// Sum is the Sum of all parts.
func (s *Summer) Sum() uint64 { return s.hasher.Sum64() }

// NameHash is the xxh3-64 of a name's bytes. Admission goes by it, and so does the look-up of a name.
func NameHash(name string) uint64 { return xxh3.HashString(name) }

// Entry is one sample of a listing.
type Entry struct {
	Name    string // a key relative to the source's root, "/" between its elements; opaque bytes, unique, 1 to MaxName of them
	Size    uint32 // bytes; a sample of 4 GiB or more can't be kept
	Label   int32  // index of the class, or the user's own number
	Version uint64 // the source's own identity of this content: mtime in ns for a directory (through a link, a hash of that and of which file it is), a hash of the ETag for an object store, the shard's own for a sample in a shard
	Parts   []Part // nil: the sample is one part. Else the parts in the order in which their bytes follow each other, Size in all

	Inode   uint64   // of a listing of files: which file it is, or a hash over its parts; not in the manifest. NoInode: not known
	Shard   *Shard   // that has the parts; nil: the source has no shards
	Offsets []uint64 // in the shard, of the first byte of each part: multiples of ShardUnit, not 0
}

// A Listing is samples in their order. One of many millions is kept in columns, and makes an Entry when it is asked for it.
type Listing interface {
	Len() int
	At(i int) Entry
}

// Entries is a Listing that is one slice.
type Entries []Entry

func (l Entries) Len() int       { return len(l) }
func (l Entries) At(i int) Entry { return l[i] }

// Shard is one of the tar files that a source consists of.
type Shard struct {
	Name    string // below the source, opaque bytes
	Size    uint64 // bytes
	Version uint64 // the source's own identity of this content, as that of a sample
}

// ShardUnit is what tar files consist of: bytes of a file in one begin at a multiple of it, behind a header.
const ShardUnit = 512

// Part is one of the files that make up a sample, such as the jpg and the json of a tar shard.
type Part struct {
	Ext  string // the extension, without the dot
	Size uint32 // bytes
}

// clip quotes a name for an error message: one line, and not all of a name of 64 KiB.
func clip(name string) string {
	const most = 200
	if len(name) > most {
		return fmt.Sprintf("%q… (%d bytes)", name[:most], len(name))
	}
	return fmt.Sprintf("%q", name)
}
