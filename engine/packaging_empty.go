package engine

import (
	"context"

	"lcache/cache"
	"lcache/importance"
	"lcache/logfile"
	"lcache/sample"
)

// A victim is a segment of a Logfile, or a package, that is being emptied from its beginning. A Logfile's blocks are freed as soon as all samples in them have moved.
type victim struct {
	log       *logfile.Logfile
	half, seg int
	todo      []survivor // in the order of the string
}

// survivor is a sample that lives in a victim.
type survivor struct {
	index sample.Index
	off   uint64
	n     int // stored bytes
}

// mostVictims is how many are emptied in turns, so that a package is a mixture of them, also where neighbours in a segment are of one kind.
const mostVictims = 8

// empty moves a run of samples out of a victim. It reports whether there may be more to do.
func (k *packaging) empty() bool {
	for len(k.victims) < mostVictims && k.hasPlacesFor(len(k.victims)+1) {
		v := k.choose()
		if v == nil {
			break
		}
		k.victims = append(k.victims, v)
	}
	if len(k.victims) == 0 {
		return false
	}
	v := k.victims[0]
	if k.hasPlacesFor(len(k.victims)) { // else the first one comes to its end before the others
		k.victims = append(k.victims[1:], v)
	}
	if len(v.todo) == 0 {
		if v.todo = k.newVictim(v.log, v.half, v.seg).todo; len(v.todo) == 0 {
			k.emptied(v)
			return true
		}
	}
	run := v.run(k.buffer)
	bytes := int64(0)
	for _, s := range run {
		bytes += k.e.cache.Padded(s.index)
	}
	if !k.packing.May(bytes) || k.e.cache.Store.Free() <= k.plan.open+int(bytes)/k.e.cache.Format.Block {
		return false
	}
	return k.moveRun(v, run)
}

// hasPlacesFor reports whether so many victims can be under way at once: each has blocks that are partly moved, and packages are freed as a whole. The first one can always be.
func (k *packaging) hasPlacesFor(victims int) bool {
	return victims == 1 || k.e.cache.Store.Free() >= k.plan.open+2+victims*max(2, k.plan.blocks)
}

// choose returns what is to be emptied next; nil: nothing.
func (k *packaging) choose() *victim {
	space := k.space(0)
	if !space.Tight() {
		return nil
	}
	for _, half := range []int{0, 1, logfile.PackageHalf} {
		list := k.pieces[half]
		if half == logfile.PackageHalf {
			list = k.finished(list)
		}
		seg := importance.Victim(list, space)
		l := k.e.cache.Logfile(half)
		if seg < 0 || l == nil {
			continue
		}
		k.pieces[half][seg].Stays = true
		return k.newVictim(l, half, seg)
	}
	return nil
}

// finished is a list of packages of which only finished ones have anything.
func (k *packaging) finished(list []importance.Piece) []importance.Piece {
	out := make([]importance.Piece, len(list))
	for _, number := range k.store.Finished() {
		if number < len(list) {
			out[number] = list[number]
		}
	}
	return out
}

func (k *packaging) newVictim(l *logfile.Logfile, half, seg int) *victim {
	c := k.e.cache
	v := &victim{log: l, half: half, seg: seg}
	l.Arrivals(seg, func(_ int, index sample.Index, off uint64) bool {
		if c.Locations.Get(index) == c.Locations.At(half, seg, off) {
			v.todo = append(v.todo, survivor{index, off, c.StoredSize(index)})
		}
		return true
	})
	return v
}

// run is the next samples that one read brings to a buffer: neighbours with little between them.
func (v *victim) run(buffer *cache.Buffer) []survivor {
	first := v.todo[0]
	end, n := first.off+uint64(first.n), 1
	for ; n < len(v.todo); n++ {
		s := v.todo[n]
		to := s.off + uint64(s.n)
		if s.off > end+uint64(s.n) || to-first.off > runBytes || !buffer.Holds(first.off, int(to-first.off)) {
			break
		}
		end = to
	}
	return v.todo[:n]
}

// moveRun moves samples into packages, and frees what is empty before the next one.
func (k *packaging) moveRun(v *victim, run []survivor) bool {
	first, last := run[0], run[len(run)-1]
	n := int(last.off + uint64(last.n) - first.off)
	if !k.buffer.Holds(first.off, n) { // a huge sample: it stays, and its segment with it
		k.drop(v)
		return true
	}
	ctx, cancel := context.WithTimeout(k.ctx, k.e.fetcher.LogTimeout())
	defer cancel()
	data, err := k.buffer.Read(ctx, v.log, v.seg, first.off, n)
	if err != nil {
		if len(run) > 1 { // one of its blocks may be lost, and others not
			return k.moveRun(v, run[:1])
		}
		k.drop(v)
		return true
	}
	for _, s := range run {
		switch k.survives(v, s, data[s.off-first.off:][:s.n]) {
		case later:
			return false
		case never:
			k.drop(v)
			return true
		}
		v.todo = v.todo[1:]
	}
	if v.half != logfile.PackageHalf && len(v.todo) > 0 {
		_ = v.log.FreeBlocks(v.seg, int(v.todo[0].off/uint64(k.e.cache.Format.Block)))
	}
	return true
}

// survives moves one sample into a package, unless it has left. Bytes that are not right make it a miss.
func (k *packaging) survives(v *victim, s survivor, data []byte) outcome {
	c := k.e.cache
	at := c.Locations.At(v.half, v.seg, s.off)
	if c.Locations.Get(s.index) != at {
		return done
	}
	if !k.isRight(s.index, data) {
		k.e.fetcher.Bad(s.index, at, v.half, nil)
		return done
	}
	high, _ := k.isHigh(s.index)
	o := k.move(s.index, at, high, func(ctx context.Context, lane int) (int, uint64, error) { return k.store.Put(ctx, lane, s.index, data) })
	if o == done {
		k.cleaned.Add(int64(len(data)))
	}
	return o
}

// isRight compares stored bytes with the sample's checksum.
func (k *packaging) isRight(index sample.Index, data []byte) bool {
	c := k.e.cache
	if c.Form != nil && c.Form.Packed(index) {
		plain := make([]byte, c.Manifest.Size(index))
		if c.Form.Unpack(index, data, plain) != nil {
			return false
		}
		data = plain
	}
	return c.Sums.IsRight(index, data)
}

// emptied frees a victim.
func (k *packaging) emptied(v *victim) {
	piece := &k.pieces[v.half][v.seg]
	if v.half != logfile.PackageHalf {
		v.log.FreeSegment(v.seg)
		*piece = importance.Piece{Ordered: true}
	} else if err := k.store.Free(v.seg); err != nil {
		piece.Stays = true // until the next boundary
	} else {
		*piece = importance.Piece{}
	}
	k.drop(v)
}

// drop takes a victim off the list. What lives there stays, and it is not chosen again before the next boundary.
func (k *packaging) drop(v *victim) {
	for i, other := range k.victims {
		if other == v {
			k.victims = append(k.victims[:i:i], k.victims[i+1:]...)
			return
		}
	}
}
