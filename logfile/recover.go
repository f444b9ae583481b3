package logfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"lcache/internal/trust"
	"lcache/sample"
)

// recovery is the recovery of one journal.
type recovery struct {
	num      int
	f        *os.File
	writable bool
	head     *Header
	gen      uint64
	begin    int64     // length of the header
	claims   [][]claim // by segment and sequence
	freed    []uint32  // by segment: blocks before this one are freed
	rounds   []uint32  // by segment: the newest round of its records
	end      int64     // offset of the next record
	rejected int
	other    error          // why the Logfile is dropped, although its generations count
	to       []sample.Index // for samples of an older manifest: their indices in this Store
}

// recover rebuilds Logfiles, packages and the free list, with two passes over each journal. The first pass finds the newest record of each
// block, and the newest claim of each place. The second fills the arrival lists in block order.
func (s *Store) recover() error {
	var found []*recovery
	claimed, err := s.table.read(s.readOnly) // newest generation that was written to a place, or will be
	if err != nil {
		s.log.Warn("table of places not read: samples overwritten just before a kill are detected by their checksums", "err", err)
	}
	for num := range logs {
		r, err := s.openJournal(num)
		if err != nil {
			s.log.Warn("logfile not recovered", "logfile", num, "err", err)
			continue
		}
		if r == nil {
			continue
		}
		s.readClaims(r, claimed)
		if r.other != nil {
			s.log.Warn("logfile not recovered", "logfile", num, "err", r.other)
			_ = r.f.Close()
			continue
		}
		found = append(found, r)
	}
	taken := make([]uint64, (s.format.Places+63)/64)
	shared := map[uint32]int{}
	for _, r := range found {
		if err := s.rebuild(r, claimed, taken, shared); err != nil {
			s.log.Warn("logfile not recovered", "logfile", r.num, "err", err)
		}
	}
	s.free = newFreeList(s.format.Places, len(s.devices), s.spare/len(s.devices), func(p uint32) bool { return taken[p/64]>>(p%64)&1 == 1 })
	for p, n := range shared {
		s.free.share(p, n)
	}
	if !s.readOnly {
		s.free.guard = s.askForPlaces
	}
	return nil
}

// openJournal returns nil and no error if the journal does not exist.
func (s *Store) openJournal(num int) (r *recovery, err error) {
	r = &recovery{num: num, writable: !s.readOnly}
	path := s.journalPath(num)
	mode := os.O_RDWR
	if s.readOnly {
		mode = os.O_RDONLY
	}
	r.f, err = trust.Open(path, mode)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil && s.readOnly {
		return nil, err
	}
	if err != nil {
		if r.f, err = trust.Open(path, os.O_RDONLY); err != nil {
			return nil, err
		}
		r.writable = false
		s.log.Warn("journal can't be written: new blocks are lost at the next restart", "logfile", num)
	}
	if r.head, r.gen, err = readHeader(r.f, s.format.seed()); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), r.f.Close())
	}
	r.begin = int64(headerSize(int(r.head.Segments)))
	r.other = r.head.check(s.format)
	if r.other == nil && (num == PackagesNum) != (r.head.Open > 0) {
		r.other = fmt.Errorf("%s is of version %d: it belongs to another log", path, r.head.version())
	}
	if r.other == nil && r.head.Fingerprint != s.print {
		r.to, r.other = s.ofOlder(r.head.Fingerprint)
	}
	return r, nil
}

func (s *Store) ofOlder(print sample.Fingerprint) (to []sample.Index, err error) {
	var o *Older
	if s.older != nil {
		o, err = s.older(print)
	}
	if err == nil && o == nil {
		err = errors.New("that manifest is unknown")
	}
	if err == nil {
		to, err = s.translate(o)
	}
	if err != nil {
		return nil, fmt.Errorf("it belongs to manifest %s, this one is %s: %w", print.Short(), s.print.Short(), err)
	}
	return to, nil
}

func readHeader(f *os.File, seed uint64) (*Header, uint64, error) {
	fixed := make([]byte, headerFixed)
	if _, err := f.ReadAt(fixed, 0); err != nil {
		return nil, 0, fmt.Errorf("read header: %w", err)
	}
	n, err := headerLength(fixed)
	if err != nil {
		return nil, 0, err
	}
	if st, err := f.Stat(); err != nil || st.Size() < int64(n) {
		return nil, 0, errors.Join(fmt.Errorf("read header of %d bytes: %w", n, io.ErrUnexpectedEOF), err)
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, 0); err != nil {
		return nil, 0, fmt.Errorf("read header: %w", err)
	}
	return decodeHeader(b, seed)
}

// rebuild makes the Logfile of r, and marks its places as taken.
func (s *Store) rebuild(r *recovery, claimed, taken []uint64, shared map[uint32]int) error {
	l, err := newLogfile(s, r.num, *r.head, r.gen)
	if err != nil {
		return errors.Join(err, r.f.Close())
	}
	if err := s.poolFor(l); err != nil {
		return errors.Join(err, unmapIndices(l.arr), r.f.Close())
	}
	l.written = make([][]uint64, len(l.segs))
	for seg := range r.claims {
		for len(r.claims[seg]) < int(r.freed[seg]) {
			r.claims[seg] = append(r.claims[seg], claim{})
		}
		s.settle(l, seg, r.claims[seg], int(r.freed[seg]), r.rounds[seg], claimed)
	}
	s.fillArrivals(l, r)
	held := int64(0)
	for seg := range r.claims {
		for i := range l.segs[seg].blocks {
			b := &l.segs[seg].blocks[i]
			if b.state != stateDisk {
				continue
			}
			tail := b.used < l.head.Block
			// Two blocks have the same generation and place: the number was reused while a journal could not be read.
			twice := taken[b.place/64]>>(b.place%64)&1 == 1 && !(tail && shared[b.place] > 0)
			if !r.claims[seg][i].filled || twice { // not filled: the second pass could not read the record again
				b.state, b.used = stateHole, l.head.Block
				continue
			}
			taken[b.place/64] |= 1 << (b.place % 64)
			if tail {
				shared[b.place]++
			}
			held++
		}
	}
	l.held.Store(held)
	l.journal = &journal{seed: s.format.seed(), path: s.journalPath(r.num), trace: s.trace, f: r.f, off: r.end}
	if !r.writable {
		l.journal.f = nil
		l.journal.closed.Store(true)
		err = r.f.Close()
	}
	s.setLog(r.num, l)
	s.log.Info("logfile recovered", "logfile", r.num, "epoch", r.head.Epoch, "blocks", held, "ignored", r.rejected)
	return err
}

// settle turns the claims of one segment into blocks. A block is lost if its place was written later for another block, or if the place's
// device is missing. A sample is lost if the next block does not continue it.
func (s *Store) settle(l *Logfile, seg int, claims []claim, freed int, round uint32, claimed []uint64) {
	for i := range claims {
		if c := &claims[i]; c.gen < claimed[c.place] || i < freed || c.gen != 0 && s.missing(c.place) {
			c.gen = 0
		}
	}
	w := uint64(s.format.Block)
	markCut(claims, w)
	sg := &l.segs[seg]
	most := l.head.Starts[seg+1] - l.head.Starts[seg]
	sg.freed = freed
	sg.round = round
	sg.blocks = make([]block, len(claims))
	l.written[seg] = make([]uint64, len(claims))
	for i, c := range claims {
		if c.cut {
			c.count--
		}
		if c.gen != 0 && uint64(sg.n)+uint64(c.count) > most {
			c.gen, claims[i].gen = 0, 0
		}
		if c.gen == 0 {
			sg.blocks[i] = block{ord: sg.n, used: uint32(w), state: stateHole}
			if i < freed {
				sg.blocks[i].state = stateFreed
			}
			continue
		}
		l.written[seg][i] = c.gen
		sg.blocks[i] = block{place: c.place, ord: sg.n, first: c.first, used: c.used, at: c.at, state: stateDisk}
		sg.n += c.count
	}
}

// markCut marks each claim whose last sample the following blocks, of w bytes, do not continue.
func markCut(claims []claim, w uint64) {
	for i := range claims {
		c := &claims[i]
		rest := uint64(c.spill) * 8
		for j := i + 1; c.gen != 0 && rest > 0; j++ {
			if j >= len(claims) || claims[j].gen == 0 || uint64(claims[j].first) != min(w, rest) {
				c.cut = true
				break
			}
			rest -= min(w, rest)
		}
	}
}

// fillArrivals is the second pass.
func (s *Store) fillArrivals(l *Logfile, r *recovery) {
	sc := newScanner(r.f, r.begin, s.format.recordLimit(), s.format.seed())
	for sc.next() {
		rec := &sc.rec
		if rec.segment >= r.head.Segments || int(rec.sequence) >= len(r.claims[rec.segment]) {
			continue
		}
		c := &r.claims[rec.segment][rec.sequence]
		if c.gen == 0 || c.gen != rec.generation || c.count != rec.count {
			continue
		}
		seg, seq := int(rec.segment), int(rec.sequence)
		sg := &l.segs[seg]
		list := l.arrivals(seg)[sg.blocks[seq].ord:l.endLocked(sg, seq)]
		for i := range list {
			list[i], _ = r.index(rec, i) // claimOf has checked it
		}
		c.filled = true
	}
}
