package logfile

import (
	"context"
	"errors"
	"fmt"

	"lcache/internal/disk/durable"
	"lcache/sample"

	"golang.org/x/sys/unix"
)

// ErrOlder means that a Logfile belongs to an earlier manifest. It can't be appended to, and its records can't be rewritten.
var ErrOlder = errors.New("the logfile belongs to an older manifest")

const (
	unordered   = 2       // open packages of packages that were made of Logfiles
	mostNumbers = 1 << 20 // limit of packages: the address of a sample has no room for more segments
)

// Unorder turns the segments of a Logfile into finished packages, in addition to the existing packages, and removes the Logfile. It writes
// only records and partly filled last blocks, and takes no more space than that. It calls moved for each sample while it can be read at
// both locations. The caller prevents appends to the Logfile and to packages meanwhile. Unorder waits for writes in flight until ctx ends.
// An error with ok set means that the packages exist, and only the Logfile's journal could not be removed.
//
// The records get new generations. So after a crash the blocks belong to the packages if their journal exists, and otherwise to the Logfile.
func (s *Store) Unorder(ctx context.Context, num int, moved func(index sample.Index, seg, number int, off uint64)) (ok bool, err error) {
	if num != 0 && num != 1 {
		return false, fmt.Errorf("unorder logfile: there is no Logfile %d", num)
	}
	if p := s.Packages(); p != nil {
		if err := p.settle(s); err != nil {
			return false, fmt.Errorf("unorder logfile %d: %w", num, err)
		}
		defer p.rewriting.release()
	}
	_ = s.slotTurn.take(context.Background())
	defer s.slotTurn.release()
	if ok, err = s.unorder(ctx, num, moved); err != nil {
		return ok, fmt.Errorf("unorder logfile %d: %w", num, err)
	}
	return true, nil
}

func (s *Store) unorder(ctx context.Context, num int, moved func(index sample.Index, seg, number int, off uint64)) (ok bool, err error) {
	l, packages := s.Log(num), s.Packages()
	switch {
	case s.readOnly:
		return false, ErrReadOnly
	case s.isClosed():
		return false, ErrClosed
	case l == nil:
		return true, nil
	case l.IsOlder() || packages != nil && packages.log.IsOlder() && !packages.log.Empty():
		return false, ErrOlder
	}
	var old *Logfile // of the existing packages
	if packages != nil {
		old = packages.log
		for in := range packages.open {
			if err := packages.Finish(ctx, in); err != nil {
				return false, err
			}
		}
		if err := old.Flush(ctx); err != nil {
			return false, err
		}
	}
	if err := l.toDisk(ctx); err != nil {
		return false, err
	}
	made, from, err := s.gather(old, l)
	if err != nil {
		return false, err
	}
	s.setLog(PackagesNum, made)
	if old != nil {
		err = old.disposeMoved(s)
	}
	for number, f := range from {
		if f.l == l {
			made.Arrivals(number, func(_ int, index sample.Index, off uint64) bool { moved(index, f.seg, number, off); return true })
		}
	}
	s.setLog(num, nil)
	return true, errors.Join(err, l.disposeMoved(s), s.trace.Remove(s.journalPath(num)))
}

// toDisk writes all blocks to disk: it waits for those in flight, and writes the tails. If the tails need more arena blocks than are free, it changes nothing.
func (l *Logfile) toDisk(ctx context.Context) error {
	if err := l.Flush(ctx); err != nil {
		return err
	}
	if n := len(packTails(l.openTails(), l.head.Block)); n > l.s.free.len() {
		return fmt.Errorf("%d places are needed for partly filled blocks, %d are free", n, l.s.free.len())
	}
	if err := l.WriteTails(ctx); err != nil {
		return err
	}
	_ = l.s.syncAll(ctx, l) // the bytes before the records; a failed sync is counted, and costs reads after a power cut
	return nil
}

// origin is the segment that a package was made of. For a new package l is nil, and most is the number of samples that it takes.
type origin struct {
	l    *Logfile
	seg  int
	most uint64
}

// gather makes a log of packages from the packages of old, which keep their numbers, and the segments of l. The new journal replaces the old one.
func (s *Store) gather(old, l *Logfile) (made *Logfile, from []origin, err error) {
	h, from := merged(old, l)
	if err := h.check(s.format); err != nil {
		return nil, nil, err
	}
	if len(from) > mostNumbers {
		return nil, nil, fmt.Errorf("there would be %d packages, and no more than %d are possible", len(from), mostNumbers)
	}
	made, err = newLogfile(s, PackagesNum, h, s.gen.Add(1))
	if err != nil {
		return nil, nil, err
	}
	if err = s.poolFor(made); err == nil {
		made.journal, err = s.writeGathered(made, from)
	}
	if err != nil {
		return nil, nil, errors.Join(err, unmapIndices(made.arr))
	}
	return made, from, nil
}

// merged returns the header of the new packages, and the origin of each. Empty packages give their numbers to segments of l. After them
// come as many empty packages as the arena has room for, for jobs that put samples into packages.
func merged(old, l *Logfile) (h Header, from []origin) {
	h = Header{Fingerprint: l.head.Fingerprint, SegmentBlocks: l.head.SegmentBlocks, Align: l.head.Align, Block: l.head.Block, Open: unordered}
	var unused []int
	if old != nil && !old.Empty() {
		h.Open, h.SegmentBlocks = old.head.Open, max(h.SegmentBlocks, old.head.SegmentBlocks)
		for k := range old.segs {
			from = append(from, origin{l: old, seg: k})
			if old.Gone(k) == old.Blocks(k) {
				unused = append(unused, k)
			}
		}
	}
	for k := range l.segs {
		switch {
		case l.Gone(k) == l.Blocks(k):
		case len(unused) > 0:
			from[unused[0]] = origin{l: l, seg: k}
			unused = unused[1:]
		default:
			from = append(from, origin{l: l, seg: k})
		}
	}
	segments := len(l.segs)
	most := 2*(l.head.Starts[segments]-l.head.Starts[0])/uint64(segments) + 16 // twice the mean
	for n := len(unused); n < l.s.format.Places/int(h.SegmentBlocks)+2*int(h.Open) && len(from) < mostNumbers; n++ {
		from = append(from, origin{most: most})
	}
	h.Segments = uint32(len(from))
	h.Starts = make([]uint64, len(from)+1)
	for number, f := range from {
		h.Starts[number+1] = h.Starts[number] + f.room()
	}
	return h, from
}

// room returns the number of samples of the package. A package made of a Logfile's segment takes no further samples.
func (f origin) room() uint64 {
	switch {
	case f.l == nil:
		return f.most
	case f.l.num == PackagesNum:
		return f.l.head.Starts[f.seg+1] - f.l.head.Starts[f.seg]
	}
	sg := &f.l.segs[f.seg]
	sg.mu.Lock()
	defer sg.mu.Unlock()
	return uint64(sg.n)
}

// writeGathered gives each package of made its blocks, and writes their records to a journal, which replaces the journal of packages as a whole.
func (s *Store) writeGathered(made *Logfile, from []origin) (*journal, error) {
	path := s.journalPath(PackagesNum)
	v, err := s.trace.Begin(path)
	if err != nil {
		return nil, fmt.Errorf("begin journal: %w", err)
	}
	w := &recordWriter{v: v, out: encodeHeader(&made.head, made.gen, s.format.seed())}
	_ = durable.Fallocate(v.File, unix.FALLOC_FL_KEEP_SIZE, int64(len(w.out))+s.format.rewriteSlack())
	shared := map[uint32]uint64{} // by arena block: the generation of tails that share it
	for number, f := range from {
		if err == nil && f.l != nil {
			err = made.take(number, f, shared, w)
		}
		if err == nil {
			err = w.flush(1 << 20)
		}
	}
	if err == nil {
		err = w.flush(0)
	}
	j := &journal{seed: s.format.seed(), path: path, trace: s.trace, f: v.File, off: w.size}
	if err == nil {
		err = v.Commit()
		if err != nil && isThere(v.File, path) {
			j.fail(err) // the new journal is in place, but may not survive a crash of the machine
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), v.Discard())
	}
	return j, nil
}

// recordWriter writes the records of a new journal.
type recordWriter struct {
	v    *durable.Version
	out  []byte
	size int64
}

// flush writes the collected records if they have more than some bytes.
func (w *recordWriter) flush(more int) error {
	if len(w.out) <= more {
		return nil
	}
	n, err := w.v.Write(w.out)
	w.size += int64(n)
	w.out = w.out[:0]
	return err
}

// take copies a segment's blocks and arrival list to an empty package, and encodes the records. It fails if a block is in memory. No other goroutine uses made yet.
func (made *Logfile) take(number int, f origin, shared map[uint32]uint64, w *recordWriter) error {
	source, sg := &f.l.segs[f.seg], &made.segs[number]
	source.mu.Lock()
	sg.blocks = append(sg.blocks, source.blocks...)
	sg.n, sg.freed = source.n, source.freed
	sg.round = 1
	if f.l.num == PackagesNum {
		sg.round = source.round
	}
	copy(made.arrivals(number), f.l.arrivals(f.seg)[:source.n])
	source.mu.Unlock()
	for seq := range sg.blocks {
		b := &sg.blocks[seq]
		if b.state.inMemory() {
			return ErrBusy
		}
		if b.state != stateDisk {
			continue
		}
		made.held.Add(1)
		gen, ok := shared[b.place]
		if !ok {
			gen = made.s.gen.Add(1)
			if b.used < made.head.Block {
				shared[b.place] = gen
			}
		}
		if r, indices := made.recordOfLocked(number, seq, gen); r.used > 0 {
			w.out = appendRecord(w.out, &r, indices, made.s.format.seed())
		}
	}
	return nil
}

// disposeMoved ends a log whose arena blocks belong to the packages now.
func (l *Logfile) disposeMoved(s *Store) error {
	for seg := range l.segs {
		l.detach(seg)
	}
	return s.dispose(l)
}
