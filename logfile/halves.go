package logfile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"lcache/internal/disk/blockio"
)

// Begin starts an empty Logfile A (half 0) or B (half 1). There must be none, or an empty one. The new journal replaces the old one at
// once. starts has one entry more than there are segments: segment k takes at most starts[k+1]-starts[k] samples. Begin keeps the
// slice. It fills in Block and Align of h if they are 0.
func (s *Store) Begin(half int, h Header, starts []uint64) (*Logfile, error) {
	if half != 0 && half != 1 {
		return nil, fmt.Errorf("begin logfile: there is no half %d", half)
	}
	if h.Open != 0 {
		return nil, errors.New("begin logfile: packages are begun by BeginPackages")
	}
	h.Starts = starts
	return s.begin(half, h)
}

// begin starts an empty log: a Logfile or packages.
func (s *Store) begin(half int, h Header) (*Logfile, error) {
	if s.readOnly {
		return nil, fmt.Errorf("begin logfile in half %d: %w", half, ErrReadOnly)
	}
	if h.Block == 0 && h.Align == 0 {
		h.Block, h.Align = uint32(s.format.Block), uint32(s.format.Align)
	}
	if err := h.check(s.format); err != nil {
		return nil, fmt.Errorf("begin logfile in half %d: %w", half, err)
	}
	_ = s.slotTurn.take(context.Background())
	defer s.slotTurn.give()
	old := s.Log(half)
	switch {
	case s.isClosed():
		return nil, fmt.Errorf("begin logfile in half %d: %w", half, ErrClosed)
	case old != nil && !old.Empty():
		return nil, fmt.Errorf("begin logfile: half %d still holds blocks of epoch %d: drop it first", half, old.head.Epoch)
	}
	l, err := newLogfile(s, half, h, s.gen.Add(1))
	if err != nil {
		return nil, fmt.Errorf("begin logfile in half %d: %w", half, err)
	}
	if err := s.poolFor(l); err != nil {
		return nil, errors.Join(fmt.Errorf("begin logfile in half %d: %w", half, err), unmapIndices(l.arr))
	}
	expect := int64(s.format.Places)*int64(recordSize(1)) + int64(h.Starts[h.Segments]-h.Starts[0])*4
	if half == PackageHalf {
		expect = s.format.rewriteSlack() // it grows when it is rewritten
	}
	l.journal, err = beginJournal(s.journalPath(half), &h, l.gen, s.format.seed(), expect, s.trace)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("begin logfile in half %d: %w", half, err), unmapIndices(l.arr))
	}
	s.setHalf(half, l)
	if old != nil {
		err = s.dispose(old)
	}
	return l, err
}

// poolFor gives l the write buffers of its half. It makes larger ones if those are too few.
func (s *Store) poolFor(l *Logfile) error {
	need := int(l.head.Segments) + s.spare
	if l.half == PackageHalf {
		need = 2*int(l.head.Open) + 2
	}
	s.mu.Lock()
	p := s.pools[l.half]
	s.mu.Unlock()
	if p == nil || cap(p.free) < need {
		fresh, err := newPool(need, s.format.Block)
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.pools[l.half] = fresh
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

func (s *Store) setHalf(half int, l *Logfile) {
	var p *Packages
	if half == PackageHalf && l != nil {
		p = newPackages(l)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots[half] = l
	if half == PackageHalf {
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
func (s *Store) Drop(half int) error {
	if half != 0 && half != 1 {
		return fmt.Errorf("drop logfile: there is no half %d", half)
	}
	return s.drop(half)
}

func (s *Store) drop(half int) error {
	if s.readOnly {
		return fmt.Errorf("drop logfile in half %d: %w", half, ErrReadOnly)
	}
	_ = s.slotTurn.take(context.Background())
	defer s.slotTurn.give()
	l := s.Log(half)
	if l == nil || s.isClosed() {
		return nil
	}
	s.setHalf(half, nil)
	if err := errors.Join(s.dispose(l), s.trace.Remove(s.journalPath(half))); err != nil {
		return fmt.Errorf("drop logfile in half %d: %w", half, err)
	}
	return nil
}

// dispose ends a Logfile that was removed from its half.
func (s *Store) dispose(l *Logfile) error {
	l.end.Do(func() { close(l.done) })
	for seg := range l.segs {
		sg := &l.segs[seg]
		sg.lock <- struct{}{} // done has woken a waiting Append
		l.freeUpTo(seg, l.Blocks(seg))
		sg.leave()
	}
	l.journal.dropped.Store(true)
	// Now there are no blocks, and the arrival lists are used only while there is one.
	return errors.Join(l.journal.close(), unmapIndices(l.arr))
}
