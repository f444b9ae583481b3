package logfile

import (
	"context"
	"fmt"

	"lcache/sample"
)

// Append adds a sample to the end of a segment's string and returns its final offset there. data must have the length that the
// manifest has for the sample. It is copied, so the caller may reuse it. Append writes full blocks in the background.
//
// Append waits while all write buffers are in flight, which includes the time in which no arena block is free. If ctx ends meanwhile,
// the sample is not in the log. Movers must keep the bytes that they have appended and not yet freed below the free arena blocks, or
// Append and FreeBlocks deadlock. ErrFull means that the segment takes no more samples. A failed write is not an error of Append: a
// later read of the sample returns ErrHole, and Options.Lost is called.
func (l *Logfile) Append(ctx context.Context, seg int, index sample.Index, data []byte) (off uint64, err error) {
	if err := l.checkSample(seg, index, len(data)); err != nil {
		return 0, fmt.Errorf("append sample %d to segment %d: %w", index, seg, err)
	}
	sg := &l.segs[seg]
	if err := l.enter(ctx, sg); err != nil {
		return 0, fmt.Errorf("append sample %d to segment %d: %w", index, seg, err)
	}
	defer sg.leave()
	if err := l.reopenTail(ctx, seg); err != nil {
		return 0, fmt.Errorf("append sample %d to segment %d: %w", index, seg, err)
	}
	need := l.s.format.pad(len(data))
	off, err = l.nextOffset(seg, need)
	if err != nil {
		return 0, fmt.Errorf("append sample %d to segment %d: %w", index, seg, err)
	}
	for rest, begins := need, true; rest > 0; begins = false {
		dst, err := l.openBlock(ctx, sg, rest, begins)
		if err != nil {
			return 0, fmt.Errorf("append sample %d to segment %d: %w", index, seg, err)
		}
		dst = dst[:min(uint64(len(dst)), rest)]
		n := copy(dst, data)
		clear(dst[n:]) // the padding: the old content of a buffer must not reach the disk
		data, rest = data[n:], rest-uint64(len(dst))
		l.publish(seg, index, len(dst), begins)
	}
	return off, nil
}

func (l *Logfile) checkSample(seg int, index sample.Index, n int) error {
	switch {
	case l.s.readOnly:
		return ErrReadOnly
	case seg < 0 || seg >= len(l.segs):
		return fmt.Errorf("there are %d segments", len(l.segs))
	case l.IsOlder():
		return ErrOlder
	case int(index) >= len(l.s.sizes):
		return fmt.Errorf("the manifest has %d samples", len(l.s.sizes))
	case n != int(l.s.sizes[index]):
		return fmt.Errorf("%d bytes, the manifest says %d", n, l.s.sizes[index])
	case n == 0:
		return fmt.Errorf("an empty sample is not stored in a log")
	}
	return nil
}

// nextOffset returns the offset of the next sample, of need bytes. No one else may append to the segment.
func (l *Logfile) nextOffset(seg int, need uint64) (uint64, error) {
	sg := &l.segs[seg]
	sg.mu.Lock()
	defer sg.mu.Unlock()
	off, samples, bytes := l.freeLocked(seg)
	if need > bytes {
		return 0, fmt.Errorf("%w: %d bytes at %d of %d", ErrFull, need, off, off+bytes)
	}
	if samples == 0 {
		return 0, fmt.Errorf("%w: it has its %d samples", ErrFull, sg.n)
	}
	return off, nil
}

// Room returns the largest number of samples, and of their bytes, that a segment can still take.
func (l *Logfile) Room(seg int) (samples int, bytes uint64) {
	sg := &l.segs[seg]
	sg.mu.Lock()
	defer sg.mu.Unlock()
	_, samples, bytes = l.freeLocked(seg)
	return samples, bytes
}

// freeLocked returns the offset of the next sample, and the samples and bytes that the segment still takes.
func (l *Logfile) freeLocked(seg int) (off uint64, samples int, bytes uint64) {
	sg := &l.segs[seg]
	w := uint64(l.head.Block)
	off = uint64(len(sg.blocks)) * w
	if b := sg.lastLocked(); b != nil && b.state == stateOpen {
		off = l.lengthLocked(sg)
	}
	bytes = max(uint64(l.head.SegmentBlocks)*w, off) - off
	samples = max(int(l.head.Starts[seg+1]-l.head.Starts[seg])-int(sg.n), 0)
	return off, samples, bytes
}

// lastLocked returns the last block, or nil if the segment has none.
func (sg *segment) lastLocked() *block {
	if len(sg.blocks) == 0 {
		return nil
	}
	return &sg.blocks[len(sg.blocks)-1]
}

// openBlock returns the free part of the open buffer, and takes a buffer if none is open. rest is the number of bytes of the sample still to copy.
func (l *Logfile) openBlock(ctx context.Context, sg *segment, rest uint64, begins bool) ([]byte, error) {
	sg.mu.Lock()
	b := sg.lastLocked()
	if b != nil && b.state == stateOpen {
		buf := l.pool.bytes(b.place)[b.used:]
		sg.mu.Unlock()
		return buf, nil
	}
	sg.mu.Unlock()
	// Buffers are taken as late as possible: a segment with a full last block holds no buffer. So each segment holds at most one
	// buffer, and all other buffers return to the pool.
	buf, err := l.pool.get(ctx, l.done)
	if err != nil {
		return nil, err
	}
	first := uint32(0)
	if !begins {
		first = uint32(min(rest, uint64(l.head.Block)))
	}
	sg.mu.Lock()
	defer sg.mu.Unlock()
	sg.blocks = append(sg.blocks, block{place: buf, ord: sg.n, first: first, state: stateOpen})
	l.held.Add(1)
	return l.pool.bytes(buf), nil
}

// publish makes n more bytes of the open block visible, and submits the block if it is full.
func (l *Logfile) publish(seg int, index sample.Index, n int, begins bool) {
	sg := &l.segs[seg]
	sg.mu.Lock()
	b := sg.lastLocked()
	if begins {
		l.arrivals(seg)[sg.n] = index
		sg.n++
	}
	b.used += uint32(n)
	if b.used < l.head.Block {
		sg.mu.Unlock()
		return
	}
	f := l.prepareWriteLocked(seg)
	sg.mu.Unlock()
	l.send(f)
}

// prepareWriteLocked marks the open block as in flight, and returns its write.
func (l *Logfile) prepareWriteLocked(seg int) *blockWrite {
	sg := &l.segs[seg]
	b := sg.lastLocked()
	b.state = stateInFlight
	f := &l.pool.writes[b.place]
	f.l, f.seg, f.round, f.seq, f.buf = l, uint32(seg), sg.round, uint32(len(sg.blocks)-1), b.place
	f.place, f.avoid, f.old, f.retried = noPlace, noPlace, sg.takeOldLocked(), false
	return f
}

// send submits a write once it has an arena block. No lock may be held.
func (l *Logfile) send(f *blockWrite) {
	l.writes.add()
	if l.s.free.take(f) {
		l.s.launch(f)
	}
}

// roundUp returns the bytes that a transfer of n bytes moves.
func roundUp[T uint32 | uint64 | int](n T) T { return (n + unit - 1) &^ (unit - 1) }
