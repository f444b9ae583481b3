package logfile

import (
	"context"
	"fmt"
)

// FreeBlocks frees blocks [0, upto) of a segment. The caller has published the new locations of their samples. Their arena blocks go to
// the end of the free list, and a write buffer among them returns to the pool. Blocks that are already freed are skipped. A mover that
// frees block by block, not segment by segment, needs only a small arena. If the blocks include the segment's tail, FreeBlocks waits for
// an Append in progress there.
func (l *Logfile) FreeBlocks(seg, upto int) error {
	if seg < 0 || seg >= len(l.segs) || upto < 0 {
		return fmt.Errorf("free %d blocks of segment %d: there are %d segments", upto, seg, len(l.segs))
	}
	sg := &l.segs[seg]
	sg.mu.Lock()
	upto = min(upto, len(sg.blocks)) // blocks that begin later are not included
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

// freeUpTo is FreeBlocks. The caller holds the segment's lock if the blocks include the tail.
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
			if l.num == PackagesNum {
				l.journal.live.Add(-int64(recordSize(int(l.endLocked(sg, sg.freed) - b.ord))))
			}
		case stateOpen:
			l.pool.put(b.place)
			places = append(places, sg.takeOldLocked())
		case stateInFlight: // landed releases its buffer and place
			inFlight++
		}
		if b.state.alive() {
			l.held.Add(-1)
		}
		b.state = stateFreed
	}
	sg.mu.Unlock()
	l.s.launch(l.s.free.release(places...)...)
	if inFlight > 0 { // a freed block needs no arena block
		l.s.failWaiting(func(f *blockWrite) bool { return f.l == l && int(f.seg) == seg && int(f.seq) < upto })
	}
}

// SetNoFrees(true) declares that no arena block will be freed from now on, because samples are appended and none are moved. A full block
// without an arena block then becomes a hole at once. After SetNoFrees(false) it waits for an arena block.
func (s *Store) SetNoFrees(none bool) { s.launch(s.free.setNoFrees(none)...) }

// FailWaiting makes holes of l's full blocks for which no arena block is free, which frees their write buffers. Blocks that only wait
// for their turn on a device are written.
func (l *Logfile) FailWaiting() {
	l.s.fail(l.s.free.cancelPlaceless(func(f *blockWrite) bool { return f.l == l }))
}

// failWaiting fails the waiting writes that match.
func (s *Store) failWaiting(match func(f *blockWrite) bool) { s.fail(s.free.cancel(match)) }

func (s *Store) fail(fs []*blockWrite) {
	for _, f := range fs {
		s.landed(f, errNoPlace)
	}
}

// Flush waits until no full block is in flight. It makes nothing durable; Seal does.
func (l *Logfile) Flush(ctx context.Context) error {
	if err := l.writes.wait(ctx); err != nil {
		return fmt.Errorf("flush logfile %d: %w", l.num, err)
	}
	return nil
}

// Seal makes all full blocks durable: Flush, then fdatasync of the arena, then of the journal. Tails stay in memory. It returns nil only
// if no sync of this Logfile has failed since it was begun or opened.
func (l *Logfile) Seal(ctx context.Context) error {
	if err := l.Flush(ctx); err != nil {
		return err
	}
	return l.s.syncAll(ctx, l)
}
