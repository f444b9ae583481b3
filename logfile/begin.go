package logfile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"lcache/internal/disk/blockio"
)

// Begin starts an empty Logfile A (0) or B (1). There must be none, or an empty one. The new journal replaces the old one at
// once. starts has one entry more than there are segments: segment k takes at most starts[k+1]-starts[k] samples. Begin keeps the
// slice. It fills in Block and Align of h if they are 0.
func (s *Store) Begin(num int, h Header, starts []uint64) (*Logfile, error) {
	if num != 0 && num != 1 {
		return nil, fmt.Errorf("begin logfile: there is no Logfile %d", num)
	}
	if h.Open != 0 {
		return nil, errors.New("begin logfile: packages are begun by BeginPackages")
	}
	h.Starts = starts
	return s.begin(num, h)
}

// begin starts an empty log: a Logfile or packages.
func (s *Store) begin(num int, h Header) (*Logfile, error) {
	if s.readOnly {
		return nil, fmt.Errorf("begin logfile %d: %w", num, ErrReadOnly)
	}
	if h.Block == 0 && h.Align == 0 {
		h.Block, h.Align = uint32(s.format.Block), uint32(s.format.Align)
	}
	if err := h.check(s.format); err != nil {
		return nil, fmt.Errorf("begin logfile %d: %w", num, err)
	}
	_ = s.slotTurn.take(context.Background())
	defer s.slotTurn.release()
	old := s.Log(num)
	switch {
	case s.isClosed():
		return nil, fmt.Errorf("begin logfile %d: %w", num, ErrClosed)
	case old != nil && !old.Empty():
		return nil, fmt.Errorf("begin logfile: Logfile %d still holds blocks of epoch %d: drop it first", num, old.head.Epoch)
	}
	l, err := newLogfile(s, num, h, s.gen.Add(1))
	if err != nil {
		return nil, fmt.Errorf("begin logfile %d: %w", num, err)
	}
	if err := s.poolFor(l); err != nil {
		return nil, errors.Join(fmt.Errorf("begin logfile %d: %w", num, err), unmapIndices(l.arr))
	}
	expect := int64(s.format.Places)*int64(recordSize(1)) + int64(h.Starts[h.Segments]-h.Starts[0])*4
	if num == PackagesNum {
		expect = s.format.rewriteSlack() // it grows when it is rewritten
	}
	l.journal, err = beginJournal(s.journalPath(num), &h, l.gen, s.format.seed(), expect, s.trace)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin logfile %d: %w", num, err), unmapIndices(l.arr))
	}
	s.setLog(num, l)
	if old != nil {
		err = s.dispose(old)
	}
	return l, err
}

// poolFor gives l the write buffers of its number. It makes larger ones if those are too few.
func (s *Store) poolFor(l *Logfile) error {
	need := int(l.head.Segments) + s.spare
	if l.num == PackagesNum {
		need = 2*int(l.head.Open) + 2
	}
	s.mu.Lock()
	p := s.pools[l.num]
	s.mu.Unlock()
	if p == nil || cap(p.free) < need {
		fresh, err := newPool(need, s.format.Block)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.pools[l.num] = fresh
		s.mu.Unlock()
		if p != nil {
			s.outgrown = append(s.outgrown, p)
		}
		p = fresh
	}
	l.pool = p
	s.freePools()
	return nil
}

// freePools unmaps replaced write buffers that are not in use.
func (s *Store) freePools() {
	s.outgrown = slices.DeleteFunc(s.outgrown, func(p *pool) bool {
		if !p.idle() {
			return false
		}
		_ = s.io.Unregister(p.mem) // an error means that the caller had not registered them
		if err := blockio.Free(p.mem); err != nil {
			s.log.Warn("free write buffers", "err", err)
		}
		return true
	})
}

func (s *Store) setLog(num int, l *Logfile) {
	var p *Packages
	if num == PackagesNum && l != nil {
		p = newPackages(l)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[num] = l
	if num == PackagesNum {
		s.packages = p
	}
}

func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Drop frees all arena blocks of a Logfile, and deletes its journal. Reads of it in flight may return wrong bytes. Later calls of its
// methods find no blocks.
func (s *Store) Drop(num int) error {
	if num != 0 && num != 1 {
		return fmt.Errorf("drop logfile: there is no Logfile %d", num)
	}
	return s.drop(num)
}

func (s *Store) drop(num int) error {
	if s.readOnly {
		return fmt.Errorf("drop logfile %d: %w", num, ErrReadOnly)
	}
	_ = s.slotTurn.take(context.Background())
	defer s.slotTurn.release()
	l := s.Log(num)
	if l == nil || s.isClosed() {
		return nil
	}
	s.setLog(num, nil)
	if err := errors.Join(s.dispose(l), s.trace.Remove(s.journalPath(num))); err != nil {
		return fmt.Errorf("drop logfile %d: %w", num, err)
	}
	return nil
}

// dispose ends a Logfile that was removed from the Store.
func (s *Store) dispose(l *Logfile) error {
	l.end.Do(func() { close(l.done) })
	for seg := range l.segs {
		sg := &l.segs[seg]
		sg.lock <- struct{}{} // done has woken a waiting Append
		l.freeUpTo(seg, l.Blocks(seg))
		sg.leave()
	}
	l.journal.dropped.Store(true)
	// Now the Logfile has no blocks, and the arrival lists are used only while it has one.
	return errors.Join(l.journal.close(), unmapIndices(l.arr))
}
