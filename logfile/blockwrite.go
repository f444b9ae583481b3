package logfile

import (
	"errors"

	"lcache/internal/disk/blockio"
	"lcache/sample"
)

var errNoPlace = errors.New("no arena block is free")

// blockWrite is the write of a full block. Each buffer has one, and both are in use at the same time.
type blockWrite struct {
	l        *Logfile
	seg, seq uint32
	round    uint32 // of the segment
	buf      uint32
	place    uint32
	avoid    uint32 // an arena block on a device that failed this write, or noPlace
	old      uint32 // arena block of the tail that this block supersedes, or noPlace
	retried  bool
	gen      uint64
	op       blockio.Op
}

// launch submits the writes that have an arena block, and fails the others. No lock may be held.
func (s *Store) launch(fs ...*blockWrite) {
	for _, f := range fs {
		if f.place == noPlace {
			s.landed(f, errNoPlace)
			continue
		}
		d, off := s.where(f.place)
		d.blocks.Add(1)
		// Drawn while f has the place, so that the newest generation of a place belongs to its content.
		f.gen = s.gen.Add(1)
		f.op = blockio.Op{File: d.arena.Load(), Write: true, Offset: off, Buf: f.l.pool.bytes(f.buf), Done: func(_ *blockio.Op, err error) {
			s.launch(s.free.landed(f.place)...)
			s.landed(f, err)
		}}
		s.submit(&f.op)
	}
}

// landed ends a write: the block is on disk, is retried, or becomes a hole. It runs on a goroutine of the engine, or on the goroutine
// that found no arena block.
func (s *Store) landed(f *blockWrite, err error) {
	if err != nil && f.place != noPlace && !f.retried {
		s.retry(f)
		return
	}
	l, seg, seq, buf, old := f.l, int(f.seg), int(f.seq), f.buf, f.old
	place := uint32(noPlace) // to be released
	var lost *lostSamples
	sg := &l.segs[seg]
	sg.mu.Lock()
	switch {
	case sg.round != f.round || sg.blocks[seq].state != stateInFlight: // freed meanwhile
		place = f.place
	case err != nil:
		place = f.place
		lost = l.loseLocked(seg, seq)
	default:
		b := &sg.blocks[seq]
		b.state, b.place, b.at = stateDisk, f.place, 0
		l.recordLocked(seg, seq, f.gen)
	}
	sg.mu.Unlock()
	// From here on f belongs to the next user of the buffer.
	l.pool.put(buf)
	s.launch(s.free.release(place, old)...)
	if lost != nil {
		s.reportHole(l, seg, seq, lost, err)
	}
	l.writes.done()
}

// retry writes the block to another arena block, on another device if there is one. The bad arena block goes to the end of the free
// list: if it were never used again, a failing disk would use up all arena blocks, and writes would wait forever.
func (s *Store) retry(f *blockWrite) {
	f.retried = true
	bad := f.place
	f.avoid = bad
	if s.free.take(f) {
		s.launch(f)
	}
	s.launch(s.free.release(bad)...)
}

// recordLocked queues the journal record of a block that is on disk.
func (l *Logfile) recordLocked(seg, seq int, gen uint64) {
	r, indices := l.recordOfLocked(seg, seq, gen)
	if r.used == 0 {
		return
	}
	l.journal.add(&r, indices)
	if l.num == PackagesNum {
		l.journal.live.Add(int64(recordSize(len(indices))))
	}
	l.s.dirty.Store(true)
	l.s.wake()
}

// recordOfLocked returns the record of a block on disk, and the samples that it names. If recovery left out the block's last sample
// because it was incomplete, the record ends before that sample: recovery accepts only records whose samples fill their bytes. used is 0 if there is nothing to record.
func (l *Logfile) recordOfLocked(seg, seq int, gen uint64) (record, []sample.Index) {
	sg := &l.segs[seg]
	b := &sg.blocks[seq]
	indices := l.arrivals(seg)[b.ord:l.endLocked(sg, seq)]
	end := uint64(b.first)
	for _, index := range indices {
		end += l.s.format.pad(int(l.s.size(index)))
	}
	used := uint32(min(uint64(b.used), end))
	if used > 0 {
		b.used = used
	}
	return record{generation: gen, epoch: sg.round, segment: uint32(seg), sequence: uint32(seq),
		place: b.place, at: uint32(b.at) * unit, used: used, first: b.first}, indices
}

// endLocked returns the position in the arrival list after the last sample that begins in a block.
func (l *Logfile) endLocked(sg *segment, seq int) uint32 {
	if seq+1 < len(sg.blocks) {
		return sg.blocks[seq+1].ord
	}
	return sg.n
}

// lostSamples are the arguments of Options.Lost.
type lostSamples struct {
	indices []sample.Index
	offsets []uint64
}

// loseLocked makes a block a hole and returns the samples that were complete until now. A sample that is still being appended counts as
// complete. A block that was freed or lost before returns none.
func (l *Logfile) loseLocked(seg, seq int) *lostSamples {
	sg := &l.segs[seg]
	b := &sg.blocks[seq]
	lost := &lostSamples{}
	begin := uint64(seq) * uint64(l.head.Block)
	add := func(ord uint32, index sample.Index, off uint64) {
		n := l.s.format.pad(int(l.s.size(index)))
		unfinished := ord == sg.n-1 && off+n > l.lengthLocked(sg)
		if l.s.present(index) && off+n > begin && (unfinished || l.wholeLocked(sg, off, n)) {
			lost.indices = append(lost.indices, index)
			lost.offsets = append(lost.offsets, off)
		}
	}
	if b.first > 0 { // the sample that begins in an earlier block and ends in this one
		for j := seq - 1; j >= 0; j-- {
			if last := sg.blocks[j].ord; last < b.ord {
				l.samplesLocked(seg, j, func(ord uint32, index sample.Index, off uint64) {
					if ord == b.ord-1 {
						add(ord, index, off)
					}
				})
				break
			}
		}
	}
	l.samplesLocked(seg, seq, add)
	b.state, b.used = stateHole, l.head.Block
	l.held.Add(-1)
	return lost
}

// reportHole logs and counts a hole, and calls Options.Lost. No lock may be held.
func (s *Store) reportHole(l *Logfile, seg, seq int, lost *lostSamples, err error) {
	s.stats.holes.Add(1)
	s.stats.lostSamples.Add(uint64(len(lost.indices)))
	s.log.Warn("block lost", "logfile", l.num, "segment", seg, "block", seq, "samples", len(lost.indices), "err", err)
	if s.lost != nil && len(lost.indices) > 0 {
		s.lost(l, seg, lost.indices, lost.offsets)
	}
}
