package reorder

import (
	"sync"
	"sync/atomic"

	"lcache/internal/serve/fetch"
	"lcache/sample"
)

// A sample that is missing in a segment is supplied: from elsewhere in the log, or else from the source. Then it is handled like the others.

// slotRoom is a range of the slot that no block is read to, for a missing sample.
type slotRoom struct {
	off    uint64
	inSlot bool // the slot has room for the sample
}

// supplyAll supplies the missing samples. Samples elsewhere in the log are read many at once, because after a restart all samples of a
// segment may have been appended already. The others are read one by one, at most one for each token at a time.
func (l *load) supplyAll(missing []sample.Index) {
	rooms := make([]slotRoom, len(missing))
	for i, index := range missing {
		rooms[i].off, rooms[i].inSlot = l.reserve(uint64(l.p.o.Sizes[index]))
	}
	rest := l.p.o.Fetcher.Together(l.p.open, missing, func(samples []fetch.Stored) (wrong []int) {
		if !l.p.enter(l) {
			return nil
		}
		defer l.p.underWay.Done()
		for _, s := range samples {
			if !l.p.supplyStored(l, missing[s.I], rooms[s.I], s.Data) {
				wrong = append(wrong, s.I)
			}
		}
		l.p.o.Staging.Notify()
		return wrong
	})
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(len(rest), cap(l.turn)) {
		wg.Go(func() {
			for n := next.Add(1) - 1; n < int64(len(rest)); n = next.Add(1) - 1 {
				i := rest[n]
				l.turn <- struct{}{}
				l.supplyMissing(missing[i], rooms[i])
				<-l.turn
				l.p.o.Staging.Notify()
			}
		})
	}
	wg.Wait()
}

// supplyMissing supplies one sample that no block of the segment holds. If the arena has no room, the sample is only delivered.
func (l *load) supplyMissing(index sample.Index, room slotRoom) {
	bytes := int64(l.p.padded(uint64(l.p.o.Sizes[index])))
	writeOn := l.isWanted(index)
	if writeOn && !l.p.room.take(bytes) {
		writeOn = false
		l.p.dropped(index, errNoRoom)
	}
	if writeOn || l.use == Deliver && room.inSlot {
		l.p.supply(l, index, room, true, writeOn)
	}
	if writeOn {
		l.p.room.give(bytes)
	}
}

// isWanted reports whether a missing sample must be appended to the next log.
func (l *load) isWanted(index sample.Index) bool {
	if l.target == nil || l.staysPacked(index) {
		return false
	}
	_, ok := l.target.Router.Route(index)
	return ok
}

// inTurn waits for a token, and calls supply in a goroutine of its own.
func (l *load) inTurn(supply func()) {
	l.turn <- struct{}{}
	go func() {
		supply()
		<-l.turn
	}()
}

// supply reads a missing sample, at its location in the log or else from the source, to its range of the slot, where no transfer is in
// flight. Without room in the slot, the sample is only appended.
func (p *Scan) supply(l *load, index sample.Index, room slotRoom, useLog, writeOn bool) {
	if !p.enter(l) {
		return
	}
	defer p.underWay.Done()
	p.Stats.Supplied.Add(1)
	write := func(data []byte) {
		if writeOn {
			p.route(l, index, data, false)
		}
	}
	size, off := int(p.o.Sizes[index]), room.off
	if room.inSlot && (!useLog || p.o.Locations.Get(index) == 0) {
		dst := l.mem[off : off+uint64(size) : off+uint64(size)]
		from, late, err := p.o.Fetcher.Source(p.ctx, index, dst)
		if late != nil {
			p.pinUntil(l.slot, late)
		}
		if err == nil {
			p.publish(l, index, off, from)
			write(dst)
		} else {
			p.skipped(l, index, err)
		}
		return
	}
	if !useLog {
		x, data, err := p.o.Fetcher.FromSourceOnly(p.ctx, index)
		if err != nil {
			p.skipped(l, index, err)
			return
		}
		write(data)
		p.o.Staging.Drop(x)
		return
	}
	extents, got, err := p.o.Fetcher.FetchAll(p.ctx, []sample.Index{index})
	if err != nil {
		p.skipped(l, index, err)
		return
	}
	data := got[0].Data
	if room.inSlot {
		dst := l.mem[off : off+uint64(size) : off+uint64(size)]
		copy(dst, data)
		p.publish(l, index, off, got[0].From)
	}
	write(data)
	for _, x := range extents {
		p.o.Staging.Drop(x)
	}
}

// supplyStored takes a missing sample from its stored bytes elsewhere in the log. It returns false if they are wrong.
func (p *Scan) supplyStored(l *load, index sample.Index, room slotRoom, data []byte) bool {
	sum, known := p.o.Sums.Get(index)
	packed := p.o.Form != nil && p.o.Form.Packed(index)
	if p.open.Err() != nil || !known || packed && !room.inSlot {
		return false
	}
	plain := data
	if room.inSlot {
		plain = l.mem[room.off : room.off+uint64(p.o.Sizes[index])]
		if packed {
			if p.o.Form.Unpack(index, data, plain) != nil {
				return false
			}
		} else if copy(plain, data) < len(plain) {
			return false
		}
	}
	if sample.Sum(plain) != sum {
		return false
	}
	p.Stats.Supplied.Add(1)
	if room.inSlot {
		p.publish(l, index, room.off, sample.FromLog)
	}
	p.route(l, index, data, true)
	return true
}

// skipped leaves a sample out. A request for the sample reads it by index, and gets the error.
func (p *Scan) skipped(l *load, index sample.Index, err error) {
	if p.ctx.Err() != nil {
		return
	}
	if l.target != nil {
		p.forget(l, index)
	}
	p.o.Logger.Warn("sample not loaded; a request reads it by index", "sample", index, "error", err)
}
