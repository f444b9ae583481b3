package epochlayout

import (
	"cmp"
	"lcache/internal/serve/prefetch"
	"slices"
)

// If an epoch needs few samples of an unused segment, the segment need not be moved: the next Logfile takes over its
// blocks, and these samples are read with random reads. chooseCarried compares the device time of both choices. Its
// model of the device has a limit of operations/s and one of bytes/s. The kernel splits larger reads, and the device
// counts the parts.
const (
	readsASecond = 3000
	bytesASecond = 500 << 20
	bytesARead   = 512 << 10
)

// minFill is the share of a segment that must be filled for it to be carried. Without it, the segment count of
// layouts would grow without bound.
const minFill = 0.5

// opportunisticTurns is how often the memory for opportunistic reads is refilled in an epoch. A sample stays in it
// for a third of an epoch. Near the beginning and end of an epoch, few samples are in it.
const opportunisticTurns = 2

// epochReads is the input of chooseCarried.
type epochReads struct {
	unused        []unusedSegment // segments that may be carried
	outside       int             // reads of samples that memory will not hold; each sample counts once
	again         int             // further reads of the same samples
	mean          float64         // mean size of a sample in bytes
	segment       float64         // size of a full segment in bytes
	block         float64         // size of a block in bytes
	opportunistic float64         // memory for opportunistic reads in bytes
}

// unusedSegment is a segment that may be carried.
type unusedSegment struct {
	k      int
	bytes  float64
	wanted int // samples of it that are read with random reads if it is carried
}

// chooseCarried returns the segments to leave in place, in ascending order. It leaves the least-wanted segments, and
// as many of them as minimise device time.
func chooseCarried(e epochReads) (carry []int) {
	read := min(e.block, bytesARead)
	opportunistic := e.opportunistic / e.mean * opportunisticTurns
	bytes, reads := e.mean*float64(e.outside+e.again), float64(e.again) // if no segment is carried
	for _, s := range e.unused {
		bytes += s.bytes
	}
	segments := slices.DeleteFunc(slices.Clone(e.unused), func(s unusedSegment) bool { return s.bytes < minFill*e.segment })
	slices.SortFunc(segments, func(a, b unusedSegment) int {
		return cmp.Or(cmp.Compare(float64(a.wanted)*b.bytes, float64(b.wanted)*a.bytes), cmp.Compare(a.k, b.k))
	})
	least, n := deviceTime(bytes, reads, read), 0
	for i, s := range segments {
		r := s.randomReads(e.mean, opportunistic)
		bytes, reads, opportunistic = bytes-s.bytes+r.gaps, reads+r.reads, opportunistic-r.opportunistic
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

// randomReads is the cost of random reads of the wanted samples of a segment.
type randomReads struct {
	reads         float64
	gaps          float64 // bytes of the gaps between samples that one read covers
	opportunistic float64 // samples that were read opportunistically together with another one
}

// randomReads estimates the cost of random reads of the wanted samples. mean is the size of a sample; opportunistic is the maximum number of samples that are
// read together with another one. A sample is read together with the next wanted one if the gap between them, in unwanted samples of mean size, is at
// most prefetch.Nearby.
func (s *unusedSegment) randomReads(mean, opportunistic float64) randomReads {
	share := min(1, float64(s.wanted)*mean/max(s.bytes, 1)) // wanted share of the segment
	apart := 1.0                                            // probability that none of the samples so far is wanted
	gaps := 0.0                                             // number of unwanted samples read for each wanted one
	for k := range int(prefetch.Nearby/mean) + 1 {
		gaps += float64(k) * share * apart
		apart *= 1 - share
	}
	merged := float64(s.wanted) * (1 - apart)
	if merged > opportunistic {
		gaps *= opportunistic / merged
		merged = opportunistic
	}
	return randomReads{float64(s.wanted) - merged, float64(s.wanted) * gaps * mean, merged}
}

// deviceTime returns the seconds that a device needs to read bytes in all: with a number of random reads, and with
// sequential reads of the given size for the rest.
func deviceTime(bytes, random, size float64) float64 {
	return max(bytes/bytesASecond, (random+bytes/size)/readsASecond)
}
