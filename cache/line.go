package cache

import (
	"fmt"

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
	return chunker.NewLine(o.Chunks, o.Ranks, chunker.Cut{Sizes: c.Manifest.Sizes(), Align: c.Format.Align, Capacity: capacity, Keep: c.Keeps})
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
