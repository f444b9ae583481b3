package prefetch

import (
	"lcache/logfile"
	"lcache/sample"
)

// Where substitutes are allowed, an epoch uses the cache piece by piece: the samples of one piece are requested within a few chunks. So
// all listed samples of a piece are read together, including samples that are needed much later.

// piece is a part of a segment that is read together.
type piece struct {
	num, seg int
	at       uint64 // in units of largestRead
}

// gather adds to a burst the listed samples of the same pieces.
func (r *Prefetcher) gather(burst []*prefetch) []*prefetch {
	var around []sample.Index
	seen := map[piece]bool{}
	for _, pf := range burst {
		if !pf.near {
			continue
		}
		num, seg, off, ok := r.cache.Locations.Split(r.cache.Locations.Get(pf.index))
		p := piece{num, seg, off / largestRead}
		l := r.logfile(num)
		if !ok || l == nil || seen[p] {
			continue
		}
		seen[p] = true
		l.Within(seg, p.at*largestRead, (p.at+1)*largestRead, func(index sample.Index) { around = append(around, index) })
	}
	if len(around) == 0 {
		return burst
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, index := range around {
		if pf := r.prefetches[index]; pf != nil && pf.near && r.takeListed(pf) {
			burst = append(burst, pf)
		}
	}
	return burst
}

func (r *Prefetcher) logfile(num int) *logfile.Logfile {
	if num > logfile.PackagesNum {
		return nil
	}
	return r.cache.Logfile(num)
}
