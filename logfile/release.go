package logfile

import (
	"context"
	"fmt"
)

// FreeBlocks frees blocks [0, upto) of a segment, whose samples' new locations the caller has published. Their
// places go to the end of the free list, and a write buffer among them goes back to the pool. Blocks that are freed already are skipped.
// A mover that frees block by block, not segment by segment, keeps the arena small. FreeBlocks frees a segment's tail only after an Append in
// progress there has returned.
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

// freeUpTo is FreeBlocks; the caller holds the segment's lock if the segment's tail is among the blocks.
func (l *Logfile) freeUpTo(seg, upto int) {
	sg := &l.segs[seg]
	var places []uint32
	var inFlight int
	sg.mu.Lock()
	for ; sg.freed < upto; sg.freed++ {
		b := &sg.blocks[sg.freed]
		switch b.state {
		case stateDisk:
			places = append(places, b.place)
			if l.half == PackageHalf {
				l.journal.live.Add(-int64(recordSize(int(l.endLocked(sg, sg.freed) - b.ord))))
			}
		case stateOpen:
			l.pool.put(b.place)
			places = append(places, sg.takeOldLocked())
		case stateInFlight: // landed gives back its buffer and place
			inFlight++
		}
		if b.state.alive() {
			l.held.Add(-1)
		}
		b.state = stateFreed
	}
	sg.mu.Unlock()
	l.s.launch(l.s.free.release(places...)...)
	if inFlight > 0 { // a freed block needs no place
		l.s.giveUp(func(f *blockWrite) bool { return f.l == l && int(f.seg) == seg && int(f.seq) < upto })
	}
}

// SetNoFrees sets whether no place will be freed from now on, because samples are appended and none are moved. Then a full block that finds no place becomes
// a hole at once; otherwise the block waits for a place.
func (s *Store) SetNoFrees(none bool) { s.launch(s.free.setNoFrees(none)...) }

// GiveUpWaiting makes holes of the full blocks of l that no place is free for, so that their write buffers are free. Blocks that only wait for their turn on a
// device are written.
func (l *Logfile) GiveUpWaiting() {
	l.s.fail(l.s.free.cancelPlaceless(func(f *blockWrite) bool { return f.l == l }))
}

// giveUp ends the writes that wait for a place and match.
func (s *Store) giveUp(match func(f *blockWrite) bool) { s.fail(s.free.cancel(match)) }

func (s *Store) fail(fs []*blockWrite) {
	for _, f := range fs {
		s.landed(f, errNoPlace)
	}
}

// Flush waits until no full block is on its way to disk. It does not make anything durable, Seal does.
func (l *Logfile) Flush(ctx context.Context) error {
	if err := l.writes.wait(ctx); err != nil {
		return fmt.Errorf("flush logfile in half %d: %w", l.half, err)
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
