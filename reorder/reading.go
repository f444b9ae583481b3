package reorder

import (
	"errors"
	"time"
)

// errNotRead is the error of a block without samples, which is not read.
var errNotRead = errors.New("block is not read")

// read reads the blocks with samples, as fast as places become free. Only one load at a time does that: with compression, two loads that
// each hold a part of their next sample's blocks would deadlock.
func (l *load) read() {
	needed := l.needed()
	hangs := false
	for j := range l.blocks {
		if !needed[j] {
			l.arrived(j, errNotRead)
			continue
		}
		var buf []byte
		if !hangs {
			var ok bool
			buf, ok = l.p.places.take()
			hangs = !ok
		}
		if hangs { // the disk is hung: no more blocks of this load are read
			l.skip(j)
			continue
		}
		l.mu.Lock()
		if l.bufs != nil {
			l.bufs[j] = buf
		}
		if place, ok := l.placeOf(j); ok {
			buf = place
		}
		l.blocks[j] = blockPending
		l.p.progress.Store(time.Now().UnixNano()) // the block's time starts now, not with the wait for a place
		l.mu.Unlock()
		l.from.Log.ReadBlock(l.seg, j, buf, func(err error) { l.arrived(j, err) })
	}
}

// allArrived marks all blocks as arrived, instead of reading them.
func (l *load) allArrived() {
	for j := range l.blocks {
		l.arrived(j, nil)
	}
}

// needed marks the blocks that contain part of a sample with a position in the slot.
func (l *load) needed() []bool {
	needed := make([]bool, len(l.blocks))
	w := uint64(l.p.o.Block)
	for i := range l.arrivals {
		a := &l.arrivals[i]
		if a.at == noPlace {
			continue
		}
		for j := a.off / w; j <= (a.off+l.stored(a)-1)/w && j < uint64(len(needed)); j++ {
			needed[j] = true
		}
	}
	return needed
}

// skip gives up a block before it is read.
func (l *load) skip(j int) {
	l.mu.Lock()
	l.pending--
	l.blocks[j] = blockLate
	l.advance()
	l.mu.Unlock()
}

// arrived is called once for each block. It may run on the I/O engine's goroutine, so it only queues work.
func (l *load) arrived(j int, err error) {
	l.mu.Lock()
	l.pending--
	l.p.progress.Store(time.Now().UnixNano())
	if l.blocks[j] == blockLate {
		l.mu.Unlock()
		l.backAtLast(j)
		l.p.loads.Done()
		return
	}
	had := l.blocks[j] == blockPending
	l.blocks[j] = blockHere
	if err != nil {
		l.blocks[j] = blockFailed
	}
	_, inSlot := l.placeOf(j)
	switch {
	case had && l.bufs == nil:
		l.p.places.give(nil)
	case had && (inSlot || err != nil): // its buffer is not needed
		l.p.places.give(l.bufs[j])
		l.bufs[j] = nil
	}
	l.advance()
	l.mu.Unlock()
}

// quarantine keeps the memory of block j, which was given up, from reuse until its read has ended.
func (l *load) quarantine(j int) {
	l.p.places.late(1)
	if _, ok := l.placeOf(j); ok {
		l.p.o.Staging.Pin(l.slot)
	}
}

// backAtLast ends the quarantine of block j.
func (l *load) backAtLast(j int) {
	l.p.places.late(-1)
	if l.bufs != nil {
		l.p.places.give(l.bufs[j])
	} else {
		l.p.places.give(nil)
	}
	if _, ok := l.placeOf(j); ok {
		l.p.o.Staging.Unpin(l.slot)
	}
}

// timeout gives up blocks in flight if no block has arrived for BlockTimeout. Blocks whose read has not begun are not late.
func (l *load) timeout() {
	l.mu.Lock()
	if l.pending == 0 || l.here == len(l.blocks) {
		l.mu.Unlock()
		return
	}
	if wait := l.p.o.BlockTimeout - time.Duration(time.Now().UnixNano()-l.p.progress.Load()); wait > 0 {
		l.watch.Reset(wait)
		l.mu.Unlock()
		return
	}
	given := 0
	for j, s := range l.blocks {
		if s == blockPending {
			l.blocks[j] = blockLate
			l.p.Stats.LateBlocks.Add(1)
			l.quarantine(j)
			l.p.loads.Add(1)
			given++
		}
	}
	l.advance()
	if l.here < len(l.blocks) {
		l.watch.Reset(l.p.o.BlockTimeout)
	}
	l.mu.Unlock()
	if given == 0 {
		return
	}
	l.p.o.Logger.Warn("the disk does not answer; samples are read from the source", "segment", l.seg, "waited", l.p.o.BlockTimeout)
}
