package prefetch

import (
	"cmp"
	"slices"

	"lcache/sample"
)

// On a device that is limited in operations, one read over a short gap takes less time than two reads. So a random read of a sample
// also loads nearby samples that are requested later in the epoch, long before their chunks are listed. This is an opportunistic
// read. OpportunisticMemory holds its samples.

// OpportunisticMemory chooses the samples of opportunistic reads, and keeps them until they are requested. Fetcher.Held has them then. Its methods
// may be called concurrently and never block.
type OpportunisticMemory interface {
	// Wanted returns the samples of a list that are requested later in the epoch and that no producer loads.
	Wanted(of []sample.Index) []sample.Index
	// Take reserves memory for a sample, and reports whether there was room. Keep or Drop follows.
	Take(index sample.Index) bool
	// Keep copies the bytes of a sample into its memory. The caller has verified them.
	Keep(index sample.Index, data []byte)
	// Drop frees the memory of a sample that was not read.
	Drop(index sample.Index)
	// Again may copy the bytes of a sample that a chunk wants, for the next epoch. The caller has verified them.
	Again(index sample.Index, data []byte)
}

// reach bounds the distance of an opportunistic read's sample from the sample that a chunk wants, in bytes.
const reach = 256 << 10

// addOpportunistic adds nearby samples to a burst, for reads of at most largest bytes.
func (r *Prefetcher) addOpportunistic(parts []part, largest uint64) []part {
	if !slices.ContainsFunc(parts, func(p part) bool { return p.pf.memory != nil }) {
		return parts
	}
	in := map[sample.Index]bool{}
	for i := range parts {
		in[parts[i].pf.index] = true
	}
	for i := range len(parts) {
		if parts[i].pf.memory == nil {
			continue
		}
		p := parts[i]
		near := r.wantedNear(&p, in)
		after := slices.IndexFunc(near, func(n part) bool { return n.off > p.off })
		if after < 0 {
			after = len(near)
		}
		begin, end := p.off, p.off+uint64(p.n)
		for _, n := range near[after:] {
			if n.off > end+Nearby || n.off+uint64(n.n)-begin > largest || !r.takeOpportunistic(&n, &p) {
				break
			}
			end, in[n.pf.index] = n.off+uint64(n.n), true
			parts = append(parts, n)
		}
		for _, n := range slices.Backward(near[:after]) {
			if n.off+uint64(n.n)+Nearby < begin || end-n.off > largest || !r.takeOpportunistic(&n, &p) {
				break
			}
			begin, in[n.pf.index] = n.off, true
			parts = append(parts, n)
		}
	}
	return parts
}

// wantedNear lists the wanted samples near p by offset, without the samples of the burst.
func (r *Prefetcher) wantedNear(p *part, in map[sample.Index]bool) (near []part) {
	l := r.logfile(p.num)
	if l == nil {
		return nil
	}
	var candidates []sample.Index
	l.Within(p.seg, p.off-min(p.off, reach), p.off+uint64(p.n)+reach, func(index sample.Index) {
		if !in[index] {
			candidates = append(candidates, index)
		}
	})
	for _, index := range p.pf.memory.Wanted(candidates) {
		num, seg, off, ok := r.cache.Locations.Split(r.cache.Locations.Get(index))
		sum, known := r.cache.Sums.Get(index)
		n := int(r.cache.Manifest.Size(index))
		if !ok || !known || num != p.num || seg != p.seg || r.f.IsPacked(index) || off+reach < p.off || off+uint64(n) > p.off+uint64(p.n)+reach {
			continue
		}
		near = append(near, part{pf: &prefetch{index: index, size: uint32(n)}, need: p.need, num: num, seg: seg, off: off, n: n, sum: sum})
	}
	slices.SortFunc(near, func(a, b part) int { return cmp.Compare(a.off, b.off) })
	return near
}

// takeOpportunistic adds sample n to the burst of p. It uses the sample's prefetch, if that is listed and not begun, or makes one that no chunk wants.
func (r *Prefetcher) takeOpportunistic(n, p *part) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	pf := r.prefetches[n.pf.index]
	if pf == nil {
		n.pf.state, n.pf.path, n.pf.work, n.pf.memory, n.pf.opportunistic = prefetchTaken, sample.FromLog, p.pf.work, p.pf.memory, true
		return p.pf.memory.Take(n.pf.index)
	}
	if !r.takeListed(pf) {
		return false
	}
	n.pf = pf
	return true
}

// takeListed takes a prefetch off its todo list, to read it with others. It returns false if the prefetch is not queued or its sample is in a slot. r.mu is held.
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
	r.taken[sample.FromLog] = append(r.taken[sample.FromLog], pf)
	return true
}

// dropOpportunistic frees the memory that an opportunistic read reserved.
func (pf *prefetch) dropOpportunistic() {
	if pf.opportunistic {
		pf.memory.Drop(pf.index)
	}
}

// keepOpportunistic passes samples of opportunistic reads to OpportunisticMemory, and returns the other samples.
func keepOpportunistic(good []verified) (rest []verified) {
	rest = good[:0]
	for _, g := range good {
		if g.pf.opportunistic {
			g.pf.memory.Keep(g.pf.index, g.data)
			continue
		}
		if g.pf.memory != nil {
			g.pf.memory.Again(g.pf.index, g.data)
		}
		rest = append(rest, g)
	}
	return rest
}
