package sample

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Section 9 of a manifest, version 4: the positions of the samples in larger files, at any byte. n is the number of samples, p the number of
// their parts.
//
//	shards     u64, number of shards
//	apart      u64, number of distances: p if some sample has more than one part, else 0
//	positions  u64[n]      of the sample's first part, in the concatenation of all shards
//	distances  i64[apart]  of each part from its sample's position, in bytes
//	rows       {size u64, version u64, samples u64} for each shard
//	names      strings: of each shard
//
// The shards with samples are listed, in the order of the samples, each once. A row has the number of the shard's samples, because a position
// does not tell the shard: a record may be empty, and then begin where its shard ends and the next one begins. All parts of a sample are in its
// shard. They may be in any order, far apart, or overlap those of other samples. A sample without parts is empty, and has the position of the
// sample before it in its shard, or of the shard's beginning.
const (
	recordHead = 16
	recordRow  = 24
)

// checkRecordPlaces returns an error for positions that a manifest can't hold.
func checkRecordPlaces(entries Listing) error {
	var s shardSet
	var last *Shard
	for i := range entries.Len() {
		e := entries.At(i)
		if e.Shard == nil || len(e.Offsets) != len(e.Parts) || e.Parts == nil && e.Size != 0 {
			return fmt.Errorf("sample %d, %s: %w: it is not in a shard, but other samples are", i, clip(e.Name), ErrEntry)
		}
		if last == nil || *e.Shard != *last {
			last = e.Shard
			if err := s.add(i, e); err != nil {
				return err
			}
		}
		for k, off := range e.Offsets {
			if off > last.Size || uint64(e.Parts[k].Size) > last.Size-off {
				return fmt.Errorf("sample %d, %s: %w: its part %q is at byte %d in a shard of %d bytes", i, clip(e.Name), ErrEntry, e.Parts[k].Ext, off, last.Size)
			}
		}
	}
	return nil
}

// recordPlaces writes the section. The entries have passed checkRecordPlaces.
func (e *encoder) recordPlaces(entries Listing, parts uint64) {
	e.section(secPlaces, func() {
		shards, samples, apart := recordShards(entries)
		if !apart {
			parts = 0
		}
		e.u64(uint64(len(shards)))
		e.u64(parts)
		start, at := uint64(0), 0
		for k, s := range shards {
			position := uint64(0)
			for range samples[k] {
				if offsets := entries.At(at).Offsets; len(offsets) > 0 {
					position = offsets[0]
				}
				e.u64(start + position)
				at++
			}
			start += s.Size
		}
		for i := range entries.Len() {
			if !apart {
				break
			}
			offsets := entries.At(i).Offsets
			for _, off := range offsets {
				e.u64(off - offsets[0])
			}
		}
		names := make([]string, len(shards))
		for k, s := range shards {
			e.u64(s.Size)
			e.u64(s.Version)
			e.u64(samples[k])
			names[k] = s.Name
		}
		e.strings(names)
	})
}

// recordShards returns the shards of a listing, the number of samples of each, and whether some sample has more than one part.
func recordShards(entries Listing) (shards []*Shard, samples []uint64, apart bool) {
	for i := range entries.Len() {
		one := entries.At(i)
		if n := len(shards); n == 0 || *shards[n-1] != *one.Shard {
			shards, samples = append(shards, one.Shard), append(samples, 0)
		}
		samples[len(samples)-1]++
		apart = apart || len(one.Offsets) > 1
	}
	return shards, samples, apart
}

// takeRecordPlaces verifies the section. Its checksum has been verified.
func (m *Manifest) takeRecordPlaces() error {
	b := m.section(secPlaces)
	n, p := uint64(len(m.sizes)), uint64(len(m.parts)/2)
	if uint64(len(b)) < recordHead+8*n {
		return fmt.Errorf("%w: places have %d bytes", ErrCorrupt, len(b))
	}
	le := binary.LittleEndian.Uint64
	count, apart := le(b), le(b[8:])
	l := &m.places
	l.records = true
	l.positions, b = column[uint64](b[recordHead:recordHead+8*n]), b[recordHead+8*n:]
	if apart != 0 && apart != p || 8*apart > uint64(len(b)) {
		return fmt.Errorf("%w: %d distances for %d parts", ErrCorrupt, apart, p)
	}
	l.far, b = column[uint64](b[:8*apart]), b[8*apart:]
	if count > uint64(len(b))/recordRow {
		return fmt.Errorf("%w: %d shards in %d bytes", ErrCorrupt, count, len(b))
	}
	names, err := decodeStrings(b[count*recordRow:], count)
	if err != nil {
		return fmt.Errorf("shards: %w", err)
	}
	l.starts, l.firsts = make([]uint64, 1, count+1), make([]uint32, 1, count+1)
	for i, name := range names {
		row := b[recordRow*i:]
		s, samples := Shard{Name: name, Size: le(row), Version: le(row[8:]), Records: true}, le(row[16:])
		if s.Size > math.MaxInt64 || l.starts[i] > math.MaxInt64-s.Size {
			return fmt.Errorf("%w: shard %d has %d bytes", ErrCorrupt, i, s.Size)
		}
		if samples == 0 || samples > n-uint64(l.firsts[i]) {
			return fmt.Errorf("%w: shard %d has %d samples", ErrCorrupt, i, samples)
		}
		l.shards, l.starts, l.firsts = append(l.shards, s), append(l.starts, l.starts[i]+s.Size), append(l.firsts, l.firsts[i]+uint32(samples))
	}
	if uint64(l.firsts[count]) != n {
		return fmt.Errorf("%w: the shards have %d samples, want %d", ErrCorrupt, l.firsts[count], n)
	}
	return m.checkRecordPlaces()
}

// takeSums verifies the section of checksums, which a listing without them does not have.
func (m *Manifest) takeSums() error {
	if m.head.find(secSums).off == 0 {
		return nil
	}
	m.partSums = column[uint64](m.section(secSums))
	if len(m.section(secSums)) != 4*len(m.parts) || !slices.ContainsFunc(m.partSums, func(sum uint64) bool { return sum != 0 }) {
		return fmt.Errorf("%w: %d bytes of checksums for %d parts, or none is known", ErrCorrupt, len(m.section(secSums)), len(m.parts)/2)
	}
	return nil
}

// checkRecordPlaces verifies that all parts are in their shards, and that the listing would be encoded in the same way.
func (m *Manifest) checkRecordPlaces() error {
	l, shard, apart := &m.places, 0, false
	for i, pos := range l.positions {
		before := l.starts[shard]
		if i > 0 {
			before = l.positions[i-1]
		}
		if uint32(i) == l.firsts[shard+1] {
			shard++
			before = l.starts[shard]
		}
		start, size := l.starts[shard], l.shards[shard].Size
		from, to := m.partStarts[i], m.partStarts[i+1]
		apart = apart || to-from > 1
		if pos < start || pos-start > size || from == to && (m.sizes[i] != 0 || pos != before) || from < to && l.distance(from) != 0 {
			return fmt.Errorf("%w: sample %d is not in its shard", ErrCorrupt, i)
		}
		for p := from; p < to; p++ {
			if at := pos - start + l.distance(p); at > size || uint64(m.parts[2*p+1]) > size-at {
				return fmt.Errorf("%w: sample %d is not in its shard", ErrCorrupt, i)
			}
		}
	}
	if apart != (l.far != nil) {
		return fmt.Errorf("%w: %d distances are too many or missing", ErrCorrupt, len(l.far))
	}
	return nil
}
