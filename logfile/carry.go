package logfile

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrBusy means that a segment can't be carried: some of its blocks are being written, lost or freed, or the other segment is not empty.
var ErrBusy = errors.New("segment can't be carried")

// Carry moves all blocks of a segment to an empty segment of another Logfile of the Store, of any epoch. It reads and writes nothing but
// records. A short last block in memory is copied to a buffer of the other Logfile. Offsets do not change. Carry calls published when
// both segments have the blocks, and the caller then publishes the new locations to readers. After that it frees this segment's
// blocks; their arena blocks belong to the other segment.
//
// After a crash a block belongs to the Logfile with the newer record on disk. Carry waits for nothing but a write buffer.
func (l *Logfile) Carry(ctx context.Context, seg int, to *Logfile, toSeg int, published func()) error {
	if err := l.carry(ctx, seg, to, toSeg, published); err != nil {
		return fmt.Errorf("carry segment %d to segment %d: %w", seg, toSeg, err)
	}
	return nil
}

func (l *Logfile) carry(ctx context.Context, seg int, to *Logfile, toSeg int, published func()) error {
	switch {
	case l.s.readOnly:
		return ErrReadOnly
	case seg < 0 || seg >= len(l.segs) || toSeg < 0 || toSeg >= len(to.segs):
		return fmt.Errorf("there are %d and %d segments", len(l.segs), len(to.segs))
	case to == l || to.s != l.s || l.IsOlder() || to.IsOlder() || l.head.Block != to.head.Block:
		return errors.New("not a Logfile to carry to")
	}
	from, dst := &l.segs[seg], &to.segs[toSeg]
	if err := l.enter(ctx, from); err != nil {
		return err
	}
	defer from.leave()
	if err := to.enter(ctx, dst); err != nil {
		return err
	}
	defer dst.leave()
	if err := l.reopenTail(ctx, seg); err != nil {
		return err
	}
	buf := uint32(noPlace)
	if l.endsInMemory(from) {
		var err error
		if buf, err = to.pool.get(ctx, to.done); err != nil {
			return err
		}
	}
	if !to.adopt(toSeg, l, seg, buf) {
		if buf != noPlace {
			to.pool.put(buf)
		}
		return ErrBusy
	}
	published()
	l.detach(seg)
	return nil
}

// endsInMemory reports whether the last block of a segment is in a write buffer. The caller holds the segment's lock.
func (l *Logfile) endsInMemory(sg *segment) bool {
	sg.mu.Lock()
	defer sg.mu.Unlock()
	b := sg.lastLocked()
	return b != nil && b.state == stateOpen
}

// adopt gives a segment the blocks of another Logfile's segment, with the bytes of an open block in buf. If that is impossible, it
// changes nothing and returns false. The caller holds both segments' locks.
func (l *Logfile) adopt(seg int, from *Logfile, fromSeg int, buf uint32) bool {
	source := &from.segs[fromSeg]
	source.mu.Lock()
	blocks, n := slices.Clone(source.blocks), source.n
	whole := source.freed == 0 && source.back == nil && len(blocks) > 0
	for k := range blocks {
		b := &blocks[k]
		open := b.state == stateOpen && k == len(blocks)-1 && buf != noPlace
		whole = whole && (open || b.state == stateDisk && b.used == l.head.Block && b.at == 0)
		if whole && open {
			copy(l.pool.bytes(buf), from.pool.bytes(b.place)[:b.used])
			b.place = buf
		}
	}
	arrivals := slices.Clone(from.arrivals(fromSeg)[:n])
	source.mu.Unlock()

	sg := &l.segs[seg]
	sg.mu.Lock()
	defer sg.mu.Unlock()
	if !whole || len(sg.blocks) > 0 || len(blocks) > int(l.head.SegmentBlocks) || int(n) > len(l.arrivals(seg)) {
		return false
	}
	copy(l.arrivals(seg), arrivals)
	sg.blocks, sg.n = blocks, n
	l.held.Add(int64(len(blocks)))
	for k := range blocks {
		if blocks[k].state == stateDisk {
			l.recordLocked(seg, k, l.s.gen.Add(1)) // newer than the other Logfile's record of this block
		}
	}
	return true
}

// detach frees the blocks of a segment whose arena blocks another Logfile has taken over. The caller holds the segment's lock.
func (l *Logfile) detach(seg int) {
	sg := &l.segs[seg]
	sg.mu.Lock()
	old := uint32(noPlace)
	for k := range sg.blocks {
		b := &sg.blocks[k]
		if b.state == stateOpen {
			l.pool.put(b.place)
			old = sg.takeOldLocked()
		}
		if b.state.alive() {
			l.held.Add(-1)
		}
		b.state = stateFreed
	}
	sg.freed = len(sg.blocks)
	sg.mu.Unlock()
	l.s.launch(l.s.free.release(old)...)
}
