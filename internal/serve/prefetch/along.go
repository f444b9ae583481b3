package prefetch

import (
	"cmp"
	"slices"

	"lcache/sample"
)

// A device that is limited in operations takes less time for one read over a short gap than for two reads. So a sample that is read by place brings those along that lie near it
// and are asked for later in the epoch, long before their chunks are listed. Along has the memory for them.

// Along chooses samples that are read along with another one, and keeps them until they are asked for. Fetcher.Held has them then. Its methods may be called
// concurrently, and wait for nothing.
type Along interface {
	// Wanted returns those of some samples that are asked for later and that nothing else brings.
	Wanted(of []sample.Index) []sample.Index
	// Take reports whether there is memory for a sample, and sets it apart. Keep or Drop follows.
	Take(index sample.Index) bool
	// Keep keeps a copy of the bytes of a sample, whose checksum was right.
	Keep(index sample.Index, data []byte)
	// Drop gives the memory for a sample back: it was not read.
	Drop(index sample.Index)
	// Again may keep a copy of the bytes of a sample that a chunk wants, for the next epoch. Its checksum was right.
	Again(index sample.Index, data []byte)
}

// reach bounds how far from a sample those lie that are read along with it, in bytes.
const reach = 256 << 10

// addAlong adds to the samples of a burst those that are to be read along with them, in reads of so many bytes.
func (r *Prefetcher) addAlong(parts []part, largest uint64) []part {
	if !slices.ContainsFunc(parts, func(p part) bool { return p.pf.along != nil }) {
		return parts
	}
	in := map[sample.Index]bool{}
	for i := range parts {
		in[parts[i].pf.index] = true
	}
	for i := range len(parts) {
		if parts[i].pf.along == nil {
			continue
		}
		p := parts[i]
		near := r.around(&p, in)
		after := slices.IndexFunc(near, func(n part) bool { return n.off > p.off })
		if after < 0 {
			after = len(near)
		}
		begin, end := p.off, p.off+uint64(p.n)
		for _, n := range near[after:] {
			if n.off > end+Nearby || n.off+uint64(n.n)-begin > largest || !r.takeAlong(&n, &p) {
				break
			}
			end, in[n.pf.index] = n.off+uint64(n.n), true
			parts = append(parts, n)
		}
		for _, n := range slices.Backward(near[:after]) {
			if n.off+uint64(n.n)+Nearby < begin || end-n.off > largest || !r.takeAlong(&n, &p) {
				break
			}
			begin, in[n.pf.index] = n.off, true
			parts = append(parts, n)
		}
	}
	return parts
}

// around lists the samples near one that are wanted, by offset. Those in a burst are not among them.
func (r *Prefetcher) around(p *part, in map[sample.Index]bool) (near []part) {
	l := r.logfile(p.half)
	if l == nil {
		return nil
	}
	var candidates []sample.Index
	l.Within(p.seg, p.off-min(p.off, reach), p.off+uint64(p.n)+reach, func(index sample.Index) {
		if !in[index] {
			candidates = append(candidates, index)
		}
	})
	for _, index := range p.pf.along.Wanted(candidates) {
		half, seg, off, ok := r.cache.Locations.Split(r.cache.Locations.Get(index))
		sum, known := r.cache.Sums.Get(index)
		n := int(r.cache.Manifest.Size(index))
		if !ok || !known || half != p.half || seg != p.seg || r.f.IsPacked(index) || off+reach < p.off || off+uint64(n) > p.off+uint64(p.n)+reach {
			continue
		}
		near = append(near, part{pf: &prefetch{index: index, size: uint32(n)}, need: p.need, half: half, seg: seg, off: off, n: n, sum: sum})
	}
	slices.SortFunc(near, func(a, b part) int { return cmp.Compare(a.off, b.off) })
	return near
}

// takeAlong makes a sample one of the burst of another one: its prefetch, if it is listed and not begun, else one that no chunk wants.
func (r *Prefetcher) takeAlong(n, p *part) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	pf := r.prefetches[n.pf.index]
	if pf == nil {
		n.pf.state, n.pf.path, n.pf.work, n.pf.along, n.pf.brought = prefetchTaken, sample.FromLog, p.pf.work, p.pf.along, true
		return p.pf.along.Take(n.pf.index)
	}
	if !r.takeListed(pf) {
		return false
	}
	n.pf = pf
	return true
}

// takeListed takes a prefetch off its list to read it with others, if it waits to be begun and does not lie in a slot. r.mu is held.
func (r *Prefetcher) takeListed(pf *prefetch) bool {
	if pf.state != prefetchQueued || pf.path != sample.FromLog || pf.on == nil || pf.on.stale {
		return false
	}
	of := pf.on.of
	pf.leaveList()
	if r.isInSlot(pf) {
		return false
	}
	pf.state, pf.of, pf.work = prefetchTaken, of, of.work
	of.inFlight[sample.FromLog] += int64(pf.size)
	r.inHand[sample.FromLog] = append(r.inHand[sample.FromLog], pf)
	return true
}

// dropAlong gives the memory of a sample back that was to be read along.
func (pf *prefetch) dropAlong() {
	if pf.brought {
		pf.along.Drop(pf.index)
	}
}

// keepAlong gives away what was read along, and returns the rest.
func keepAlong(good []verified) (rest []verified) {
	rest = good[:0]
	for _, g := range good {
		if g.pf.brought {
			g.pf.along.Keep(g.pf.index, g.data)
			continue
		}
		if g.pf.along != nil {
			g.pf.along.Again(g.pf.index, g.data)
		}
		rest = append(rest, g)
	}
	return rest
}
