package logfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"lcache/internal/disk/blockio"
)

// tail is the partly filled last block of a segment, to be written to a shared arena block.
type tail struct {
	seg, seq int
	used     uint32
	at       uint32 // offset in the arena block, in bytes
}

// bin is the tails that share an arena block.
type bin struct {
	tails []tail
	size  uint32
}

// WriteTails writes the partly filled buffers of all segments as short blocks, several to an arena block, and returns the buffers to the
// pool. It is for the end of an ingest; Close does the same. Appends wait meanwhile. A later Append reads its segment's short block
// back. A tail that has not grown since it was read back stays where it is. A tail without a free arena block, or that can't be
// written, becomes a hole. An error means only that ctx ended first: tails not written by then stay in memory.
func (l *Logfile) WriteTails(ctx context.Context) error {
	for seg := range l.segs {
		select {
		case l.segs[seg].lock <- struct{}{}:
			defer l.segs[seg].leave()
		case <-ctx.Done():
			return fmt.Errorf("write tails: segment %d is being appended to: %w", seg, context.Cause(ctx))
		}
	}
	l.putBack()
	for _, b := range packTails(l.openTails(), l.head.Block) {
		if err := l.writeBin(ctx, b); err != nil {
			return fmt.Errorf("write tails: %w", err)
		}
	}
	return nil
}

// putBack turns open buffers that have not grown since they were read back into short blocks on disk again. The caller holds the locks of all segments.
func (l *Logfile) putBack() {
	for seg := range l.segs {
		sg := &l.segs[seg]
		sg.mu.Lock()
		if b := sg.lastLocked(); b != nil && b.state == stateOpen && sg.old.place != noPlace && sg.old.used == b.used {
			l.pool.put(b.place)
			b.state, b.place, b.at = stateDisk, sg.old.place, sg.old.at
			sg.takeOldLocked()
		}
		sg.mu.Unlock()
	}
}

// openTails lists the tails. The caller holds the locks of all segments.
func (l *Logfile) openTails() (tails []tail) {
	for seg := range l.segs {
		sg := &l.segs[seg]
		sg.mu.Lock()
		if b := sg.lastLocked(); b != nil && b.state == stateOpen {
			tails = append(tails, tail{seg: seg, seq: len(sg.blocks) - 1, used: b.used})
		}
		sg.mu.Unlock()
	}
	return tails
}

// packTails distributes tails over arena blocks, largest first, each to the first one where it fits: at most 11/9 of the minimum number of arena blocks.
func packTails(tails []tail, block uint32) (bins []bin) {
	slices.SortStableFunc(tails, func(a, b tail) int { return cmp.Compare(b.used, a.used) })
	open := 0 // bins before this one are full
	for _, t := range tails {
		n := roundUp(t.used)
		i := open
		for ; i < len(bins) && bins[i].size+n > block; i++ {
		}
		if i == len(bins) {
			bins = append(bins, bin{})
		}
		t.at = bins[i].size
		bins[i].tails = append(bins[i].tails, t)
		bins[i].size += n
		for open < len(bins) && bins[open].size == block {
			open++
		}
	}
	return bins
}

// writeBin writes the tails of one arena block. The caller holds their segments' locks.
func (l *Logfile) writeBin(ctx context.Context, b bin) error {
	place, ok, err := l.s.takePlace(ctx)
	if err != nil {
		return err
	}
	if !ok {
		l.loseTails(b, errNoPlace) // the budget is guaranteed, tails are not
		return nil
	}
	buf, err := l.pool.get(ctx, nil)
	if err != nil {
		l.s.launch(l.s.free.release(place)...)
		return err
	}
	mem := l.pool.bytes(buf)[:b.size]
	for _, t := range b.tails {
		sg := &l.segs[t.seg]
		sg.mu.Lock()
		n := copy(mem[t.at:], l.pool.bytes(sg.blocks[t.seq].place)[:t.used])
		sg.mu.Unlock()
		clear(mem[int(t.at)+n : t.at+roundUp(t.used)])
	}
	for try := 0; ; try++ {
		gen := l.s.gen.Add(1)
		owned := place
		release := func() {
			l.pool.put(buf)
			l.s.launch(l.s.free.release(owned)...)
		}
		d, off := l.s.where(place)
		d.blocks.Add(1)
		err := l.s.transfer(ctx, d.write, &blockio.Op{File: d.arena.Load(), Write: true, Offset: off, Buf: mem}, release)
		switch {
		case errors.Is(err, ErrQuarantined) && errors.Is(err, errGivenUp):
			return l.writeBin(ctx, b) // with another arena block and buffer: the device may use this buffer until the transfer ends
		case errors.Is(err, errGivenUp):
			return err
		case err == nil:
			l.tailsWritten(b, place, gen)
			l.pool.put(buf)
			return nil
		}
		next, ok, late := l.s.takePlace(ctx)
		err = errors.Join(err, late)
		l.s.launch(l.s.free.release(place)...)
		if place = next; try > 0 || !ok {
			l.s.launch(l.s.free.release(next)...)
			l.pool.put(buf)
			l.loseTails(b, err)
			return nil
		}
	}
}

// tailsWritten turns the tails into short blocks on disk.
func (l *Logfile) tailsWritten(b bin, place uint32, gen uint64) {
	l.s.free.share(place, len(b.tails))
	var old []uint32
	for _, t := range b.tails {
		sg := &l.segs[t.seg]
		sg.mu.Lock()
		e := &sg.blocks[t.seq]
		if e.state == stateOpen {
			l.pool.put(e.place)
			old = append(old, sg.takeOldLocked())
			e.state, e.place, e.at = stateDisk, place, uint16(t.at/unit)
			l.recordLocked(t.seg, t.seq, gen)
		} else {
			old = append(old, place)
		}
		sg.mu.Unlock()
	}
	l.s.launch(l.s.free.release(old...)...)
}

func (l *Logfile) loseTails(b bin, err error) {
	for _, t := range b.tails {
		sg := &l.segs[t.seg]
		sg.mu.Lock()
		e := &sg.blocks[t.seq]
		if e.state != stateOpen {
			sg.mu.Unlock()
			continue
		}
		buf, old := e.place, sg.takeOldLocked()
		lost := l.loseLocked(t.seg, t.seq)
		sg.mu.Unlock()
		l.pool.put(buf)
		l.s.launch(l.s.free.release(old)...)
		l.s.reportHole(l, t.seg, t.seq, lost, err)
	}
}

// writeFreed records the freed blocks, for a clean stop.
func (l *Logfile) writeFreed() {
	for seg := range l.segs {
		sg := &l.segs[seg]
		sg.mu.Lock()
		n, round := sg.freed, sg.round
		sg.mu.Unlock()
		if n > 0 {
			l.journal.add(&record{generation: l.s.gen.Add(1), epoch: round, segment: uint32(seg), sequence: uint32(n), place: noPlace}, nil)
			l.s.dirty.Store(true)
		}
	}
}
