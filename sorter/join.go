package sorter

import (
	"errors"
	"slices"

	"lcache/chunker"
	"lcache/logfile"
	"lcache/offheap"
	"lcache/sample"
)

// worthJoining is the least share of the log's samples that the newer Logfile must hold for a join. Joining moves all other samples; below this share it
// is cheaper to read the newer Logfile's samples from the source again.
const worthJoining = 0.1

// ErrNotWorth says that joining two Logfiles would cost more than it saves.
var ErrNotWorth = errors.New("the newer one holds too little")

// Join lays out the samples of from behind the samples that each segment of into holds. The line is in no epoch's order: no sample of it is delivered
// from the window.
func (m *Mover) Join(into, from *logfile.Logfile) (line *chunker.Line, err error) {
	if into.IsOlder() || float64(into.Held()) < worthJoining*float64(into.Held()+from.Held()) {
		return nil, ErrNotWorth
	}
	n := m.Cache.Manifest.Len()
	line = &chunker.Line{}
	if line.Segment, err = offheap.Make[uint32](n); err != nil {
		return nil, err
	}
	if line.Order, err = offheap.Make[sample.Index](n); err != nil {
		line.Free()
		return nil, err
	}
	for i := range line.Segment {
		line.Segment[i] = chunker.None
	}
	m.placeBoth(line, into, from)
	return line, nil
}

// placeBoth gives every sample of two Logfiles a segment of into, its own if it lies there, and lists the samples by segment.
func (m *Mover) placeBoth(line *chunker.Line, into, from *logfile.Logfile) {
	h := into.Header()
	counts := make([]uint64, h.Segments+1)
	put := func(index sample.Index, seg int) {
		line.Segment[index] = uint32(seg)
		counts[seg+1]++
	}
	rooms := make([]freeRoom, h.Segments)
	for seg := range rooms {
		samples, bytes := into.Room(seg)
		rooms[seg] = freeRoom{seg, samples, bytes}
		into.Arrivals(seg, func(_ int, index sample.Index, _ uint64) bool {
			if line.Segment[index] == chunker.None && m.Cache.Locations.In(index, into.Half()) {
				put(index, seg)
			}
			return true
		})
	}
	for k := range int(from.Header().Segments) {
		from.Arrivals(k, func(_ int, index sample.Index, _ uint64) bool {
			if line.Segment[index] != chunker.None || !m.Cache.Locations.In(index, from.Half()) {
				return true
			}
			var seg int
			if seg, rooms = firstFit(rooms, chunker.Padded(uint32(m.Cache.StoredSize(index)), int(h.Align))); seg >= 0 {
				put(index, seg)
			}
			return true
		})
	}
	for k := range h.Segments {
		counts[k+1] += counts[k]
	}
	line.Starts = counts
	at := slices.Clone(counts)
	for i, seg := range line.Segment {
		if seg != chunker.None {
			line.Order[at[seg]] = sample.Index(i)
			at[seg]++
		}
	}
}

// freeRoom is the room that a segment has left.
type freeRoom struct {
	seg     int
	samples int
	bytes   uint64
}

// firstFit takes room for a sample in one of the first segments of rooms; -1: none has enough. rest is rooms without the segments at its beginning that
// are full, or that were given up because neither they nor the next segments had enough.
func firstFit(rooms []freeRoom, bytes uint64) (seg int, rest []freeRoom) {
	const ahead = 16
	for ; len(rooms) > 0; rooms = rooms[1:] {
		if rooms[0].samples <= 0 {
			continue
		}
		for i := range min(len(rooms), ahead) {
			if r := &rooms[i]; r.samples > 0 && r.bytes >= bytes {
				r.samples--
				r.bytes -= bytes
				return r.seg, rooms
			}
		}
		if len(rooms) <= ahead {
			break // others, which are smaller, may still fit
		}
	}
	return -1, rooms
}
