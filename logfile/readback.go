package logfile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"lcache/internal/disk/blockio"
)

// A clean stop writes tails. A tail is read back into a write buffer, so that its segment can grow. Its arena block is kept until the
// grown block is on disk: a crash before that finds the short one.

// diskTail is the copy on disk of the first bytes of an open buffer.
type diskTail struct {
	place uint32 // or noPlace
	used  uint32
	at    uint16
}

// readBack is the read of a short block into a write buffer.
type readBack struct {
	seq    int
	buf    uint32
	place  uint32
	device *device
	op     blockio.Op
	done   chan struct{}
	err    error // once done
}

// ReadTailsBack begins to read the short last blocks of all segments into write buffers, many at once, and does not wait. It is for a
// recovered Logfile that will be appended to: otherwise the first append to each segment would wait for a read. Unreadable tails stay on disk.
func (l *Logfile) ReadTailsBack() {
	if l.s.readOnly {
		return
	}
	q := &tailQueue{l: l}
	for seg := range l.segs {
		if _, tail, _, short := l.tailOnDisk(seg); short {
			q.tails = append(q.tails, queuedTail{seg, tail.place, tail.at})
		}
	}
	slices.SortFunc(q.tails, func(a, b queuedTail) int { return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.at, b.at)) })
	for range max(1, l.s.spare/2) { // a hung device keeps their buffers: leave enough for other segments
		q.next()
	}
}

// tailQueue has the tails that are still to be read back.
type tailQueue struct {
	l *Logfile

	mu    sync.Mutex // guards the field that follows
	tails []queuedTail
}

type queuedTail struct {
	seg   int
	place uint32
	at    uint16
}

// next begins to read a tail. The end of that read begins the next one.
func (q *tailQueue) next() {
	for {
		q.mu.Lock()
		if len(q.tails) == 0 || q.l.isEnding() {
			q.mu.Unlock()
			return
		}
		tail := q.tails[0]
		q.tails = q.tails[1:]
		q.mu.Unlock()
		if d, _ := q.l.s.where(tail.place); d.read.isQuarantined() {
			continue
		}
		select {
		case buf := <-q.l.pool.free:
			if back, begun := q.l.prepareBack(tail.seg, buf, q.next); begun {
				q.l.s.submit(&back.op)
				return
			}
		default: // appends use the buffers now
			return
		}
	}
}

// isEnding reports whether Close or Drop has begun.
func (l *Logfile) isEnding() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// tailOnDisk reports whether the last block of a segment is a short one on disk, and returns the read of it that is in flight.
func (l *Logfile) tailOnDisk(seg int) (seq int, tail block, back *readBack, short bool) {
	sg := &l.segs[seg]
	sg.mu.Lock()
	defer sg.mu.Unlock()
	b := sg.lastLocked()
	if b == nil || b.state != stateDisk || b.used == l.head.Block {
		return 0, tail, nil, false
	}
	return len(sg.blocks) - 1, *b, sg.back, true
}

// prepareBack makes the read of a segment's short block into a buffer, which the caller submits. then is called after the read. If
// another read is in flight, prepareBack returns that one. If there is nothing to read, it returns nil. In both cases the buffer returns to the pool.
func (l *Logfile) prepareBack(seg int, buf uint32, then func()) (back *readBack, begun bool) {
	sg := &l.segs[seg]
	sg.mu.Lock()
	defer sg.mu.Unlock()
	b := sg.lastLocked()
	if sg.back != nil || b == nil || b.state != stateDisk || b.used == l.head.Block {
		l.pool.put(buf)
		return sg.back, false
	}
	d, off := l.s.where(b.place)
	back = &readBack{seq: len(sg.blocks) - 1, buf: buf, place: b.place, device: d, done: make(chan struct{})}
	back.op = blockio.Op{File: d.arena.Load(), Offset: off + int64(b.at)*unit, Buf: l.pool.bytes(buf)[:roundUp(b.used)],
		Done: func(_ *blockio.Op, err error) { l.tailIsBack(seg, back, err); then() }}
	sg.back = back
	return back, true
}

// tailIsBack ends a read. The block is then open, unless it was freed or lost meanwhile. It runs on a goroutine of the engine.
func (l *Logfile) tailIsBack(seg int, back *readBack, err error) {
	sg := &l.segs[seg]
	sg.mu.Lock()
	if err == nil && sg.back == back && sg.blocks[back.seq].state == stateDisk { // sg.back differs if the segment is a new package now
		b := &sg.blocks[back.seq]
		sg.old = diskTail{place: b.place, used: b.used, at: b.at}
		b.state, b.place, b.at = stateOpen, back.buf, 0
	} else {
		l.pool.put(back.buf)
	}
	if sg.back == back {
		sg.back = nil
	}
	sg.mu.Unlock()
	back.err = err
	close(back.done)
}

// reopenTail waits until a segment's short last block is in a buffer. The caller holds the segment's lock.
func (l *Logfile) reopenTail(ctx context.Context, seg int) error {
	for {
		seq, tail, back, short := l.tailOnDisk(seg)
		if !short {
			return nil
		}
		mine := back == nil
		if mine {
			d, _ := l.s.where(tail.place)
			if d.read.isQuarantined() {
				l.loseTail(seg, seq, tail.place, ErrQuarantined)
				return nil
			}
			buf, err := l.pool.get(ctx, l.done)
			if err != nil {
				return err
			}
			if back, mine = l.prepareBack(seg, buf, func() {}); mine {
				l.s.submit(&back.op)
			}
		}
		if back == nil { // it was freed: look again
			continue
		}
		select {
		case <-back.done:
			if mine && back.err != nil {
				l.loseTail(seg, back.seq, back.place, back.err)
			}
		case <-back.device.read.left():
			l.loseTail(seg, back.seq, back.place, ErrQuarantined) // the buffer returns when the device is done with it
		case <-l.done:
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("read tail back: %w", context.Cause(ctx))
		}
	}
}

// loseTail makes a hole of a short block that can't be read back, if it is still there. The caller holds the segment's lock.
func (l *Logfile) loseTail(seg, seq int, place uint32, err error) {
	sg := &l.segs[seg]
	sg.mu.Lock()
	if b := &sg.blocks[seq]; b.state != stateDisk || b.place != place {
		sg.mu.Unlock()
		return
	}
	sg.back = nil
	lost := l.loseLocked(seg, seq)
	sg.mu.Unlock()
	l.s.launch(l.s.free.release(place)...)
	l.s.reportHole(l, seg, seq, lost, fmt.Errorf("read tail back: %w", err))
}

// takeOldLocked returns the arena block with the copy of the open buffer, or noPlace, and clears it.
func (sg *segment) takeOldLocked() uint32 {
	place := sg.old.place
	sg.old = diskTail{place: noPlace}
	return place
}
