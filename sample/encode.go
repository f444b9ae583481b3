package sample

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"lcache/internal/disk/offheap"
)

// target is the file or memory that a manifest is written to.
type target interface {
	io.Writer
	io.WriterAt
}

// encoder writes sections one after the other. It has one buffer, so a manifest of any size is written with little memory. After the
// first error it does nothing.
type encoder struct {
	f     target
	buf   []byte
	at    uint64 // bytes of the file so far, without buf
	sum   *xxh3.Hasher
	table []section
	err   error
}

const spillSize = 256 << 10

func (e *encoder) u32(v uint32) { e.buf = binary.LittleEndian.AppendUint32(e.buf, v); e.spill() }
func (e *encoder) u64(v uint64) { e.buf = binary.LittleEndian.AppendUint64(e.buf, v); e.spill() }
func (e *encoder) str(s string) { e.buf = append(e.buf, s...); e.spill() }

func (e *encoder) spill() {
	if len(e.buf) >= spillSize {
		e.flush()
	}
}

func (e *encoder) flush() {
	if e.err == nil {
		_, e.err = e.f.Write(e.buf)
	}
	e.sum.Write(e.buf)
	e.at += uint64(len(e.buf))
	e.buf = e.buf[:0]
}

// section pads to the start of the next section, calls body to write it, and adds it to the table.
func (e *encoder) section(id uint32, body func()) {
	e.buf = append(e.buf, make([]byte, alignUp(e.at)-e.at)...)
	e.flush()
	e.sum.Reset()
	s := section{id: id, off: e.at}
	body()
	e.flush()
	s.len, s.sum = e.at-s.off, e.sum.Sum128().Bytes()
	e.table = append(e.table, s)
}

func (e *encoder) strings(list []string) {
	for _, s := range list {
		e.u32(uint32(len(s)))
	}
	for _, s := range list {
		e.str(s)
	}
}

// encode writes a whole manifest to the empty f, and returns its fingerprint. The entries have passed check.
func encode(f target, classes []string, entries Listing) (Fingerprint, error) {
	sections := 7
	exts, parts, sums := extensions(entries)
	if parts > 0 {
		sections += 3
	}
	version := uint32(versionPlain)
	if s := firstShard(entries); s != nil {
		if version = versionShards; s.Records {
			version, sections = versionRecords, 10 // the parts' sections are there even if all samples are empty
		}
		sections++
	}
	if sums {
		sections++
	}
	e := &encoder{f: f, sum: xxh3.New()}
	e.buf = make([]byte, headerSize(sections), spillSize+MaxName) // room for the header, which is written last
	e.flush()
	h := header{version: version, samples: uint64(entries.Len()), classes: uint64(len(classes))}
	e.section(secSizes, func() {
		for i := range entries.Len() {
			size := entries.At(i).Size
			e.u32(size)
			h.bytes += uint64(size)
		}
	})
	e.section(secLabels, func() {
		for i := range entries.Len() {
			e.u32(uint32(entries.At(i).Label))
		}
	})
	e.section(secVersions, func() {
		for i := range entries.Len() {
			e.u64(entries.At(i).Version)
		}
	})
	e.section(secNameHashes, func() {
		for i := range entries.Len() {
			e.u64(NameHash(entries.At(i).Name))
		}
	})
	e.section(secClasses, func() { e.strings(classes) })
	if parts > 0 || version == versionRecords {
		e.parts(entries, exts)
	}
	switch version {
	case versionShards:
		e.places(entries)
	case versionRecords:
		e.recordPlaces(entries, parts)
	}
	if sums {
		e.sums(entries)
	}
	e.names(entries)
	h.length, h.table = e.at, e.table
	if e.err == nil {
		_, e.err = f.WriteAt(h.encode(), 0)
	}
	return h.fingerprint(), e.err
}

// LeastBytes returns a lower bound of the length of a listing's plain manifest, with one pass over the samples.
func LeastBytes(entries Listing) uint64 {
	bytes, parts := uint64(0), uint64(0)
	for i := range entries.Len() {
		e := entries.At(i)
		bytes += 4 + 4 + 8 + 8 + 8 + uint64(len(e.Name)) // size, label, version, hash and offset of the name
		parts += uint64(len(e.Parts))
	}
	if parts > 0 {
		bytes += 4*uint64(entries.Len()) + 8*parts
	}
	return bytes
}

func (e *encoder) parts(entries Listing, exts []string) {
	e.section(secPartStarts, func() {
		n := uint32(0)
		for i := range entries.Len() {
			e.u32(n)
			n += uint32(len(entries.At(i).Parts))
		}
		e.u32(n)
	})
	e.section(secParts, func() {
		place := make(map[string]uint32, len(exts))
		for i, ext := range exts {
			place[ext] = uint32(i)
		}
		for i := range entries.Len() {
			for _, p := range entries.At(i).Parts {
				e.u32(place[p.Ext])
				e.u32(p.Size)
			}
		}
	})
	e.section(secExts, func() {
		e.u32(uint32(len(exts)))
		e.strings(exts)
	})
}

func (e *encoder) sums(entries Listing) {
	e.section(secSums, func() {
		for i := range entries.Len() {
			for _, p := range entries.At(i).Parts {
				e.u64(p.Sum)
			}
		}
	})
}

func (e *encoder) names(entries Listing) {
	e.section(secNameOffs, func() {
		off := uint64(0)
		for i := range entries.Len() {
			e.u64(off)
			off += uint64(len(entries.At(i).Name))
		}
		e.u64(off)
	})
	e.section(secNames, func() {
		for i := range entries.Len() {
			e.str(entries.At(i).Name)
		}
	})
}

// extensions lists the parts' extensions in order of their first use, and counts the parts. sums reports whether some part has a checksum.
func extensions(entries Listing) (exts []string, parts uint64, sums bool) {
	seen := make(map[string]bool)
	for i := range entries.Len() {
		list := entries.At(i).Parts
		parts += uint64(len(list))
		for _, p := range list {
			sums = sums || p.Sum != 0
			if !seen[p.Ext] {
				seen[p.Ext] = true
				exts = append(exts, p.Ext)
			}
		}
	}
	return exts, parts, sums
}

// check returns an error for a listing that a manifest can't hold.
func check(classes []string, entries Listing) error {
	if uint64(entries.Len()) > MaxSamples {
		return fmt.Errorf("%w: %d samples, a manifest holds at most %d: split the dataset", ErrEntry, entries.Len(), uint64(MaxSamples))
	}
	for i, c := range classes {
		if len(c) > MaxName {
			return fmt.Errorf("%w: class %d has a name of %d bytes, at most %d: rename it", ErrEntry, i, len(c), MaxName)
		}
	}
	parts := uint64(0)
	for i := range entries.Len() {
		e := entries.At(i)
		if err := e.check(); err != nil {
			return fmt.Errorf("sample %d, %s: %w", i, clip(e.Name), err)
		}
		parts += uint64(len(e.Parts))
	}
	if parts > math.MaxUint32 {
		return fmt.Errorf("%w: %d parts, a manifest holds at most %d: split the dataset", ErrEntry, parts, uint64(math.MaxUint32))
	}
	if s := firstShard(entries); s != nil {
		check := checkPlaces
		if s.Records {
			check = checkRecordPlaces
		}
		if err := check(entries); err != nil {
			return err
		}
	}
	return checkUnique(entries)
}

func (e *Entry) check() error {
	if len(e.Name) == 0 || len(e.Name) > MaxName {
		return fmt.Errorf("%w: its name has %d bytes, want 1 to %d: rename it", ErrEntry, len(e.Name), MaxName)
	}
	if e.Parts == nil {
		return nil
	}
	if len(e.Parts) > MaxParts {
		return fmt.Errorf("%w: it has %d parts, at most %d: split it", ErrEntry, len(e.Parts), MaxParts)
	}
	sum := uint64(0)
	for _, p := range e.Parts {
		if len(p.Ext) > MaxName {
			return fmt.Errorf("%w: a part's extension has %d bytes, at most %d: rename it", ErrEntry, len(p.Ext), MaxName)
		}
		if p.Sum != 0 && (e.Shard == nil || !e.Shard.Records) {
			return fmt.Errorf("%w: its part %q has a checksum, but it is not a record", ErrEntry, p.Ext)
		}
		sum += uint64(p.Size)
	}
	if len(e.Parts) == 0 || sum != uint64(e.Size) {
		return fmt.Errorf("%w: its %d parts have %d bytes, the sample has %d", ErrEntry, len(e.Parts), sum, e.Size)
	}
	return nil
}

// checkUnique finds a name that occurs twice, with the same hash index as a look-up.
func checkUnique(entries Listing) error {
	hashes, err := offheap.Make[uint64](entries.Len()) // outside Go's heap: the listing may already have many millions of entries
	if err != nil {
		return err
	}
	defer offheap.Free(hashes)
	for i := range entries.Len() {
		hashes[i] = NameHash(entries.At(i).Name)
	}
	starts, err := offheap.Make[uint32](buckets(len(hashes)) + 1)
	if err != nil {
		return err
	}
	defer offheap.Free(starts)
	order, err := offheap.Make[Index](len(hashes))
	if err != nil {
		return err
	}
	defer offheap.Free(order)
	fillHashIndex(hashes, starts, order)
	compare := func(a, b Index) int {
		if c := cmp.Compare(hashes[a], hashes[b]); c != 0 {
			return c
		}
		return cmp.Or(strings.Compare(entries.At(int(a)).Name, entries.At(int(b)).Name), cmp.Compare(a, b))
	}
	first, second, crowd := None, None, 0
	for b := range len(starts) - 1 {
		bucket := order[starts[b]:starts[b+1]]
		slices.SortFunc(bucket, compare)
		for k := 1; k < len(bucket); k++ {
			i, j := bucket[k-1], bucket[k]
			if i < first && hashes[i] == hashes[j] && entries.At(int(i)).Name == entries.At(int(j)).Name {
				first, second = i, j
			}
		}
		crowd = max(crowd, len(bucket))
	}
	if first != None {
		return fmt.Errorf("%w: samples %d and %d have the same name %s: a name must be unique", ErrEntry, first, second, clip(entries.At(int(first)).Name))
	}
	if crowd > mostCrowd {
		return fmt.Errorf("%w: the hashes of %d names begin alike, at most %d: such names are made on purpose, so check where they come from, or rename them", ErrEntry, crowd, mostCrowd)
	}
	return nil
}

// mostCrowd is the maximum number of names in one bucket of the index; the mean is about eight. A look-up scans a bucket, so without this bound the time for all look-ups could grow with the square of the number of names.
const mostCrowd = 256
