package logfile

import (
	"errors"

	"lcache/internal/disk/durable"
)

// claim is the content of a journal's newest record for one segment and sequence.
type claim struct {
	gen         uint64 // 0: no record
	place       uint32
	used, first uint32
	count       uint32
	spill       uint32 // bytes of the last sample that are in the following blocks, in units of 8 bytes
	at          uint16
	cut         bool // the last sample is incomplete: the arrival list leaves it out
	filled      bool // the second pass has found the record again
}

// readClaims is the first pass. It truncates a torn end.
func (s *Store) readClaims(r *recovery, claimed []uint64) {
	newest := r.gen
	r.claims = make([][]claim, r.head.Segments)
	r.freed = make([]uint32, r.head.Segments)
	r.rounds = make([]uint32, r.head.Segments)
	for seg := range r.rounds {
		r.rounds[seg] = r.head.Epoch
	}
	sc := newScanner(r.f, r.begin, s.format.recordLimit(), s.format.seed())
	good := int64(0)
	for sc.next() {
		good += int64(recordSize(int(sc.rec.count)))
		newest = max(newest, sc.rec.generation)
		if r.other == nil && s.note(r, &sc.rec, claimed) != nil {
			r.rejected++
		}
	}
	s.gen.Store(max(s.gen.Load(), newest))
	s.stats.recovered.Add(uint64(sc.records))
	s.stats.ignored.Add(uint64(r.rejected))
	s.finishScan(r, sc, good)
}

// note stores the claim of a record.
func (s *Store) note(r *recovery, rec *record, claimed []uint64) error {
	if err := s.checkPosition(r, rec); err != nil {
		return err
	}
	if rec.isFreed() {
		if r.inRound(rec) {
			r.freed[rec.segment] = max(r.freed[rec.segment], rec.sequence)
		}
		return nil
	}
	c, err := s.claimOf(r, rec)
	if err != nil {
		return err
	}
	claimed[c.place] = max(claimed[c.place], c.gen)
	if !r.inRound(rec) {
		return nil
	}
	list := &r.claims[rec.segment]
	for len(*list) <= int(rec.sequence) {
		*list = append(*list, claim{})
	}
	if old := &(*list)[rec.sequence]; c.gen > old.gen {
		*old = c
	}
	return nil
}

// inRound reports whether a record belongs to its package's newest round. The first record of a newer round drops the claims of earlier rounds.
func (r *recovery) inRound(rec *record) bool {
	round := &r.rounds[rec.segment]
	if rec.epoch > *round {
		*round = rec.epoch
		r.claims[rec.segment], r.freed[rec.segment] = nil, 0
	}
	return rec.epoch == *round
}

// finishScan sets where the next record goes: after the last good one. It truncates what follows.
func (s *Store) finishScan(r *recovery, sc *scanner, good int64) {
	r.end = sc.end
	st, err := r.f.Stat()
	switch {
	case sc.err != nil || err != nil:
		// Unreadable bytes may hold good records: keep them, and continue after them.
		s.stats.readErrors.Add(1)
		s.log.Warn("journal read in part", "logfile", r.num, "err", errors.Join(sc.err, err))
		if err != nil {
			r.writable = false
			return
		}
		r.end = (st.Size() + 7) &^ 7
	case st.Size() > sc.end && r.writable && r.other == nil:
		s.log.Info("journal: torn end cut off", "logfile", r.num, "bytes", st.Size()-sc.end)
		err := s.trace.Report(durable.Change{Step: durable.StepTruncate, Path: s.journalPath(r.num), Off: sc.end})
		if err == nil {
			err = r.f.Truncate(sc.end)
		}
		if err != nil {
			s.log.Warn("journal: cut off torn end", "logfile", r.num, "err", err)
		}
	}
	if err == nil && st.Size() > r.begin+good {
		s.stats.ignoredBytes.Add(uint64(st.Size() - r.begin - good))
	}
}

// checkPosition checks epoch, generation and position of a record. The checksum has shown that a Store wrote the record, but it may be
// of an earlier time. Neither checkPosition nor claimOf panics, whatever the record contains.
func (s *Store) checkPosition(r *recovery, rec *record) error {
	limit := r.head.SegmentBlocks // a freed record has a number of blocks, other records have a block number
	switch {
	case rec.epoch != r.head.Epoch && r.head.Open == 0 || rec.epoch == 0 && r.head.Open > 0 || rec.generation <= r.gen:
		return errors.New("of another logfile")
	case rec.segment >= r.head.Segments || rec.sequence > limit || rec.sequence == limit && !rec.isFreed():
		return errors.New("out of range")
	}
	return nil
}

// claimOf checks place, bytes and samples of a record, and returns the record's claim.
func (s *Store) claimOf(r *recovery, rec *record) (c claim, err error) {
	if err := s.checkBytes(rec); err != nil {
		return c, err
	}
	end, err := s.endOf(r, rec)
	if err != nil {
		return c, err
	}
	return claim{gen: rec.generation, place: rec.place, at: uint16(rec.at / unit), used: rec.used, first: rec.first, count: rec.count,
		spill: uint32((end - uint64(rec.used)) / 8)}, nil
}

// checkBytes checks that a record's bytes are within one arena block.
func (s *Store) checkBytes(rec *record) error {
	switch {
	case uint64(rec.place) >= uint64(s.format.Places):
		return errors.New("place out of range")
	case rec.used == 0 || uint64(rec.used)%uint64(s.format.Align) != 0 || rec.at%unit != 0 || uint64(rec.at)+uint64(rec.used) > uint64(s.format.Block):
		return errors.New("bytes out of range")
	case rec.first > rec.used || rec.count == 0 && rec.first != rec.used:
		return errors.New("first sample out of range")
	}
	return nil
}

// endOf returns the end of the last sample that begins in the block, counted from the block's start. The samples must be in the manifest and fill the block.
func (s *Store) endOf(r *recovery, rec *record) (end uint64, err error) {
	end = uint64(rec.first)
	for i := range int(rec.count) {
		index, known := r.index(rec, i)
		if !known || r.to == nil && !s.present(index) || s.size(index) == 0 || end >= uint64(rec.used) {
			return 0, errors.New("samples out of range")
		}
		end += s.format.pad(int(s.size(index)))
	}
	w := uint64(s.format.Block)
	if end < uint64(rec.used) || uint64(rec.used) < w && end != uint64(rec.used) || end > w+1<<32 {
		return 0, errors.New("samples do not fill the block")
	}
	return end, nil
}
