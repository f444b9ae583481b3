package cache

import (
	"context"
	"slices"
	"time"

	"lcache/chunker"
	"lcache/internal/errcode"
	"lcache/internal/serve/schedule"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/sample"
)

// NewEpochLayout lays out an order, with the segment size of held. If held is nil, segments have the size of Sizing.
func (c *Cache) NewEpochLayout(o *schedule.Order, held *logfile.Logfile) (*chunker.EpochLayout, error) {
	capacity := c.Sizing.Segment
	if held != nil {
		capacity = uint64(held.Header().SegmentBlocks-1) * uint64(c.Format.Block)
	}
	return chunker.NewEpochLayout(o.Chunks, o.Ranks, c.cut(capacity))
}

// NewEpochLayoutWith lays out an order, with the segment size of Sizing and unused segments that do not follow from the order. The layout has
// the samples of kept. If kept is nil, it has the samples of Placement.
func (c *Cache) NewEpochLayoutWith(o *schedule.Order, unused chunker.Unused, kept *sample.Set) (*chunker.EpochLayout, error) {
	cut := c.cut(c.Sizing.Segment)
	if kept != nil {
		cut.Keep, cut.Chosen = kept.Has, true
	}
	return chunker.NewEpochLayoutWith(o.Chunks, o.Ranks, cut, unused)
}

func (c *Cache) cut(capacity uint64) chunker.Cut {
	return chunker.Cut{Sizes: c.Manifest.Sizes(), Align: c.Format.Align, Capacity: capacity, Keep: c.Placement().Keeps}
}

// Begin starts a Logfile for an epoch layout as Logfile A (0) or B (1), and drops the existing one. A segment has one block more
// than the layout needs, because a restart may leave gaps.
func (c *Cache) Begin(num int, layout *chunker.EpochLayout, o *schedule.Order, epoch uint32) (*logfile.Logfile, error) {
	if layout.Segments() > metaindex.MaxSegments {
		return nil, errcode.Errorf(errcode.Memory, "%d segments are more than %d: give more --memory", layout.Segments(), metaindex.MaxSegments)
	}
	if c.Store.Logfiles()[num] != nil {
		if err := c.Store.Drop(num); err != nil {
			return nil, err
		}
	}
	key, err := c.noteLine(num, layout, o)
	if err != nil {
		c.Logger.Warn("the epoch layout can't be written: a restarted server will use random reads for this log", "error", err)
	}
	h := logfile.Header{Fingerprint: c.Manifest.Fingerprint(), Key: key, Epoch: epoch, Segments: uint32(layout.Segments()),
		SegmentBlocks: uint32(c.Sizing.Segment/c.Sizing.Block) + 1, Align: uint32(c.Format.Align), Block: uint32(c.Format.Block)}
	l, err := c.Store.Begin(num, h, layout.Starts)
	if err != nil {
		return nil, err
	}
	c.recovered[num].Store(false)
	return l, nil
}

// BeginPackages makes room for a number of packages. Each has at most blocks blocks and room samples; open packages are filled at once.
func (c *Cache) BeginPackages(blocks, open, packages, room int) (*logfile.Packages, error) {
	p, err := c.Store.BeginPackages(logfile.Header{Fingerprint: c.Manifest.Fingerprint(), SegmentBlocks: uint32(blocks), Open: uint32(open)}, packages, room)
	if err == nil {
		c.recovered[logfile.PackagesNum].Store(false)
	}
	return p, err
}

// Unorder makes packages of the segments of a Logfile whose order no job needs, so that a new Logfile can take its place. It moves no
// sample. ok means that it is done, even if the old journal could not be removed.
func (c *Cache) Unorder(ctx context.Context, num int) (ok bool, err error) {
	ok, err = c.Store.Unorder(ctx, num, func(index sample.Index, seg, number int, off uint64) {
		c.Locations.Move(index, c.Locations.At(num, seg, off), c.Locations.At(logfile.PackagesNum, number, off))
	})
	if ok {
		c.recovered[logfile.PackagesNum].Store(true)
	}
	return ok, err
}

// OtherHolds reports whether the other Logfile holds samples.
func (c *Cache) OtherHolds(num int) bool {
	other := c.Store.Logfiles()[1-num]
	return other != nil && !other.Empty()
}

// EpochLayoutOf rebuilds the epoch layout of a Logfile, if its order belongs to a job. It returns layout, order and epoch; the canonical order is
// epoch -1. A nil layout means that the order does not belong to the job, is not known yet, or was cut into other segments. The Logfile can
// still be read and sorted.
func (c *Cache) EpochLayoutOf(ctx context.Context, s *schedule.Schedule, l *logfile.Logfile, patience time.Duration) (*chunker.EpochLayout, *schedule.Order, int, error) {
	if l.IsOlder() { // its order may have the same key, but has another number of samples
		return nil, nil, -1, nil
	}
	h := l.Header()
	key := c.OrderKey(l)
	order, epoch, err := s.Identify(ctx, int(h.Epoch), key, patience)
	if order == nil || err != nil {
		return nil, nil, -1, err
	}
	if key != h.Key {
		layout, err := c.restoreEpochLayout(l, order)
		if layout == nil {
			return nil, nil, -1, err
		}
		return layout, order, epoch, nil
	}
	layout, err := c.NewEpochLayout(order, l)
	if err != nil {
		return nil, nil, -1, err
	}
	if !slices.Equal(layout.Starts, h.Starts) {
		layout.Free()
		return nil, nil, -1, nil
	}
	return layout, order, epoch, nil
}
