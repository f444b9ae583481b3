package chunker

import (
	"math"
	"sort"

	"lcache/sample"
)

// Admit draws the fixed set that a budget keeps: the samples whose name hash is below the threshold it returns. The set is the
// largest of that kind whose padded bytes are at most room. Deciding by name and not by a running total means that a changed or
// added file leaves the rest of the set as it is, that every node draws the same set, and that misses spread evenly over every
// epoch, so that disk and source are read side by side all the time. All is admitted when it fits: then the threshold is the
// largest number and even a sample with that hash is kept.
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
	// The threshold lies within bucket b: look at its samples one by one.
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
		if bytes+same > room { // true at the latest for the bucket's last hash: the bucket as a whole has no room
			return in[i].hash, bytes
		}
		bytes += same
		i = j
	}
}

// Most chooses how large a sample may be that a budget with room for only a part of the dataset admits, in padded bytes; 0: of any size. Slack holds the largest
// admitted sample twice, so in a little cache a few large samples keep out more bytes than they have. Most halves the size down to a block, and takes the one
// that keeps most bytes; of equal ones the largest.
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

// Admitted is the rule itself. The two largest hashes count as one, so that the largest threshold can mean all.
func Admitted(hash, threshold uint64) bool { return fold(hash) < threshold }

func fold(hash uint64) uint64 { return min(hash, math.MaxUint64-1) }

// Largest is the largest of the samples that a line would keep.
func Largest(sizes []uint32, keep func(sample.Index) bool) (largest uint32) {
	for i, s := range sizes {
		if s > largest && keep(sample.Index(i)) {
			largest = s
		}
	}
	return largest
}
