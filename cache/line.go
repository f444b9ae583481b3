package cache

import (
	"context"
	"fmt"
	"slices"
	"time"

	"lcache/chunker"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/schedule"
)

// NewLine lays out an order: with the geometry of the Logfile that has it, or with this server's.
func (c *Cache) NewLine(o *schedule.Order, held *logfile.Logfile) (*chunker.Line, error) {
	capacity := c.Sizing.Segment
	if held != nil {
		capacity = uint64(held.Header().SegmentBlocks-1) * uint64(c.Format.Block)
	}
	return chunker.NewLine(o.Chunks, o.Ranks, chunker.Cut{Sizes: c.Manifest.Sizes(), Align: c.Format.Align, Capacity: capacity, Keep: c.Admits})
}

// Begin starts a Logfile for a line, in a slot that is empty. A segment has one block more than the line's cut: a restart may
// leave gaps.
func (c *Cache) Begin(slot int, line *chunker.Line, o *schedule.Order, epoch uint32) (*logfile.Logfile, error) {
	if line.Segments() > metaindex.MaxSegments {
		return nil, fmt.Errorf("%d segments are more than %d: give more --memory", line.Segments(), metaindex.MaxSegments)
	}
	if c.Store.Logfiles()[slot] != nil {
		if err := c.Store.Drop(slot); err != nil {
			return nil, err
		}
	}
	h := logfile.Header{Fingerprint: c.Manifest.Fingerprint(), Key: o.Key, Epoch: epoch, Segments: uint32(line.Segments()),
		SegmentBlocks: uint32(c.Sizing.Segment/c.Sizing.Block) + 1, Align: uint32(c.Format.Align), Block: uint32(c.Format.Block)}
	l, err := c.Store.Begin(slot, h, line.Starts)
	if err != nil {
		return nil, err
	}
	c.recovered[slot].Store(false)
	return l, nil
}

// OtherHolds reports whether the Logfile in the other slot holds something.
func (c *Cache) OtherHolds(slot int) bool {
	other := c.Store.Logfiles()[1-slot]
	return other != nil && !other.Empty()
}

// LineOf lays out a Logfile whose order this job has, and names its epoch, which is -1 for the canonical order. A nil line means that the order is
// not this job's, or not known yet, or was cut into other segments: the Logfile can be read and sorted all the same.
func (c *Cache) LineOf(ctx context.Context, l *logfile.Logfile, patience time.Duration) (*chunker.Line, *schedule.Order, int, error) {
	if l.IsOlder() { // the order of its samples may have kept its name, but not their number
		return nil, nil, -1, nil
	}
	h := l.Header()
	order, epoch, err := c.Schedule.Identify(ctx, int(h.Epoch), h.Key, patience)
	if order == nil || err != nil {
		return nil, nil, -1, err
	}
	line, err := c.NewLine(order, l)
	if err != nil {
		return nil, nil, -1, err
	}
	if !slices.Equal(line.Starts, h.Starts) {
		line.Free()
		return nil, nil, -1, nil
	}
	return line, order, epoch, nil
}
