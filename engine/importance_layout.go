package engine

import (
	"cmp"
	"slices"

	"lcache/chunker"
	"lcache/fetch"
	"lcache/importance"
	"lcache/offheap"
	"lcache/reorder"
	"lcache/sample"
	"lcache/schedule"
)

// A drawn epoch leaves many samples out, and has many that lie in memory. The log of such an epoch has neither in the segments that are read in order: they lie in its rest, most used first.
// A segment of the rest of which few samples are wanted is not moved: the next Logfile takes over its blocks, and what is wanted of it is read by place. So a prediction that is wrong, of what is drawn or of what
// stays in memory, costs reads by place, and nothing else (docs/adr/0025-what-stays-in-place.md).

// What a device is taken for where the choice is between reading a segment as a whole and reading its samples by place: one that is limited in operations and in bytes a second. The kernel
// splits larger reads, and the device counts the parts.
const (
	readsASecond = 3000
	bytesASecond = 500 << 20
	bytesARead   = 512 << 10
)

// leastFull is the part of a segment that must be filled, for it to be carried: lines would have ever more segments.
const leastFull = 0.5

// lineBefore is the rest of the line that an epoch's samples lie in before it.
type lineBefore struct {
	line   *chunker.Line // may be freed
	first  int           // segment of the rest
	starts []uint64
	order  []sample.Index
}

// members are the samples of a segment of the rest.
func (b *lineBefore) members(k int) []sample.Index {
	return b.order[b.starts[k]-b.starts[b.first] : b.starts[k+1]-b.starts[b.first]]
}

// lineBefore copies the rest of the line that an epoch's samples lie in before it; nil where that is not known, or the owner's orders are not drawn. e.mu is held.
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

// rest decides what of a drawn epoch's samples is not laid out to be read in order, and which the log keeps; a nil set keeps those that the budget admits. free frees the memory of both.
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
	if kept != nil { // a segment that stays keeps all of its samples
		r.Carry = slices.DeleteFunc(r.Carry, func(k int) bool {
			return slices.ContainsFunc(before.members(k), func(i sample.Index) bool { return !kept.Has(i) })
		})
	}
	return r, kept, free
}

// mostUsed returns all samples, most used first, and those that memory will hold; nil if the epoch is not a drawn one.
func (p *important) mostUsed(epoch int) (by []sample.Index, high *sample.Set, err error) {
	p.stateMu.Lock()
	defer p.stateMu.Unlock()
	uses := p.state.Uses(epoch)
	if uses == nil {
		return nil, nil, nil
	}
	if by, err = importance.MostUsed(uses); err != nil {
		return nil, nil, err
	}
	if high, err = sample.NewSet(len(uses)); err != nil {
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

// restSegment is a segment that may be carried.
type restSegment struct {
	k      int
	bytes  uint64
	wanted int // samples of it that are read by place if it is
}

// byPlace is what reading the wanted samples of a segment by place takes: reads, and bytes between those that are read together. Of the samples at most so many can be read along with others. A
// sample is read along if no more than a few that are not wanted lie before the next one that is; so many samples of mean size fit into the gap that is read over.
func (s *restSegment) byPlace(mean float64, along float64) (reads, between, used float64) {
	share := min(1, float64(s.wanted)*mean/float64(max(s.bytes, 1))) // that is wanted
	apart := 1.0                                                     // chance that none of the samples so far is wanted
	gaps := 0.0                                                      // samples between two that are read together, for each that is wanted
	for k := range int(fetch.Nearby/mean) + 1 {
		gaps += float64(k) * share * apart
		apart *= 1 - share
	}
	merged := float64(s.wanted) * (1 - apart)
	if merged > along {
		gaps *= along / merged
		merged = along
	}
	return float64(s.wanted) - merged, float64(s.wanted) * gaps * mean, merged
}

// carry chooses the segments that stay as they are: so many of those of which least is wanted that a device takes least time for all that an epoch reads. room is how many bytes of memory there
// are for samples that are read along with others.
func (e *Engine) carry(order *schedule.Order, before *lineBefore, high *sample.Set, room int64) (carry []int) {
	segments, first, again, err := e.restSegments(order, before, high)
	if err != nil {
		return nil
	}
	read, mean := min(float64(e.cache.Sizing.Block), bytesARead), float64(e.cache.Manifest.Bytes())/float64(e.cache.Manifest.Len())
	along := float64(room) / mean * alongTurns
	bytes, reads := mean*float64(first+again), float64(again) // if none is carried
	for _, s := range segments {
		bytes += float64(s.bytes)
	}
	slices.SortFunc(segments, func(a, b restSegment) int {
		return cmp.Or(cmp.Compare(float64(a.wanted)*float64(b.bytes), float64(b.wanted)*float64(a.bytes)), cmp.Compare(a.k, b.k))
	})
	segments = slices.DeleteFunc(segments, func(s restSegment) bool { return float64(s.bytes) < leastFull*float64(e.cache.Sizing.Segment) })
	least, n := cost(bytes, reads, read), 0
	for i, s := range segments {
		apart, between, used := s.byPlace(mean, along)
		bytes, reads, along = bytes-float64(s.bytes)+between, reads+apart, along-used
		if c := cost(bytes, reads, read); c <= least {
			least, n = c, i+1
		}
	}
	for _, s := range segments[:n] {
		carry = append(carry, s.k)
	}
	slices.Sort(carry)
	return carry
}

// cost is how long a device takes to read so many bytes, some of them by so many reads by place, the others by reads of a size.
func cost(bytes, reads, read float64) float64 {
	return max(bytes/bytesASecond, (reads+bytes/read)/readsASecond)
}

// restSegments counts what each segment of the rest has, and what of it is wanted; and how many samples an epoch delivers that memory won't hold, and how often some of them again.
func (e *Engine) restSegments(order *schedule.Order, before *lineBefore, high *sample.Set) (segments []restSegment, first, again int, err error) {
	m := e.cache.Manifest
	of, err := offheap.Make[uint32](m.Len()) // one more than the segment's place; 0: none
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
		s := restSegment{k: k}
		for _, index := range before.members(k) {
			of[index] = uint32(len(segments) + 1)
			s.bytes += chunker.Padded(m.Size(index), e.cache.Format.Align)
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
		first++
		if of[index] > 0 {
			segments[of[index]-1].wanted++
		}
	}
	return segments, first, again, nil
}
