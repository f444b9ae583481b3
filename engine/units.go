package engine

import (
	"lcache/importance"
	"lcache/logfile"
	"lcache/sample"
	"lcache/schedule"
)

// units lists the L-samples that lie together on the disk, in pieces of about the size of a package: packages, and parts of Logfiles whose samples were not packed yet. Each sample is in one at
// most. Where a Logfile is in the order of the source, neighbours are of one kind, and would stand in for each other alone: its samples are mixed first, and read one by one until they are packed.
func (e *Engine) units(high *sample.Set, epoch int, seed uint64) (units [][]sample.Index) {
	c := e.cache
	for half := range logfile.PackageHalf + 1 {
		l := c.Logfile(half)
		if l == nil {
			continue
		}
		var all []sample.Index
		for seg := range int(l.Header().Segments) {
			from := len(all)
			l.Arrivals(seg, func(_ int, index sample.Index, off uint64) bool {
				if !high.Has(index) && c.Locations.Get(index) == c.Locations.At(half, seg, off) {
					all = append(all, index)
				}
				return true
			})
			if half == logfile.PackageHalf && len(all) > from {
				units = append(units, all[from:len(all):len(all)])
			}
		}
		if half == logfile.PackageHalf {
			continue
		}
		if schedule.IsCanonical(l.Header().Key) {
			importance.Mix(all, seed, epoch)
		}
		units = append(units, e.cut(all)...)
	}
	return units
}

// cut cuts samples into units of about the size of a package.
func (e *Engine) cut(list []sample.Index) (units [][]sample.Index) {
	plan, _ := e.planPackages(0)
	full := int64(plan.blocks) * int64(e.cache.Format.Block)
	from, bytes := 0, int64(0)
	for k, index := range list {
		if bytes += e.cache.Padded(index); bytes >= full || k == len(list)-1 {
			units = append(units, list[from:k+1:k+1])
			from, bytes = k+1, 0
		}
	}
	return units
}
