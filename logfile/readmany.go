package logfile

import (
	"fmt"
	"sync"

	"lcache/internal/disk/blockio"
)

// A Range is a part of a segment's string to read. Buf begins at a multiple of 4096 and has at least Span(Offset, Len) bytes. It belongs
// to the engine until Done, which gets the requested part of Buf. The bytes are not verified, and may be stale if the blocks were freed
// meanwhile.
type Range struct {
	Segment int
	Offset  uint64
	Len     int
	Buf     []byte
	Done    func(data []byte, err error)
}

// ReadMany begins all reads at once and does not wait. Done is called once for each range. It is called on this goroutine if the bytes
// are in memory, or if the block is gone (ErrHole, ErrFreed) or on a quarantined device (ErrQuarantined). Otherwise it is called on a goroutine
// of the engine, which Done must not block. The reads count as block reads, because the caller reads ahead, as the scan does.
func (l *Logfile) ReadMany(ranges []Range) {
	var all []*blockio.Op
	for i := range ranges {
		r := &ranges[i]
		ops, _, err := l.plan(r.Segment, r.Offset, r.Len, r.Buf)
		if err != nil {
			r.Done(nil, err)
			continue
		}
		data := r.Buf[r.Offset&(unit-1):][:r.Len:r.Len]
		if len(ops) == 0 {
			r.Done(data, nil)
			continue
		}
		l.s.await(ops, func(err error) {
			if err != nil {
				err = l.readError(r.Segment, r.Offset, r.Len, err)
			}
			r.Done(data, err)
		})
		l.s.countBlockReads(ops)
		all = append(all, ops...)
	}
	l.s.submit(all...)
}

func (s *Store) countBlockReads(ops []*blockio.Op) {
	for _, op := range ops {
		s.stats.blockReads.Add(1)
		s.stats.blockReadBytes.Add(uint64(len(op.Buf)))
	}
}

func (l *Logfile) readError(seg int, off uint64, n int, err error) error {
	return fmt.Errorf("read %d bytes at %d of segment %d: %w", n, off, seg, err)
}

// plan lists the transfers that read bytes [off, off+n) of a segment's string to buf, which starts with the unit that contains off. It
// copies bytes that are in memory at once. Blocks that are also adjacent on disk share a transfer. devices are the devices of the transfers.
func (l *Logfile) plan(seg int, off uint64, n int, buf []byte) (ops []*blockio.Op, devices []*device, err error) {
	if n <= 0 || len(buf) < Span(off, n) {
		return nil, nil, l.readError(seg, off, n, fmt.Errorf("the buffer has %d bytes, want %d", len(buf), Span(off, n)))
	}
	w := uint64(l.head.Block)
	start, end := off&^(unit-1), off+uint64(n)
	var last *blockio.Op
	var lastEnd uint64 // in buf
	for pos := off; pos < end; {
		j := pos / w
		stop := min(end, (j+1)*w)
		x, y := pos-j*w, stop-j*w
		b, err := l.peek(seg, int(j), func(b *block, mem []byte) {
			if y <= uint64(len(mem)) {
				copy(buf[pos-start:], mem[x:y])
			}
		})
		if err == nil && y > uint64(b.used) {
			err = fmt.Errorf("the block has %d bytes: %w", b.used, ErrHole)
		}
		if err != nil {
			return nil, nil, l.readError(seg, off, n, fmt.Errorf("block %d: %w", j, err))
		}
		if !b.state.inMemory() {
			d, at := l.s.where(b.place)
			if d.read.isQuarantined() {
				return nil, nil, l.readError(seg, off, n, fmt.Errorf("block %d in %s: %w", j, d.dir, ErrQuarantined))
			}
			file := d.arena.Load()
			x &^= unit - 1
			from, to := j*w+x-start, roundUp(stop)-start
			at += int64(b.at)*unit + int64(x)
			if last != nil && last.File == file && last.Offset+int64(len(last.Buf)) == at && lastEnd == from {
				last.Buf = buf[lastEnd-uint64(len(last.Buf)) : to]
			} else {
				last = &blockio.Op{File: file, Offset: at, Buf: buf[from:to]}
				ops, devices = append(ops, last), append(devices, d)
			}
			lastEnd = to
		}
		pos = stop
	}
	return ops, devices, nil
}

// await calls done with the first error when all ops have ended. The ops must not have been submitted.
func (s *Store) await(ops []*blockio.Op, done func(error)) {
	if len(ops) == 1 {
		ops[0].Done = func(_ *blockio.Op, err error) { done(err) }
		return
	}
	var mu sync.Mutex
	var first error
	left := len(ops)
	for _, op := range ops {
		op.Done = func(_ *blockio.Op, err error) {
			mu.Lock()
			if err != nil && first == nil {
				first = err
			}
			left--
			over := left == 0
			mu.Unlock()
			if over {
				done(first)
			}
		}
	}
}
