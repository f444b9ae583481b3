package packing

import (
	"lcache/internal/importance/substitute"
	"lcache/internal/serve/schedule"
	"lcache/internal/store/cache"
	"lcache/logfile"
	"lcache/sample"
)

// Units lists groups of L-samples that are stored together on the disk, each of about the size of a package. A group
// is a package, or a part of a Logfile whose samples are not packed yet. A sample is in at most one group. If a
// Logfile has the order of the source, neighbours have the same class, and would only replace each other. So Units
// shuffles its samples, and they are read one by one until they are packed.
func Units(c *cache.Cache, high *sample.Set, epoch int, seed uint64) (units [][]sample.Index) {
	g, _ := chooseGeometry(factsOf(c), 0)
	full := int64(g.blocks) * int64(c.Format.Block)
	for num := range logfile.PackagesNum + 1 {
		l := c.Logfile(num)
		if l == nil {
			continue
		}
		var all []sample.Index
		for number := range int(l.Header().Segments) {
			from := len(all)
			l.Arrivals(number, func(_ int, index sample.Index, off uint64) bool {
				if !high.Has(index) && c.Locations.Get(index) == c.Locations.At(num, number, off) {
					all = append(all, index)
				}
				return true
			})
			if num == logfile.PackagesNum && len(all) > from {
				units = append(units, all[from:len(all):len(all)])
			}
		}
		if num == logfile.PackagesNum {
			continue
		}
		if schedule.IsCanonical(l.Header().Key) {
			substitute.Mix(all, seed, epoch)
		}
		units = append(units, cut(all, full, c.Padded)...)
	}
	return units
}

// cut cuts a list of samples into units of full bytes, or slightly more.
func cut(list []sample.Index, full int64, size func(sample.Index) int64) (units [][]sample.Index) {
	from, bytes := 0, int64(0)
	for k, index := range list {
		if bytes += size(index); bytes >= full || k == len(list)-1 {
			units = append(units, list[from:k+1:k+1])
			from, bytes = k+1, 0
		}
	}
	return units
}
