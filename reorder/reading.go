package reorder

import (
	"errors"
	"time"
)

// errNotRead is the error of a block that is not read because no sample lies in it.
var errNotRead = errors.New("block is not read")

// read reads the blocks that samples lie in, as fast as places come free. One load at a time does that: with compression two that each hold a part of what their
// next sample needs would wait for each other.
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
		if hangs { // no more blocks of this load are read: the disk has had its time
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
		l.p.progress.Store(time.Now().UnixNano()) // the block's time begins now, not with the wait for a place
		l.mu.Unlock()
		l.from.Log.ReadBlock(l.seg, j, buf, func(err error) { l.arrived(j, err) })
	}
}

// allArrived takes all blocks for read.
func (l *load) allArrived() {
	for j := range l.blocks {
		l.arrived(j, nil)
	}
}

// needed marks the blocks that a sample with a place in the slot lies in.
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

// skip gives up on a block before it is read.
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
	case had && (inSlot || err != nil): // its buffer is not used
		l.p.places.give(l.bufs[j])
		l.bufs[j] = nil
	}
	l.advance()
	l.mu.Unlock()
}

// quarantine keeps the memory of block j, which is given up, from reuse until the block has come in.
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

// timeout gives up on blocks in flight if no block has come in for BlockTimeout. The time of blocks that are not being read yet has not begun.
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
