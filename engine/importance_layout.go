package engine

import (
	"errors"
	"slices"

	"lcache/chunker"
	"lcache/drawn"
	"lcache/importance"
	"lcache/offheap"
	"lcache/reorder"
	"lcache/sample"
	"lcache/schedule"
)

// A drawn epoch leaves many samples out, and finds many in memory. The log of such an epoch has neither in the segments that are read in order: they lie in unused segments behind these, most used first. The next
// Logfile takes over the blocks of an unused segment of which few samples are wanted, and those are read by location. So a prediction that is wrong, of what is drawn or of what stays in memory, costs random reads
// and nothing else (docs/adr/0025-what-stays-in-place.md).

// lineBefore is the unused segments of the epoch layout before one.
type lineBefore struct {
	line   *chunker.Line // may be freed
	first  int           // unused segment
	starts []uint64
	order  []sample.Index
}

// members returns the samples of an unused segment.
func (b *lineBefore) members(k int) []sample.Index {
	return b.order[b.starts[k]-b.starts[b.first] : b.starts[k+1]-b.starts[b.first]]
}

// lineBefore copies the unused segments of the layout of the epoch before one; nil if that is not known, or the owner's orders are not drawn. e.mu is held.
func (e *Engine) lineBefore(epoch int) *lineBefore {
	if e.owner.importance.Load() == nil || epoch <= e.readEpoch {
		return nil
	}
	i := slices.IndexFunc([]*reorder.EpochLog{e.tgt, e.cur}, func(l *reorder.EpochLog) bool { return l != nil && l.Line != nil && l.Epoch == epoch-1 })
	if i < 0 {
		return nil
	}
	l := []*reorder.EpochLog{e.tgt, e.cur}[i].Line
	first := 0
	for first < l.Segments() && !l.IsRest(first) {
		first++
	}
	b := &lineBefore{line: l, first: first, starts: slices.Clone(l.Starts)}
	b.order = slices.Clone(l.Order[b.starts[first]:])
	return b
}

// rest returns the samples that are excluded from a drawn epoch's layout, and the samples that the log keeps; nil: the samples that the budget admits. free frees the memory of both.
func (p *important) rest(epoch int, order *schedule.Order, before *lineBefore) (r chunker.Rest, kept *sample.Set, free func()) {
	by, high, err := p.mostUsed(epoch)
	if err != nil || by == nil {
		return chunker.Rest{}, nil, func() {}
	}
	free = func() {
		offheap.Free(by)
		high.Close()
		kept.Close()
	}
	if kept, err = p.keeps(epoch, order, by, high); err != nil || kept == nil && before == nil {
		return chunker.Rest{}, nil, free
	}
	r = chunker.Rest{Apart: high.Has, Order: by}
	if before == nil {
		return r, kept, free
	}
	r.Before, r.Lies, r.Carry = before.line, before.members, p.e.carry(order, before, high, p.along.Room())
	if kept != nil { // a segment that is carried keeps all of its samples
		r.Carry = slices.DeleteFunc(r.Carry, func(k int) bool {
			return slices.ContainsFunc(before.members(k), func(i sample.Index) bool { return !kept.Has(i) })
		})
	}
	return r, kept, free
}

// mostUsed returns all samples, most used first, and those that memory will hold; nil if the epoch is not drawn.
func (p *important) mostUsed(epoch int) (by []sample.Index, high *sample.Set, err error) {
	view := p.View(func(s *drawn.State) {
		if uses := s.Uses(epoch); uses != nil {
			by, err = importance.MostUsed(uses)
		}
	})
	if err = errors.Join(view, err); err != nil || by == nil {
		return nil, nil, err
	}
	if high, err = sample.NewSet(len(by)); err != nil {
		offheap.Free(by)
		return nil, nil, err
	}
	left := p.config.Cache
	for _, index := range by {
		if left -= p.high.Held().Size(index); left < 0 || p.config.Policy == "lru" {
			break
		}
		high.Add(index)
	}
	return by, high, nil
}

// carry returns the unused segments to leave in place. room is the memory for opportunistic reads, in bytes.
func (e *Engine) carry(order *schedule.Order, before *lineBefore, high *sample.Set, room int64) []int {
	m := e.cache.Manifest
	r := epochReads{mean: float64(m.Bytes()) / float64(m.Len()), segment: float64(e.cache.Sizing.Segment), block: float64(e.cache.Sizing.Block), along: float64(room)}
	var err error
	if r.unused, r.outside, r.again, err = e.unusedSegments(order, before, high); err != nil {
		return nil
	}
	return chooseCarried(r)
}

// unusedSegments returns the unused segments with the number of their samples that an epoch wants, and how many samples the epoch delivers that memory will not hold: different ones, and repetitions.
func (e *Engine) unusedSegments(order *schedule.Order, before *lineBefore, high *sample.Set) (segments []unusedSegment, outside, again int, err error) {
	m := e.cache.Manifest
	of, err := offheap.Make[uint32](m.Len()) // 1 + the segment's place, so that fresh memory says that there is none
	if err != nil {
		return nil, 0, 0, err
	}
	defer offheap.Free(of)
	seen, err := sample.NewSet(m.Len())
	if err != nil {
		return nil, 0, 0, err
	}
	defer seen.Close()
	for k := before.first; k < len(before.starts)-1; k++ {
		s := unusedSegment{k: k}
		for _, index := range before.members(k) {
			of[index] = uint32(len(segments) + 1)
			s.bytes += float64(chunker.Padded(m.Size(index), e.cache.Format.Align))
		}
		segments = append(segments, s)
	}
	for _, index := range order.Global {
		switch {
		case int(index) >= len(of) || high.Has(index): // open, or in memory
			continue
		case seen.Has(index):
			again++
			continue
		}
		seen.Add(index)
		outside++
		if of[index] > 0 {
			segments[of[index]-1].wanted++
		}
	}
	return segments, outside, again, nil
}
