package cache

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"lcache/chunker"
	"lcache/logfile"
	"lcache/metaindex"
	"lcache/schedule"
)

// NewLine lays out an order, cut into segments as those of held. With a nil held, segments have the size that Sizing gives.
func (c *Cache) NewLine(o *schedule.Order, held *logfile.Logfile) (*chunker.Line, error) {
	capacity := c.Sizing.Segment
	if held != nil {
		capacity = uint64(held.Header().SegmentBlocks-1) * uint64(c.Format.Block)
	}
	return chunker.NewLine(o.Chunks, o.Ranks, c.cut(capacity))
}

// NewLineAfter lays out an order, in segments of the size that Sizing gives, with a rest that does not follow from the order.
func (c *Cache) NewLineAfter(o *schedule.Order, rest chunker.Rest) (*chunker.Line, error) {
	return chunker.NewLineAfter(o.Chunks, o.Ranks, c.cut(c.Sizing.Segment), rest)
}

func (c *Cache) cut(capacity uint64) chunker.Cut {
	return chunker.Cut{Sizes: c.Manifest.Sizes(), Align: c.Format.Align, Capacity: capacity, Keep: c.Admits}
}

// keyOf names a line in the header of its Logfile. A line that does not follow from its order alone can't be laid out again, and so has no order's name.
func keyOf(line *chunker.Line, o *schedule.Order) [16]byte {
	if line.OfOrder {
		return o.Key
	}
	h := xxh3.New()
	_, _ = h.Write(o.Key[:])
	var b [8]byte
	for _, start := range line.Starts {
		_, _ = h.Write(binary.LittleEndian.AppendUint64(b[:0], start))
	}
	return h.Sum128().Bytes()
}

// Begin starts a Logfile for a line, in the given half. A Logfile that is there is dropped. A segment has one block more than the line's cut,
// because a restart may leave gaps.
func (c *Cache) Begin(half int, line *chunker.Line, o *schedule.Order, epoch uint32) (*logfile.Logfile, error) {
	if line.Segments() > metaindex.MaxSegments {
		return nil, fmt.Errorf("%d segments are more than %d: give more --memory", line.Segments(), metaindex.MaxSegments)
	}
	if c.Store.Logfiles()[half] != nil {
		if err := c.Store.Drop(half); err != nil {
			return nil, err
		}
	}
	h := logfile.Header{Fingerprint: c.Manifest.Fingerprint(), Key: keyOf(line, o), Epoch: epoch, Segments: uint32(line.Segments()),
		SegmentBlocks: uint32(c.Sizing.Segment/c.Sizing.Block) + 1, Align: uint32(c.Format.Align), Block: uint32(c.Format.Block)}
	l, err := c.Store.Begin(half, h, line.Starts)
	if err != nil {
		return nil, err
	}
	c.recovered[half].Store(false)
	return l, nil
}

// OtherHolds reports whether the Logfile of the other half holds samples.
func (c *Cache) OtherHolds(half int) bool {
	other := c.Store.Logfiles()[1-half]
	return other != nil && !other.Empty()
}

// LineOf lays out a Logfile in an order of a job, and returns line, order and epoch; the epoch of the canonical order is -1. A nil line means that
// the order is not one of that job, is not known yet, or was cut into other segments. The Logfile can still be read and sorted.
func (c *Cache) LineOf(ctx context.Context, s *schedule.Schedule, l *logfile.Logfile, patience time.Duration) (*chunker.Line, *schedule.Order, int, error) {
	if l.IsOlder() { // its order may have the same key, but it has another number of samples
		return nil, nil, -1, nil
	}
	h := l.Header()
	order, epoch, err := s.Identify(ctx, int(h.Epoch), h.Key, patience)
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
