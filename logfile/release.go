package logfile

import (
	"context"
	"fmt"
)

// FreeBlocks says that blocks [0, upto) of a segment are no longer needed, because their samples' new locations are published: their
// places go to the end of the free list, a write buffer among them back to the pool. Freeing again what is freed does nothing.
// Freeing block by block as a segment is moved, not at its end, keeps the arena small. A segment's tail is freed only after an Append in
// progress there.
func (l *Logfile) FreeBlocks(seg, upto int) error {
	if seg < 0 || seg >= len(l.segs) || upto < 0 {
		return fmt.Errorf("free %d blocks of segment %d: there are %d segments", upto, seg, len(l.segs))
	}
	sg := &l.segs[seg]
	sg.mu.Lock()
	upto = min(upto, len(sg.blocks)) // blocks that begin later are not meant
	b := sg.lastLocked()
	tail := b != nil && upto == len(sg.blocks) && (b.state == stateOpen || b.used < l.head.Block)
	sg.mu.Unlock()
	if tail { // an Append may be copying into its buffer, or reading it back into one
		sg.lock <- struct{}{}
		defer sg.leave()
	}
	l.freeUpTo(seg, upto)
	return nil
}

// FreeSegment frees all blocks of a segment.
func (l *Logfile) FreeSegment(seg int) { _ = l.FreeBlocks(seg, l.Blocks(seg)) }

// freeUpTo is FreeBlocks, with the segment's lock held if its tail is among the blocks.
func (l *Logfile) freeUpTo(seg, upto int) {
	sg := &l.segs[seg]
	var places []uint32
	var flying int
	sg.mu.Lock()
	for ; sg.freed < upto; sg.freed++ {
		b := &sg.blocks[sg.freed]
		switch b.state {
		case stateDisk:
			places = append(places, b.place)
		case stateOpen:
			l.pool.put(b.place)
			places = append(places, sg.old)
			sg.old = noPlace
		case stateFlying: // landed gives back what it holds
			flying++
		}
		if b.state.alive() {
			l.held.Add(-1)
		}
		b.state = stateFreed
	}
	sg.mu.Unlock()
	l.s.launch(l.s.free.release(places...)...)
	if flying > 0 { // those that still wait for a place would wait in vain
		l.s.giveUp(func(f *flight) bool { return f.l == l && int(f.seg) == seg && int(f.seq) < upto })
	}
}

// NoneFreed says whether nobody frees places from now on: samples are appended and none are moved. A full block that finds no place is then
// a hole at once; otherwise it waits for one.
func (s *Store) NoneFreed(none bool) { s.launch(s.free.setStill(none)...) }

// giveUp ends the flights that wait for a place and match.
func (s *Store) giveUp(match func(f *flight) bool) {
	for _, f := range s.free.cancel(match) {
		s.landed(f, errNoPlace)
	}
}

// Flush waits until no full block is on its way to disk. It does not make anything durable, Seal does.
func (l *Logfile) Flush(ctx context.Context) error {
	if err := l.writes.wait(ctx); err != nil {
		return fmt.Errorf("flush logfile in slot %d: %w", l.slot, err)
	}
	return nil
}

// Seal makes all full blocks durable: Flush, then fdatasync of the arena, then of the journal. Tails stay in memory. The error is
// nil only if no sync that concerned this Logfile has failed since it was begun or opened.
func (l *Logfile) Seal(ctx context.Context) error {
	if err := l.Flush(ctx); err != nil {
		return err
	}
	return l.s.syncAll(ctx, l)
}
