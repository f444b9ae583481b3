package reorder

import (
	"context"
	"time"

	"lcache/logfile"
)

// carryTime is how long Carry waits for write buffers and for a short tail that is read back. If it fails, the segment is loaded instead.
const carryTime = time.Second

// Carry moves a segment to the next Logfile as a whole, if one segment of the next epoch layout has exactly its samples. It reports
// whether it did. Otherwise the segment must be loaded, which moves its samples one by one. Nothing may load the segment during Carry.
func (p *Scan) Carry(from *EpochLog, seg int, to *EpochLog) bool {
	if from.Layout == nil || to.Layout == nil || to.Layout.Before != from.Layout {
		return false
	}
	next, ok := to.Layout.CarriedTo(seg)
	if !ok || !p.isAsLaidOut(from, seg, to) {
		return false
	}
	ctx, cancel := context.WithTimeout(p.open, carryTime)
	defer cancel()
	err := from.Log.Carry(ctx, seg, to.Log, next, func() { p.move(from.Log, seg, to, next) })
	if err != nil {
		p.o.Logger.Debug("a segment is moved sample by sample", "segment", seg, "error", err)
		return false
	}
	p.Stats.Carried.Add(1)
	return true
}

// isAsLaidOut reports whether a segment holds exactly the samples of its layout, and the next Logfile holds none of them.
func (p *Scan) isAsLaidOut(from *EpochLog, seg int, to *EpochLog) bool {
	left, ok := len(from.Layout.Members(seg)), true
	from.Log.Arrivals(seg, func(_ int, index uint32, off uint64) bool {
		left--
		ok = from.Layout.Segment[index] == uint32(seg) && !to.Router.Placed(index) && p.o.Locations.Get(index) == p.o.Locations.At(from.Log.Num(), seg, off)
		return ok
	})
	return ok && left == 0
}

// move publishes the new locations of a segment's samples.
func (p *Scan) move(from *logfile.Logfile, seg int, to *EpochLog, next int) {
	from.Arrivals(seg, func(_ int, index uint32, off uint64) bool {
		if p.o.Locations.Move(index, p.o.Locations.At(from.Num(), seg, off), p.o.Locations.At(to.Log.Num(), next, off)) {
			to.Router.Claim(index)
		}
		return true
	})
}
