package logfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"lcache/internal/errcode"
	"math"

	"github.com/zeebo/xxh3"
)

// FORMAT is a small file in every directory of a cache. It holds what can't change after the arena was cut into places:
//
//	 0         8         12      16          32      36      40       48     52    56         64
//	+---------+---------+-------+-----------+-------+-------+--------+------+-----+----------+
//	| magic 8 | version | size  | uuid 16   | block | align | places | dirs | dir | checksum |
//	|         | u32     | u32   |           | u32   | u32   | u64    | u32  | u32 | u64      |
//	+---------+---------+-------+-----------+-------+-------+--------+------+-----+----------+
//
// All fields are little-endian. checksum is xxh3-64 of the bytes before it. dirs is the number of directories of the cache, and dir the
// number of this one, from 0. Place p is in directory p % dirs at offset (p / dirs)·block, so the same directories in another order
// would be another arena.
const (
	formatName    = "FORMAT"
	arenaName     = "arena"
	lockName      = "LOCK"
	journalPrefix = "journal-"
	packsName     = journalPrefix + "packages"

	formatMagic   = "LCACHEF\n"
	formatVersion = 1
	formatSize    = 64

	// unit is the alignment of everything that is read or written in the arena: addresses, offsets and lengths.
	unit = 4096

	maxBlock  = 64 << 20
	maxPlaces = math.MaxUint32 - 1 // the last number is noPlace
)

// ErrVersion is the class of errors about files whose version this program does not know.
var ErrVersion = errcode.New(errcode.Version, "unknown format version")

// ErrDamaged is the class of errors about a cache that can't be opened. Making it again costs only time.
var ErrDamaged = errcode.New(errcode.CacheDamaged, "make the cache again by ingest")

// Format is the part of a cache's geometry that is fixed at its creation.
type Format struct {
	Block  int      // bytes of a block: a multiple of 4096, at most 64 MiB
	Align  int      // samples are padded to a multiple of this many bytes: 64 or 8
	UUID   [16]byte // of this cache; it seeds the checksums of the journals, so that records of another cache never verify
	Places int      // blocks in the arena, over all directories
}

func (f Format) check() error {
	switch {
	case f.Block < unit || f.Block%unit != 0 || f.Block > maxBlock:
		return fmt.Errorf("block of %d bytes: must be a multiple of %d and at most %d", f.Block, unit, maxBlock)
	case f.Align != 8 && f.Align != 64:
		return fmt.Errorf("alignment of samples %d: must be 8 or 64", f.Align)
	case f.Places < 1 || f.Places > maxPlaces:
		return fmt.Errorf("%d places: must be between 1 and %d", f.Places, maxPlaces)
	case f.UUID == [16]byte{}:
		return errors.New("the cache's uuid is zero: draw a random one")
	}
	return nil
}

// placesIn returns the number of places in directory dir of dirs.
func (f Format) placesIn(dir, dirs int) int {
	return (f.Places - dir + dirs - 1) / dirs
}

func (f Format) seed() uint64 { return xxh3.Hash(f.UUID[:]) }

// pad rounds a sample's length up to the alignment.
func (f Format) pad(n int) uint64 {
	a := uint64(f.Align)
	return (uint64(n) + a - 1) &^ (a - 1)
}

func encodeFormat(f Format, dir, dirs int) []byte {
	b := make([]byte, formatSize)
	copy(b, formatMagic)
	le := binary.LittleEndian
	le.PutUint32(b[8:], formatVersion)
	le.PutUint32(b[12:], formatSize)
	copy(b[16:], f.UUID[:])
	le.PutUint32(b[32:], uint32(f.Block))
	le.PutUint32(b[36:], uint32(f.Align))
	le.PutUint64(b[40:], uint64(f.Places))
	le.PutUint32(b[48:], uint32(dirs))
	le.PutUint32(b[52:], uint32(dir))
	le.PutUint64(b[56:], xxh3.Hash(b[:56]))
	return b
}

// decodeFormat accepts exactly the bytes that encodeFormat makes.
func decodeFormat(b []byte) (f Format, dir, dirs int, err error) {
	le := binary.LittleEndian
	if len(b) < 12 || string(b[:8]) != formatMagic {
		return f, 0, 0, fmt.Errorf("not a cache's FORMAT file: %w", ErrDamaged)
	}
	// In every version the first 64 bytes end in their checksum. That distinguishes a damaged file from another version.
	if len(b) >= formatSize && le.Uint64(b[56:]) != xxh3.Hash(b[:56]) {
		return f, 0, 0, fmt.Errorf("checksum does not match: it is damaged, %w", ErrDamaged)
	}
	if v := le.Uint32(b[8:]); v != formatVersion {
		return f, 0, 0, fmt.Errorf("%w %d (this program knows %d): use the program that made the cache, or make a new one by ingest",
			ErrVersion, v, formatVersion)
	}
	if len(b) != formatSize || le.Uint32(b[12:]) != formatSize {
		return f, 0, 0, fmt.Errorf("%d bytes long, want %d: it is damaged, %w", len(b), formatSize, ErrDamaged)
	}
	copy(f.UUID[:], b[16:])
	f.Block, f.Align = int(le.Uint32(b[32:])), int(le.Uint32(b[36:]))
	places := le.Uint64(b[40:])
	dirs, dir = int(le.Uint32(b[48:])), int(le.Uint32(b[52:]))
	if places > maxPlaces || dir >= dirs {
		return f, 0, 0, fmt.Errorf("%d places, directory %d of %d: out of range", places, dir, dirs)
	}
	f.Places = int(places)
	return f, dir, dirs, f.check()
}
