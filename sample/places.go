package sample

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Section 9 of a manifest, version 2: the positions of the samples in shards. n is the number of samples, p the number of their parts.
//
//	positions  u64[n]  of the sample's first part, in the concatenation of all shards
//	distances  u32[p]  of each part from its sample's position, in units of 512 bytes
//	shards     u32, number of shards
//	rows       {size u64, version u64} for each shard
//	names      strings: of each shard
//
// The shards with samples are listed, in the order of the samples, each once. A position is the offset of a part's first byte, after a header of 512 bytes.
// So the byte before it is always in the same shard, even if the part is empty and at the end of its shard. One word a sample is enough because
// tar aligns all files to 512 bytes.
const (
	shardRow    = 16
	maxDistance = math.MaxUint32
)

// places has the positions of a manifest's samples.
type places struct {
	positions []uint64
	distances []uint32
	shards    []Shard
	starts    []uint64 // of each shard, and the end of the last one

	records bool     // the shards are of version 4, and the fields that follow take the place of distances
	far     []uint64 // by part: its distance; nil: no sample has more than one part
	firsts  []uint32 // by shard: its first sample, and the number of samples
}

// firstShard returns the shard of the first sample that is in one; nil: the samples are in no shards.
func firstShard(entries Listing) *Shard {
	for i := range entries.Len() {
		if s := entries.At(i).Shard; s != nil {
			return s
		}
	}
	return nil
}

// checkPlaces returns an error for positions that a manifest can't hold.
func checkPlaces(entries Listing) error {
	var s shardSet
	var last *Shard
	for i := range entries.Len() {
		e := entries.At(i)
		if e.Shard == nil || len(e.Parts) == 0 || len(e.Offsets) != len(e.Parts) {
			return fmt.Errorf("sample %d, %s: %w: it is not in a shard, but other samples are", i, clip(e.Name), ErrEntry)
		}
		if last == nil || *e.Shard != *last {
			last = e.Shard
			if err := s.add(i, e); err != nil {
				return err
			}
		}
		first := slices.Min(e.Offsets)
		for k, off := range e.Offsets {
			size := uint64(e.Parts[k].Size)
			if off == 0 || off%ShardUnit != 0 || off > last.Size || size > last.Size-off || (off-first)/ShardUnit > maxDistance {
				return fmt.Errorf("sample %d, %s: %w: its part %q is at byte %d in a shard of %d bytes", i, clip(e.Name), ErrEntry, e.Parts[k].Ext, off, last.Size)
			}
		}
	}
	return nil
}

// shardSet checks the shards of a listing.
type shardSet struct {
	seen    map[string]bool
	records bool
	total   uint64
}

// add adds the shard of sample i, the first of it.
func (s *shardSet) add(i int, e Entry) error {
	shard := e.Shard
	if s.seen == nil {
		s.seen, s.records = map[string]bool{}, shard.Records
	}
	switch {
	case s.seen[shard.Name]:
		return fmt.Errorf("sample %d, %s: %w: its shard comes twice", i, clip(e.Name), ErrEntry)
	case shard.Records != s.records:
		return fmt.Errorf("sample %d, %s: %w: one shard is a tar, another one is not", i, clip(e.Name), ErrEntry)
	case len(shard.Name) > MaxName || shard.Size > math.MaxInt64 || s.total > math.MaxInt64-shard.Size:
		return fmt.Errorf("shard %s: %w: %d bytes", clip(shard.Name), ErrEntry, shard.Size)
	}
	s.seen[shard.Name] = true
	s.total += shard.Size
	return nil
}

// places writes the section. The entries have passed checkPlaces.
func (e *encoder) places(entries Listing) {
	e.section(secPlaces, func() {
		var shards []*Shard
		start := uint64(0)
		for i := range entries.Len() {
			s := entries.At(i).Shard
			if n := len(shards); n == 0 || *shards[n-1] != *s {
				if n > 0 {
					start += shards[n-1].Size
				}
				shards = append(shards, s)
			}
			e.u64(start + slices.Min(entries.At(i).Offsets))
		}
		for i := range entries.Len() {
			offsets := entries.At(i).Offsets
			first := slices.Min(offsets)
			for _, off := range offsets {
				e.u32(uint32((off - first) / ShardUnit))
			}
		}
		e.u32(uint32(len(shards)))
		names := make([]string, len(shards))
		for i, s := range shards {
			e.u64(s.Size)
			e.u64(s.Version)
			names[i] = s.Name
		}
		e.strings(names)
	})
}

// takePlaces verifies the section. Its checksum has been verified.
func (m *Manifest) takePlaces() error {
	b := m.section(secPlaces)
	n, p := uint64(len(m.sizes)), uint64(len(m.parts)/2)
	if uint64(len(b)) < 8*n+4*p+4 {
		return fmt.Errorf("%w: places have %d bytes", ErrCorrupt, len(b))
	}
	l := &m.places
	l.positions, l.distances = column[uint64](b[:8*n]), column[uint32](b[8*n:8*n+4*p])
	b = b[8*n+4*p:]
	count := uint64(binary.LittleEndian.Uint32(b))
	if b = b[4:]; count*shardRow > uint64(len(b)) {
		return fmt.Errorf("%w: %d shards in %d bytes", ErrCorrupt, count, len(b))
	}
	names, err := decodeStrings(b[count*shardRow:], count)
	if err != nil {
		return fmt.Errorf("shards: %w", err)
	}
	l.starts = make([]uint64, 1, count+1)
	for i := range names {
		s := Shard{Name: names[i], Size: binary.LittleEndian.Uint64(b[shardRow*i:]), Version: binary.LittleEndian.Uint64(b[shardRow*i+8:])}
		if s.Size > math.MaxInt64 || l.starts[i] > math.MaxInt64-s.Size {
			return fmt.Errorf("%w: shard %d has %d bytes", ErrCorrupt, i, s.Size)
		}
		l.shards, l.starts = append(l.shards, s), append(l.starts, l.starts[i]+s.Size)
	}
	return m.checkPlaces()
}

func (m *Manifest) checkPlaces() error {
	l, shard := &m.places, 0
	for i, pos := range l.positions {
		for shard < len(l.shards) && pos > l.starts[shard+1] {
			shard++
		}
		if shard == len(l.shards) || pos <= l.starts[shard] || m.partStarts[i] == m.partStarts[i+1] {
			return fmt.Errorf("%w: sample %d is not in a shard", ErrCorrupt, i)
		}
		off, size := pos-l.starts[shard], l.shards[shard].Size
		for p := m.partStarts[i]; p < m.partStarts[i+1]; p++ {
			if at := off + uint64(l.distances[p])*ShardUnit; at > size || uint64(m.parts[2*p+1]) > size-at {
				return fmt.Errorf("%w: sample %d ends behind its shard", ErrCorrupt, i)
			}
		}
	}
	return nil
}

// setPlace completes an entry.
func (m *Manifest) setPlace(i Index, e *Entry) {
	l := &m.places
	if l.positions == nil {
		return
	}
	shard := m.ShardOf(i)
	e.Shard, e.Offsets = &l.shards[shard], m.offsets(i, shard)
}

// offsets returns the offsets of sample i's parts in its shard; nil: it has none.
func (m *Manifest) offsets(i Index, shard int) []uint64 {
	l, from, to := &m.places, m.partStarts[i], m.partStarts[i+1]
	if from == to {
		return nil
	}
	list := make([]uint64, 0, to-from)
	for p := from; p < to; p++ {
		list = append(list, l.positions[i]-l.starts[shard]+l.distance(p))
	}
	return list
}

// distance returns the distance of a part from its sample's position, modulo 2⁶⁴.
func (l *places) distance(part uint32) uint64 {
	switch {
	case !l.records:
		return uint64(l.distances[part]) * ShardUnit
	case l.far == nil:
		return 0
	}
	return l.far[part]
}

// Shards returns the source's shards with samples, in order. nil: the source has no shards. The caller must not change them.
func (m *Manifest) Shards() []Shard { return m.places.shards }

// ShardOf returns the position in Shards of sample i's shard.
func (m *Manifest) ShardOf(i Index) int {
	if m.places.records {
		at, found := slices.BinarySearch(m.places.firsts, i)
		if !found {
			at--
		}
		return at
	}
	at, _ := slices.BinarySearch(m.places.starts, m.places.positions[i])
	return at - 1
}

// PlaceOf returns the position in Shards of sample i's shard, and where in the shard its first part begins.
func (m *Manifest) PlaceOf(i Index) (shard int, at uint64) {
	shard = m.ShardOf(i)
	return shard, m.places.positions[i] - m.places.starts[shard]
}

// Span returns the range of sample i's parts in the concatenation of all shards, from the first byte to after the last. The parts of a record
// may be far apart, so its range begins at its first part and has the length of all parts.
func (m *Manifest) Span(i Index) (from, to uint64) {
	if from = m.places.positions[i]; m.places.records {
		return from, from + uint64(m.sizes[i])
	}
	for p := m.partStarts[i]; p < m.partStarts[i+1]; p++ {
		to = max(to, from+uint64(m.places.distances[p])*ShardUnit+uint64(m.parts[2*p+1]))
	}
	return from, to
}

func samePlace(a, b *Entry) bool {
	return slices.Equal(a.Offsets, b.Offsets) && (a.Shard == nil) == (b.Shard == nil) && (a.Shard == nil || *a.Shard == *b.Shard)
}
