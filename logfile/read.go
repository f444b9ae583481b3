package logfile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"lcache/internal/disk/blockio"
	"lcache/sample"
)

// PendingError is the error of a read whose context ended first. The kernel may write to the buffer until Done is closed: before that,
// the buffer must not be read, reused or unmapped.
type PendingError struct {
	Err  error           // why the wait ended
	Done <-chan struct{} // closed when the buffer belongs to the caller again
}

func (e *PendingError) Error() string { return "read not finished: " + e.Err.Error() }
func (e *PendingError) Unwrap() error { return e.Err }

// Span returns the length of the buffer that Read needs for n bytes at off.
func Span(off uint64, n int) int {
	return int(roundUp(off+uint64(n)) - off&^(unit-1))
}

// samplesLocked calls f for each sample that begins in a block, complete or not, with its position in the arrival list and its offset in
// the segment's string. Offsets follow from the lengths of the samples before it in the same block, so a lost block does not shift
// the blocks after it.
func (l *Logfile) samplesLocked(seg, seq int, f func(ord uint32, index sample.Index, off uint64)) {
	sg := &l.segs[seg]
	b := &sg.blocks[seq]
	off := uint64(seq)*uint64(l.head.Block) + uint64(b.first)
	list := l.arrivals(seg)
	for ord := b.ord; ord < l.endLocked(sg, seq); ord++ {
		f(ord, list[ord], off)
		off += l.s.format.pad(int(l.s.size(list[ord])))
	}
}

// wholeLocked reports whether [off, off+n), at whose start a sample begins, is in live blocks that continue each other.
func (l *Logfile) wholeLocked(sg *segment, off, n uint64) bool {
	w := uint64(l.head.Block)
	end := off + n
	i, last := off/w, (end-1)/w
	if last >= uint64(len(sg.blocks)) || !sg.blocks[i].state.alive() {
		return false
	}
	for j := i + 1; j <= last; j++ {
		b := &sg.blocks[j]
		if !b.state.alive() || uint64(b.first) != min(w, end-j*w) || uint64(sg.blocks[j-1].used) != w {
			return false
		}
	}
	return end-last*w <= uint64(sg.blocks[last].used)
}

// Arrivals calls f for each sample of the segment that can be read completely, in the order of the string, until f returns false. It
// passes the position in the arrival list, the index and the offset. Positions of samples that are lost, or removed from the manifest,
// are skipped. The result is stable while nothing is appended or freed. No lock is held while f runs.
func (l *Logfile) Arrivals(seg int, f func(ord int, index sample.Index, off uint64) bool) {
	type arrival struct {
		ord   uint32
		index sample.Index
		off   uint64
	}
	var found []arrival
	sg := &l.segs[seg]
	for seq := 0; ; seq++ {
		found = found[:0]
		sg.mu.Lock()
		if seq >= len(sg.blocks) {
			sg.mu.Unlock()
			return
		}
		if sg.blocks[seq].state.alive() {
			l.samplesLocked(seg, seq, func(ord uint32, index sample.Index, off uint64) {
				if l.s.present(index) && l.wholeLocked(sg, off, l.s.format.pad(int(l.s.size(index)))) {
					found = append(found, arrival{ord, index, off})
				}
			})
		}
		sg.mu.Unlock()
		for _, a := range found {
			if !f(int(a.ord), a.index, a.off) {
				return
			}
		}
	}
}

// Within calls f for each sample that begins in a live block overlapping [from, to) of a segment's string, complete or not. No lock is held while f runs.
func (l *Logfile) Within(seg int, from, to uint64, f func(index sample.Index)) {
	var found []sample.Index
	w := uint64(l.head.Block)
	sg := &l.segs[seg]
	sg.mu.Lock()
	for seq := int(from / w); seq < len(sg.blocks) && uint64(seq)*w < to; seq++ {
		if sg.blocks[seq].state.alive() {
			found = append(found, l.arrivals(seg)[sg.blocks[seq].ord:l.endLocked(sg, seq)]...)
		}
	}
	sg.mu.Unlock()
	for _, index := range found {
		f(index)
	}
}

// Counts reports whether a sample begins in a live block, complete or not. If so, the offsets of the samples after it depend on its
// length. It searches the whole Logfile.
func (l *Logfile) Counts(index sample.Index) bool {
	found := false
	for seg := range l.segs {
		sg := &l.segs[seg]
		sg.mu.Lock()
		for seq := range sg.blocks {
			if !sg.blocks[seq].state.alive() {
				continue
			}
			for _, i := range l.arrivals(seg)[sg.blocks[seq].ord:l.endLocked(sg, seq)] {
				found = found || i == index
			}
		}
		sg.mu.Unlock()
	}
	return found
}

// Gone returns the number of blocks at the start of a segment's string that are lost or freed. It only grows.
func (l *Logfile) Gone(seg int) int {
	sg := &l.segs[seg]
	sg.mu.Lock()
	defer sg.mu.Unlock()
	n := 0
	for n < len(sg.blocks) && !sg.blocks[n].state.alive() {
		n++
	}
	return n
}

// ReadBlock reads block j of a segment into dst and calls done once. It calls done on this goroutine if the bytes are in memory, or if
// the block is gone (ErrHole, ErrFreed) or on a quarantined device (ErrQuarantined). Otherwise it calls done on a goroutine of the engine,
// which done must not block. dst begins at a multiple of 4096 and has the length of a block; for a shorter last block, at least its
// used length rounded up to 4096. Bytes after the used ones are undefined. dst belongs to the engine until done is called. The bytes
// are not verified.
func (l *Logfile) ReadBlock(seg, j int, dst []byte, done func(err error)) {
	b, err := l.peek(seg, j, func(b *block, mem []byte) { copy(dst, mem) })
	if n := int(roundUp(b.used)); err == nil && len(dst) < n {
		err = fmt.Errorf("the destination has %d bytes, want %d", len(dst), n)
	}
	if err != nil || b.state.inMemory() {
		if err != nil {
			err = fmt.Errorf("read block %d of segment %d: %w", j, seg, err)
		}
		done(err)
		return
	}
	d, off := l.s.where(b.place)
	if d.read.isQuarantined() {
		done(fmt.Errorf("read block %d of segment %d in %s: %w", j, seg, d.dir, ErrQuarantined))
		return
	}
	l.s.stats.blockReads.Add(1)
	l.s.stats.blockReadBytes.Add(uint64(roundUp(b.used)))
	l.s.submit(&blockio.Op{File: d.arena.Load(), Offset: off + int64(b.at)*unit, Buf: dst[:roundUp(b.used)],
		Done: func(_ *blockio.Op, err error) {
			if err != nil {
				err = fmt.Errorf("read block %d of segment %d: %w", j, seg, err)
			}
			done(err)
		}})
}

// peek returns a copy of block j's entry. If its bytes are in memory, it calls inMemory with them, under the lock that keeps them there.
func (l *Logfile) peek(seg, j int, inMemory func(b *block, mem []byte)) (block, error) {
	if seg < 0 || seg >= len(l.segs) {
		return block{}, fmt.Errorf("there are %d segments", len(l.segs))
	}
	sg := &l.segs[seg]
	sg.mu.Lock()
	defer sg.mu.Unlock()
	if j < 0 || j >= len(sg.blocks) {
		return block{}, fmt.Errorf("the segment has %d blocks: %w", len(sg.blocks), ErrHole)
	}
	b := &sg.blocks[j]
	switch {
	case b.state == stateHole:
		return *b, ErrHole
	case b.state == stateFreed:
		return *b, ErrFreed
	case b.state.inMemory():
		inMemory(b, l.pool.bytes(b.place)[:b.used])
	}
	return *b, nil
}

// Read returns bytes [off, off+n) of a segment's string. buf begins at a multiple of 4096 and has at least Span(off, n) bytes. data is
// the requested part of buf, contiguous even if it crosses blocks. The bytes are not verified, and may be stale if the blocks were freed
// meanwhile. The error is ErrQuarantined if a device is quarantined. If ctx ends, or a device is quarantined during the read, the error is a
// *PendingError and buf does not belong to the caller yet.
func (l *Logfile) Read(ctx context.Context, seg int, off uint64, n int, buf []byte) (data []byte, err error) {
	ops, devices, err := l.plan(seg, off, n, buf)
	if err != nil {
		return nil, err
	}
	return l.readPlanned(ctx, ops, devices, seg, off, n, buf)
}

// ReadAhead is Read for a caller that reads ahead, such as the scan. It counts as block reads.
func (l *Logfile) ReadAhead(ctx context.Context, seg int, off uint64, n int, buf []byte) (data []byte, err error) {
	ops, devices, err := l.plan(seg, off, n, buf)
	if err != nil {
		return nil, err
	}
	l.s.countBlockReads(ops)
	return l.readPlanned(ctx, ops, devices, seg, off, n, buf)
}

func (l *Logfile) readPlanned(ctx context.Context, ops []*blockio.Op, devices []*device, seg int, off uint64, n int, buf []byte) (data []byte, err error) {
	if err := l.s.readAll(ctx, ops, devices); err != nil {
		return nil, l.readError(seg, off, n, err)
	}
	return buf[off&(unit-1):][:n:n], nil
}

// readAll waits for several reads, until ctx ends or one of their devices is quarantined.
func (s *Store) readAll(ctx context.Context, ops []*blockio.Op, devices []*device) error {
	if len(ops) == 0 {
		return nil
	}
	var result error
	settled := make(chan struct{})
	s.await(ops, func(err error) { result = err; close(settled) })
	s.submit(ops...)
	for waiting := true; waiting; {
		changed := s.asides.changed()
		if slices.ContainsFunc(devices, func(d *device) bool { return d.read.isQuarantined() }) {
			select {
			case <-settled:
			default:
				return &PendingError{Err: ErrQuarantined, Done: settled}
			}
		}
		select {
		case <-settled:
			waiting = false
		case <-changed:
		case <-ctx.Done():
			return &PendingError{Err: context.Cause(ctx), Done: settled}
		}
	}
	return result
}

// errGivenUp is the error of transfer if it did not wait for the end.
var errGivenUp = errors.New("given up")

// transfer waits for an op. If ctx ends, or the device is quarantined in that direction (nil: it is known to be quarantined), transfer
// returns an error that wraps the reason, and release is called when the kernel is done with the op's memory. Otherwise the memory belongs to the caller on return.
func (s *Store) transfer(ctx context.Context, device *health, op *blockio.Op, release func()) error {
	var left <-chan struct{}
	if device != nil {
		left = device.left()
	}
	result := make(chan error, 1)
	var settled atomic.Bool // set by whichever comes first: the transfer ends, or the caller stops waiting
	op.Done = func(_ *blockio.Op, err error) {
		if settled.Swap(true) {
			release()
			return
		}
		result <- err
	}
	s.submit(op)
	var why error
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		why = context.Cause(ctx)
	case <-left:
		why = ErrQuarantined
	}
	if settled.Swap(true) {
		return <-result
	}
	return fmt.Errorf("%w: %w", errGivenUp, why)
}
