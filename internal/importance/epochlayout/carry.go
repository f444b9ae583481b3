package epochlayout

import (
	"cmp"
	"lcache/internal/serve/prefetch"
	"slices"
)

// An unused segment of which few samples are wanted need not be moved: the next Logfile takes over its blocks, and the wanted samples are read by location. chooseCarried compares the device time of both
// by a model: the device is limited in operations and in bytes a second. The kernel splits larger reads, and the device counts the parts.
const (
	readsASecond = 3000
	bytesASecond = 500 << 20
	bytesARead   = 512 << 10
)

// minFill is the part of a segment that must be filled for it to be carried, else the segment count of layouts grows without bound.
const minFill = 0.5

// alongTurns is the number of refills per epoch of the memory for opportunistic reads: a sample is there for a third of an epoch, and at the epoch's beginning and end there are few.
const alongTurns = 2

// epochReads is what chooseCarried knows of an epoch.
type epochReads struct {
	unused  []unusedSegment // segments that may be carried
	outside int             // reads of samples that memory will not hold, each counted once
	again   int             // more reads of the same samples
	mean    float64         // bytes of a sample
	segment float64         // bytes of a full segment
	block   float64         // bytes of a block
	along   float64         // bytes of memory for opportunistic reads
}

// unusedSegment is a segment that may be carried.
type unusedSegment struct {
	k      int
	bytes  float64
	wanted int // samples of it that are read by location if it is carried
}

// chooseCarried returns the segments to leave in place, ascending: the number of least-wanted segments that minimises device time.
func chooseCarried(e epochReads) (carry []int) {
	read := min(e.block, bytesARead)
	along := e.along / e.mean * alongTurns
	bytes, reads := e.mean*float64(e.outside+e.again), float64(e.again) // if none is carried
	for _, s := range e.unused {
		bytes += s.bytes
	}
	segments := slices.DeleteFunc(slices.Clone(e.unused), func(s unusedSegment) bool { return s.bytes < minFill*e.segment })
	slices.SortFunc(segments, func(a, b unusedSegment) int {
		return cmp.Or(cmp.Compare(float64(a.wanted)*b.bytes, float64(b.wanted)*a.bytes), cmp.Compare(a.k, b.k))
	})
	least, n := deviceTime(bytes, reads, read), 0
	for i, s := range segments {
		r := s.randomReads(e.mean, along)
		bytes, reads, along = bytes-s.bytes+r.gaps, reads+r.reads, along-r.along
		if t := deviceTime(bytes, reads, read); t <= least {
			least, n = t, i+1
		}
	}
	for _, s := range segments[:n] {
		carry = append(carry, s.k)
	}
	slices.Sort(carry)
	return carry
}

// randomReads is the cost of reading the wanted samples of a segment by location.
type randomReads struct {
	reads float64
	gaps  float64 // bytes between samples that one read brings
	along float64 // samples that were read opportunistically with another one
}

// randomReads estimates the cost of reading the wanted samples by location. mean is the size of a sample; along is the largest number of samples that are read together with another one. A sample is read together
// with the next wanted one if the gap between them, in unwanted samples of mean size, is at most prefetch.Nearby.
func (s *unusedSegment) randomReads(mean, along float64) randomReads {
	share := min(1, float64(s.wanted)*mean/max(s.bytes, 1)) // that is wanted
	apart := 1.0                                            // probability that none of the samples so far is wanted
	gaps := 0.0                                             // unwanted samples that are read, for each wanted one
	for k := range int(prefetch.Nearby/mean) + 1 {
		gaps += float64(k) * share * apart
		apart *= 1 - share
	}
	merged := float64(s.wanted) * (1 - apart)
	if merged > along {
		gaps *= along / merged
		merged = along
	}
	return randomReads{float64(s.wanted) - merged, float64(s.wanted) * gaps * mean, merged}
}

// deviceTime returns the seconds that a device takes for random reads and for sequential reads of a size, with the given bytes in all.
func deviceTime(bytes, random, size float64) float64 {
	return max(bytes/bytesASecond, (random+bytes/size)/readsASecond)
}
