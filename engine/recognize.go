package engine

import (
	"slices"
	"time"

	"lcache/chunker"
	"lcache/offheap"
	"lcache/reorder"
	"lcache/sample"
)

// A server without a recipe learns its orders from clients, and after a restart none has spoken yet. The Logfiles that it finds are
// nameless until one does: a job that is resumed says the order that it was in, and goes on in a log that is laid out for it. Where the
// newer of two stays nameless, because another job has begun, they are made one, so that the next order can be laid out in the other slot.

// unrecognized is a Logfile that may be in an order which is known by now; nil: there is none. e.mu is held.
func (e *Engine) unrecognized() *epochLine {
	if e.forced != nil || e.tgt != nil || e.loading > 0 {
		return nil
	}
	for _, el := range []*epochLine{e.cur, e.stray} {
		if el == nil || el.geo != nil || el.line.Log.IsOlder() {
			continue
		}
		if n := int(el.line.Log.Header().Epoch); e.cache.Schedule.IsComplete(n, e.opts.LateEpoch) && el.tried != e.cache.Schedule.Version(n) {
			return el
		}
	}
	return nil
}

// recognize compares a Logfile with the order that its epoch has now. Where they agree the log is read, or filled on, as if there had
// been no restart.
func (e *Engine) recognize(el *epochLine) bool {
	tried := e.cache.Schedule.Version(int(el.line.Log.Header().Epoch))
	known, err := e.identify(el.line.Log)
	if err == nil && known.geo != nil && el == e.stray {
		err = e.aim(known)
	}
	if err != nil && e.ctx.Err() == nil {
		e.cache.Logger.Error("a log that was recovered can't be laid out", "error", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	el.tried = tried
	switch {
	case err != nil || known.geo == nil:
		if known != nil {
			known.free()
		}
	case el == e.stray:
		e.fillStray(known)
	default:
		delete(e.lines, el.line.ID)
		e.adopt(known)
		e.readFrom(known)
	}
	return true
}

// fillStray makes the stray the target, in a layout that is known now. e.mu is held.
func (e *Engine) fillStray(known *epochLine) {
	delete(e.lines, e.stray.line.ID)
	e.stray = nil
	e.fillInto(known)
}

// dropStray gives up a Logfile whose order nobody has said: what only it holds is read from the source again.
func (e *Engine) dropStray() error {
	e.cache.Logger.Info("the log was being sorted for an order that this job does not have; what only that one holds is read from the source again")
	slot := e.stray.line.Slot
	e.forgetSlot(slot)
	if err := e.cache.Store.Drop(slot); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.lines, e.stray.line.ID)
	e.stray = nil
	return nil
}

// worthJoining is the share of what the log holds that is rather moved than read from the source again: moving it means moving all the rest.
const worthJoining = 0.1

// joinStray makes one Logfile of two, neither of which is in an order that anybody wants: what the older holds goes to the newer, wherever there
// is room. If that fails, or the newer holds little, it is given up.
func (e *Engine) joinStray() bool {
	el := e.stray
	old, log := e.cur.line.Log, el.line.Log
	if !log.IsOlder() && float64(log.Held()) >= worthJoining*float64(log.Held()+old.Held()) {
		geo, err := e.joined(el.line, e.cur.line)
		if err == nil {
			known := &epochLine{epoch: -1, geo: geo, line: &reorder.Line{Log: log, Slot: el.line.Slot, Order: geo.Order, Starts: geo.Starts}}
			if e.forced != nil {
				known.line.Order = nil // what it lacks is ingest's to read
			}
			if err = e.aim(known); err == nil {
				e.mu.Lock()
				e.fillStray(known)
				e.mu.Unlock()
				return true
			}
			geo.Free()
		}
		e.cache.Logger.Warn("the logs of a sort that was cut off can't be joined", "error", err)
	}
	if err := e.dropStray(); err != nil {
		e.mu.Lock()
		e.broken, e.brokenAt = err, time.Now()
		e.mu.Unlock()
		e.cache.Logger.Error("a log that nobody wants can't be removed; samples stay where they are", "error", err)
	}
	return true
}

// joined lays out, behind what each segment of a Logfile holds, what another Logfile holds. Nothing of it is delivered in order.
func (e *Engine) joined(into, from *reorder.Line) (geo *chunker.Line, err error) {
	n := e.cache.Manifest.Len()
	geo = &chunker.Line{}
	if geo.Segment, err = offheap.Make[uint32](n); err != nil {
		return nil, err
	}
	if geo.Order, err = offheap.Make[sample.Index](n); err != nil {
		geo.Free()
		return nil, err
	}
	for i := range geo.Segment {
		geo.Segment[i] = chunker.None
	}
	h := into.Log.Header()
	counts := make([]uint64, h.Segments+1)
	put := func(index sample.Index, seg int) {
		geo.Segment[index] = uint32(seg)
		counts[seg+1]++
	}
	rooms := make([]room, h.Segments)
	for seg := range rooms {
		samples, bytes := into.Log.Room(seg)
		rooms[seg] = room{seg, samples, bytes}
		into.Log.Arrivals(seg, func(_ int, index sample.Index, _ uint64) bool {
			if geo.Segment[index] == chunker.None && e.cache.Locations.In(index, into.Slot) {
				put(index, seg)
			}
			return true
		})
	}
	for k := range int(from.Log.Header().Segments) {
		from.Log.Arrivals(k, func(_ int, index sample.Index, _ uint64) bool {
			if geo.Segment[index] != chunker.None || !e.cache.Locations.In(index, from.Slot) {
				return true
			}
			var seg int
			if seg, rooms = firstFit(rooms, chunker.Padded(uint32(e.cache.StoredSize(index)), int(h.Align))); seg >= 0 {
				put(index, seg)
			}
			return true
		})
	}
	for k := range h.Segments {
		counts[k+1] += counts[k]
	}
	geo.Starts = counts
	at := slices.Clone(counts)
	for i, seg := range geo.Segment {
		if seg != chunker.None {
			geo.Order[at[seg]] = sample.Index(i)
			at[seg]++
		}
	}
	return geo, nil
}

// room is what a segment can still take.
type room struct {
	seg     int
	samples int
	bytes   uint64
}

// firstFit takes room for a sample in one of the first segments that have any; -1: in none of them. rest is without those that are full, or
// that a whole look along found no use for.
func firstFit(rooms []room, bytes uint64) (seg int, rest []room) {
	const ahead = 16
	for ; len(rooms) > 0; rooms = rooms[1:] {
		if rooms[0].samples <= 0 {
			continue
		}
		for i := range min(len(rooms), ahead) {
			if r := &rooms[i]; r.samples > 0 && r.bytes >= bytes {
				r.samples--
				r.bytes -= bytes
				return r.seg, rooms
			}
		}
		if len(rooms) <= ahead {
			break // others, which are smaller, may still fit
		}
	}
	return -1, rooms
}
