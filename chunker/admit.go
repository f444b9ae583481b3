package chunker

import (
	"math"
	"sort"

	"lcache/sample"
)

// Admit chooses the fixed set of samples that a budget keeps: those whose name hash is below the returned threshold. The set is the
// largest one whose padded bytes are at most room. Choosing by name hash, not by a running total, has three effects. A changed or added
// file leaves the other samples in the set. Every node chooses the same set. And misses spread evenly over every epoch, so that disk and
// source are read in parallel all the time. If all samples fit, all are admitted: the threshold is then the largest number, and even a
// sample with that hash is kept.
func Admit(hashes []uint64, sizes []uint32, align int, room uint64) (threshold uint64, bytes uint64) {
	const bits = 16
	var bucket [1 << bits]uint64
	var total uint64
	for i, h := range hashes {
		p := Padded(sizes[i], align)
		bucket[h>>(64-bits)] += p
		total += p
	}
	if total <= room {
		return math.MaxUint64, total
	}
	b := 0
	for ; bytes+bucket[b] <= room; b++ {
		bytes += bucket[b]
	}
	// The threshold is within bucket b: look at its samples one by one.
	type entry struct{ hash, size uint64 }
	var in []entry
	for i, h := range hashes {
		if h>>(64-bits) == uint64(b) {
			in = append(in, entry{fold(h), Padded(sizes[i], align)})
		}
	}
	sort.Slice(in, func(i, j int) bool { return in[i].hash < in[j].hash })
	for i := 0; ; {
		same, j := uint64(0), i
		for ; j < len(in) && in[j].hash == in[i].hash; j++ {
			same += in[j].size
		}
		if bytes+same > room { // true for the bucket's last hash at the latest, because the whole bucket does not fit
			return in[i].hash, bytes
		}
		bytes += same
		i = j
	}
}

// Most chooses the padded size of the largest sample that is admitted, if the budget has room for only part of the dataset; 0: any size.
// Slack holds the largest admitted sample twice, so in a small cache a few large samples displace more bytes than they have. Most
// halves the size down to a block, and chooses the size that keeps most bytes; among equal ones the largest.
func (f Facts) Most(sizes []uint32, align int) (most uint64) {
	w := f.Block
	if w == 0 {
		w = chooseBlock(f)
	}
	if f.Budget == 0 || f.Packed || f.Budget >= f.stored()+f.leastSlack(w)+f.Metadata {
		return 0
	}
	kept := func(largest, bytes uint64) uint64 {
		g := f
		g.LargestKept = largest
		return min(bytes, f.Budget-min(f.Budget, f.Metadata+max(g.leastSlack(w), f.Budget/100)))
	}
	best := kept(f.Largest, f.Kept)
	for limit := f.Largest / 2; limit >= w; limit /= 2 {
		var largest, bytes uint64
		for _, size := range sizes {
			if p := Padded(size, align); p <= limit {
				largest, bytes = max(largest, p), bytes+p
			}
		}
		if n := kept(largest, bytes); n > best {
			best, most = n, limit
		}
	}
	return most
}

// Admitted reports whether a hash is below the threshold. The two largest hashes count as one, so that the largest threshold can mean all.
func Admitted(hash, threshold uint64) bool { return fold(hash) < threshold }

func fold(hash uint64) uint64 { return min(hash, math.MaxUint64-1) }

// Largest returns the size of the largest kept sample.
func Largest(sizes []uint32, keep func(sample.Index) bool) (largest uint32) {
	for i, s := range sizes {
		if s > largest && keep(sample.Index(i)) {
			largest = s
		}
	}
	return largest
}
